"""A training's state on disk: complete when its manifest says so, older ones used when it does not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from gristmill import files

KEEP = 2
_STATE, _MANIFEST = "state.pt", "manifest.json"


def save(folder: Path, epoch: int, state: dict[str, Any]) -> None:
    """Publish one checkpoint as one folder by one rename; older ones go only after it is there."""
    staging = folder / f".epoch-{epoch:06d}"
    shutil.rmtree(staging, ignore_errors=True)
    with files.disk_faults(staging):
        staging.mkdir(parents=True)
        torch.save(state, staging / _STATE)
        files.write_json(staging / _MANIFEST, {"epoch": epoch, "sha256": files.file_digest(staging / _STATE)})
    target = folder / f"epoch-{epoch:06d}"
    files.publish(staging, target)
    found = _found(folder)
    # One that is newer than this was found broken, or this epoch would not have been trained again.
    kept = [checkpoint for checkpoint in found if checkpoint.name <= target.name][:KEEP]
    for old in found:
        if old not in kept:
            shutil.rmtree(old)


def latest(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint whose bytes are what its manifest says, or None."""
    for checkpoint in _found(folder):
        try:
            manifest = json.loads((checkpoint / _MANIFEST).read_text())
            if files.file_digest(checkpoint / _STATE) != manifest["sha256"]:
                continue
        except (OSError, ValueError, KeyError, TypeError):
            continue
        state: dict[str, Any] = torch.load(checkpoint / _STATE, map_location="cpu", weights_only=True)
        return state
    return None


def _found(folder: Path) -> list[Path]:
    """Published checkpoints, the newest first."""
    return sorted(folder.glob("epoch-*"), reverse=True)
