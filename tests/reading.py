"""A source written by a test, opened as a pipeline opens it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from gristmill import sources
from gristmill.spec import PipelineSpec
from gristmill.tables import SourceTable
from gristmill.workspace import Workspace


def declared(source: dict[str, Any], **more: Any) -> PipelineSpec:
    return PipelineSpec.model_validate(
        {
            "source": source,
            "task": {"kind": "regression", "target": "y", "metric": "rmse", "accept": {"at_most": 1}},
            "split": {"test": 0.2, "validation": 0.1},
        }
        | more
    )


def opened(workspace: Workspace, content: str | bytes, name: str = "x.csv", **source: Any) -> SourceTable:
    """A file in data/, opened as a source."""
    (workspace.root / "data" / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return sources.open_source(declared({"path": f"data/{name}"} | source), workspace)


def whole(source: SourceTable) -> pa.Table:
    return pa.Table.from_batches(list(source.batches), source.schema)
