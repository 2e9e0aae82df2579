"""One stage through any door: the snapshot's pin honoured, the stage performed, the result named in dvc.lock."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from gristmill import dvc_files, files, plan, records
from gristmill.declaration import Declaration
from gristmill.errors import GristmillError
from gristmill.files import PipelineLock
from gristmill.plan import Outcome, Stage
from gristmill.work import Progress
from gristmill.workspace import Workspace


@dataclass(frozen=True)
class Door:
    """Who asks, and what for. The UI asks for a new snapshot by materializing one; the CLI says --refresh."""

    by: str = "dagster"
    refresh: bool = True
    force: bool = False
    in_process: bool = False
    """Whether the run is in the caller's own process, whose signals are then ours and not Dagster's."""
    progress: Progress | None = None
    finished: Callable[[Stage, Outcome], None] | None = None
    lock: str | None = None
    """What the pipeline's lock is held by for the whole run, where the caller holds it."""
    caught: list[GristmillError] = field(default_factory=list)
    """What a stage raised, for a caller in the same process: Dagster passes on its text only."""


DOOR: ContextVar[Door | None] = ContextVar("DOOR", default=None)


def materialize(
    workspace: Workspace, declaration: Declaration, stage: Stage, run_id: str, door: Door, progress: Progress
) -> Outcome:
    """Perform a stage under its pipeline's lock and pin what it made.

    A result whose checks failed stays in the workspace to be looked at; dvc.lock does not name it.
    """
    from gristmill import pins, report

    with PipelineLock(workspace.private, declaration.name, door.lock or run_id):
        dvc_files.refuse_stale(workspace, declaration)
        pin = None
        if stage.name == "snapshot" and not door.refresh:
            pin = _honour_pin(workspace, declaration)
        outcome = plan.perform(
            workspace,
            declaration,
            stage,
            run_id,
            force=door.force,
            refresh=door.refresh and stage.name == "snapshot",
            pin=pin,
            by=door.by,
            progress=progress,
        )
        if not outcome.reused:
            report.write(workspace, declaration)
        if outcome.record.passed and not pins.dvc_is_calling():
            pins.commit(workspace, declaration, stage.name, reused=outcome.reused)
    return outcome


def _honour_pin(workspace: Workspace, declaration: Declaration) -> str | None:
    """The pin, after its bytes were put back where cache or remote hold them and the workspace does not."""
    pin = dvc_files.pinned(declaration)
    folder = workspace.stage_folder(declaration.name, "snapshot")
    if pin is not None and not _holds(folder, pin):
        from gristmill import pins

        pins.restore_snapshot(workspace, declaration, pin)
    return pin


def _holds(folder: Path, pin: str) -> bool:
    output = folder / records.OUTPUT
    return (folder / records.FILE_NAME).is_file() and output.is_dir() and files.tree_md5(output) == pin
