"""A toy workspace for tests of the doors: 400 rows, one pipeline, seconds to run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gristmill import consistency
from gristmill import init as workspace_init
from gristmill.workspace import Workspace

BIN = Path(sys.executable).parent

DECLARED: dict[str, Any] = {
    "description": "A toy.",
    "owners": ["team:toys"],
    "source": {"path": "data/toy.csv"},
    "task": {
        "kind": "binary",
        "target": "bought",
        "positive": True,
        "metric": "roc_auc",
        "accept": {"at_least": 0.6, "above_baseline": -0.5},
    },
    "split": {"test": 0.25, "validation": 0.2, "stratify_on": "bought", "seed": 1},
    "baseline": {"rounds": 20},
    "network": {"hidden": [16]},
    "training": {"epochs": 4, "batch_size": 32},
    "evaluation": {"resamples": 100},
    "retrain": {"cron": "0 3 * * 1", "timezone": "Europe/Berlin"},
}


def rows(number: int = 400, seed: int = 0) -> str:
    """A CSV of customers, whose age and shop say something of what they buy."""
    random = np.random.default_rng(seed)
    age = random.integers(18, 80, number)
    shop = random.choice(["north", "south", "west"], number)
    bought = random.random(number) < 1 / (1 + np.exp(-(age - 50) / 8 - (shop == "west")))
    lines = [
        f"{i},{a},{s},{str(bool(b)).lower()}"
        for i, (a, s, b) in enumerate(zip(age, shop, bought, strict=True))
    ]
    return "\n".join(["customer,age,shop,bought", *lines]) + "\n"


def workspace(folder: Path, **changed: Any) -> Workspace:
    """A workspace as `gristmill init` writes it, with the pipeline `toy` and its data."""
    workspace_init.write(folder)
    (folder / "data").mkdir()
    (folder / "data" / "toy.csv").write_text(rows())
    declare(folder, **changed)
    return Workspace(folder)


def declare(folder: Path, name: str = "toy", **changed: Any) -> Path:
    """Write a pipeline's declaration, the toy's with some sections changed, and its dvc.yaml."""
    file = folder / "pipelines" / name / "defs.yaml"
    file.parent.mkdir(exist_ok=True)
    attributes = {key: value for key, value in (DECLARED | changed).items() if value is not None}
    file.write_text(yaml.safe_dump({"type": "gristmill.Pipeline", "attributes": attributes}, sort_keys=False))
    consistency.check(Workspace(folder), fix=True)
    return file


def environment(**more: str) -> dict[str, str]:
    """The caller's environment with this Python's programs first, and no Dagster home of somebody else's."""
    kept = {key: value for key, value in os.environ.items() if key not in ("DAGSTER_HOME", "DVC_STAGE")}
    # Dagster and DVC warn about themselves on standard error; that is not what these tests look at.
    paths = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": paths, "DAGSTER_DISABLE_TELEMETRY": "1", "PYTHONWARNINGS": "ignore"} | more


def call(folder: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a user would, in the workspace's folder."""
    return subprocess.run(
        command, cwd=folder, env=environment(**more), capture_output=True, text=True, check=False, timeout=300
    )
