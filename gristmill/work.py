"""What a stage is handed and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gristmill.declaration import Declaration
from gristmill.records import Check, Input
from gristmill.spec import PipelineSpec
from gristmill.workspace import Workspace

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much (0 where that is not known)."""


def silent(_text: str, _done: int, _total: int) -> None:
    pass


@dataclass(frozen=True)
class Work:
    """One stage's task. A stage writes only into `output` and `scratch` and does not know who called it."""

    workspace: Workspace
    declaration: Declaration
    inputs: Mapping[str, Input]
    output: Path
    """Where the files of the result go; empty at the start."""
    scratch: Path
    """Where checkpoints go; what an interrupted attempt at the same work left is still there."""
    run_id: str
    progress: Progress = silent

    @property
    def spec(self) -> PipelineSpec:
        return self.declaration.spec

    @property
    def snapshot(self) -> Path:
        """The folder of the snapshot's Parquet parts."""
        return self.inputs["snapshot"].folder


@dataclass(frozen=True)
class Made:
    """What a stage found out beside the files it wrote."""

    checks: tuple[Check, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    reports: tuple[str, ...] = ()
    """Files of the output that are also put in reports/, for people and for git."""
    beside: dict[str, Any] = field(default_factory=dict)
    """JSON files that lie beside the record because their facts change from run to run; no digest covers them."""
