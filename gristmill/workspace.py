"""Where things lie: the workspace's root, its pipelines' folders and gristmill's private folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gristmill import declaration
from gristmill.declaration import Declaration
from gristmill.errors import DeclarationError, InputError


@dataclass(frozen=True)
class Workspace:
    """A folder with pipelines/, assets/ and checks/; everything gristmill reads or writes is under it."""

    root: Path

    @classmethod
    def find(cls, start: Path | None = None) -> Workspace:
        """The nearest workspace at or above `start` (the working directory when left out).

        DVC runs stages in the pipeline's folder, also in a temporary copy of the workspace, so the
        working directory says where we are and no environment variable does.
        """
        here = (start or Path.cwd()).resolve()
        for folder in (here, *here.parents):
            if (folder / "pipelines").is_dir() and (folder / "dvc.yaml").is_file():
                return cls(folder)
        raise InputError(
            f"{here} must lie in a workspace (a folder with pipelines/ and dvc.yaml), however none is "
            "there or above; run `gristmill init`"
        )

    @property
    def private(self) -> Path:
        """Work in progress, locks, logs and the assets' tables: git and DVC ignore it."""
        return self.root / ".gristmill"

    def pipeline_names(self) -> list[str]:
        files = (self.root / "pipelines").glob(f"*/{declaration.FILE_NAME}")
        return sorted(file.parent.name for file in files)

    def pipeline(self, name: str) -> Declaration:
        """Read one pipeline's declaration; raises InputError for a name that is not there."""
        if name not in self.pipeline_names():
            known = ", ".join(self.pipeline_names()) or "none"
            raise InputError(f"pipeline must be one of {known}, got {name!r} (in {self.root / 'pipelines'})")
        try:
            return declaration.read(self.root / "pipelines" / name / declaration.FILE_NAME)
        except DeclarationError as error:
            raise DeclarationError(
                [
                    type(problem)(self.shown(problem.file), problem.line, problem.path, problem.text)
                    for problem in error.problems
                ]
            ) from None

    def folder(self, pipeline: str) -> Path:
        return self.root / "pipelines" / pipeline

    def stage_folder(self, pipeline: str, stage: str) -> Path:
        """Where a stage's output/, record.json and run.json lie."""
        return self.folder(pipeline) / "data" / stage

    def reports(self, pipeline: str) -> Path:
        return self.folder(pipeline) / "reports"

    def work(self, pipeline: str, stage: str) -> Path:
        """A stage's unfinished work and its checkpoints; they survive a kill."""
        return self.private / "work" / pipeline / stage

    def asset_table(self, key: str) -> Path:
        """The Parquet file that holds the table of a Dagster asset."""
        return self.private / "assets" / f"{key}.parquet"

    def shown(self, path: Path) -> Path:
        """A path as a person wants to read it: relative to the root where it is under it."""
        return path.relative_to(self.root) if path.is_relative_to(self.root) else path
