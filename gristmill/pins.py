"""DVC: outputs go to its cache, dvc.lock names them, and a pinned snapshot comes back from cache or remote.

The only module that knows DVC. What it calls is internal to DVC 3.67 (hence the pin in pyproject):
a test compares the lock it writes with the one `dvc repro` writes, byte for byte.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from dvc.exceptions import CollectCacheError, DvcException
from dvc.lock import LockError
from dvc.repo import Repo, lock_repo

from gristmill import dvc_files, files, plan, records
from gristmill.declaration import Declaration
from gristmill.errors import Busy, InputError
from gristmill.workspace import Workspace

_PATIENCE_SECONDS = 60
# "Updating lock file" at each stage is no news to who runs a pipeline, and what is missing we say ourselves.
logging.getLogger("dvc").setLevel(logging.ERROR)
_T = TypeVar("_T")


def dvc_is_calling() -> bool:
    """Whether `dvc repro` runs us: then it writes the lock, and its own locks must not be taken again."""
    return "DVC_STAGE" in os.environ


def commit(workspace: Workspace, declaration: Declaration, stage: str, *, reused: bool) -> None:
    """Put a stage's output and record into DVC's cache and name them in dvc.lock.

    The stage has just made sure that its inputs are what they were when it began. Hashing and copying
    happen outside of the repository's lock, which is held for milliseconds.
    """
    # Not so for what was made just now: the lock of a fresh clone may name its bytes, its cache lacks them.
    if reused and dvc_files.is_locked(workspace, declaration, plan.stage(stage)):
        return
    repo = _open(workspace)
    file = str(declaration.folder / "dvc.yaml")

    def write() -> None:
        with lock_repo(repo):
            saved = repo.stage.load_one(file, stage)
        saved.save_deps()
        for out in saved.outs:
            out.save()
            if out.use_cache:
                out.commit(relink=False)
        with lock_repo(repo):
            fresh = repo.stage.load_one(file, stage)
            for target, source in zip(fresh.deps + fresh.outs, saved.deps + saved.outs, strict=True):
                target.hash_info, target.meta, target.obj = source.hash_info, source.meta, source.obj
            fresh.md5 = fresh.compute_md5()
            repo.stage_cache.save(fresh)
            fresh.dump(update_pipeline=False)

    try:
        with files.disk_faults(workspace.root / ".dvc"):
            _patiently(write)
    except DvcException as error:
        raise InputError(f"{declaration.name}/{stage}: DVC refused: {_one_line(error)}") from error
    finally:
        repo.close()


def restore_snapshot(workspace: Workspace, declaration: Declaration, pin: str) -> bool:
    """Bring the pinned snapshot back from cache or remote; False where neither holds it.

    Raises InputError when what came back is not what the pin names.
    """
    repo = _open(workspace)
    folder = workspace.stage_folder(declaration.name, "snapshot")
    try:
        stage = repo.stage.load_one(str(declaration.folder / "dvc.yaml"), "snapshot")
        held = all(not out.changed_cache() for out in stage.outs)
        if not held and repo.config["core"].get("remote"):
            with suppress(CollectCacheError):  # the remote does not hold it either
                for odb, objects in stage.get_used_objs().items():
                    repo.cloud.pull(objects, odb=odb)
            held = all(not out.changed_cache() for out in stage.outs)
        if not held:
            return False
        for out in stage.outs:
            out.checkout(force=True)
    except DvcException as error:
        raise InputError(f"{declaration.name}/snapshot: DVC cannot restore it: {_one_line(error)}") from error
    finally:
        repo.close()
    if (found := files.tree_md5(folder / records.OUTPUT)) != pin:
        raise InputError(
            f"{declaration.name}/snapshot does not match its pin (pinned {pin}, the cache holds {found}): the cache "
            "is damaged; remove the object and fetch it with `dvc pull`, or restore the source"
        )
    return True


def _open(workspace: Workspace) -> Any:
    if not (workspace.root / ".dvc").is_dir():
        raise InputError(
            f"{workspace.root} must be a DVC repository, however it has no .dvc; run `gristmill init`"
        )
    try:
        return Repo(str(workspace.root))
    except DvcException as error:
        raise InputError(f"{workspace.root}: DVC cannot open it: {_one_line(error)}") from error


def _patiently(action: Callable[[], _T]) -> _T:
    """DVC's locks do not wait long; we do, up to a minute."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return action()
        except LockError as error:
            if time.monotonic() > deadline:
                raise Busy(
                    f"DVC's lock is held by another process for {_PATIENCE_SECONDS} s: {_one_line(error)}"
                ) from error
            time.sleep(0.2)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
