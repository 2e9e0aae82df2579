"""The Dagster component behind `type: gristmill.Pipeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel

from gristmill.declaration import Declaration
from gristmill.orchestrate import assets
from gristmill.spec import PipelineSpec
from gristmill.workspace import Workspace


class Pipeline(dg.Component):
    """One pipeline from data to an accepted model, as one declaration.

    Snapshot, validation, split, baseline, preflight, network, evaluation and model become assets of a
    group with the folder's name, each with its checks; a job materializes them all, and `retrain`
    gives it a schedule.
    """

    def __init__(self, workspace: Workspace, declaration: Declaration) -> None:
        self.workspace = workspace
        self.declaration = declaration

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(description="From data to an accepted model, declared once.", tags=["ml"])

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return PipelineSpec

    @classmethod
    def load(cls, attributes: Any, context: dg.ComponentLoadContext) -> Self:
        """Read the file again with gristmill's own strict reader, which every door shares.

        Dagster hands over what YAML 1.1 makes of it, without lines and one problem at a time.
        """
        folder = Path(context.path)
        workspace = Workspace.find(folder)
        return cls(workspace, workspace.pipeline(folder.name))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return assets.build(self.workspace, self.declaration)
