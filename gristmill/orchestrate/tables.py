"""Tables of the user's own assets as Parquet files, where a pipeline's snapshot finds them."""

from __future__ import annotations

import os
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

from gristmill import files
from gristmill.workspace import Workspace


class TableIOManager(dg.IOManager):
    """Keeps what an asset returns (Arrow, pandas, or anything with an Arrow stream) under the asset's key.

    Name it in an asset: `@dg.asset(io_manager_key="table")`.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        key = "/".join(context.asset_key.path)
        table = _arrow(obj, key)
        file = self._workspace.asset_table(key)
        staging = file.with_suffix(f".{os.getpid()}.tmp")
        with files.disk_faults(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, staging, compression="zstd")
            os.replace(staging, file)
        columns = [dg.TableColumn(field.name, str(field.type)) for field in table.schema]
        context.add_output_metadata(
            {
                "dagster/row_count": table.num_rows,
                "dagster/column_schema": dg.TableSchema(columns),
                "file": dg.MetadataValue.path(file),
            }
        )

    def load_input(self, context: dg.InputContext) -> pa.Table:
        return pq.read_table(self._workspace.asset_table("/".join(context.asset_key.path)))


def _arrow(found: Any, key: str) -> pa.Table:
    if isinstance(found, pa.Table):
        return found
    if hasattr(found, "__arrow_c_stream__"):
        return pa.table(found)
    if hasattr(found, "to_pyarrow"):
        return found.to_pyarrow()
    raise dg.Failure(
        f"asset {key} must return a table (Arrow, pandas, Ibis), however it returned {type(found).__name__}"
    )
