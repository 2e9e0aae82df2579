from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.orchestrate.tables import TableIOManager
from gristmill.workspace import Workspace
from tests import toy


def materialized(workspace: Workspace, value: object) -> dg.ExecuteInProcessResult:
    @dg.asset(key=["raw", "mine"], io_manager_key="table")
    def mine():  # type: ignore[no-untyped-def]
        return value

    return dg.materialize([mine], resources={"table": TableIOManager(workspace)}, raise_on_error=False)


@pytest.mark.parametrize(
    "table", [pa.table({"a": [1, None]}), pd.DataFrame({"a": pd.array([1, None], "Int64")})]
)
def test_a_table_is_kept_where_a_snapshot_finds_it(tmp_path: Path, table: object) -> None:
    workspace = toy.workspace(tmp_path)
    assert materialized(workspace, table).success
    assert pq.read_table(workspace.asset_table("raw/mine")).to_pydict() == {"a": [1, None]}


def test_what_is_no_table_is_told(tmp_path: Path) -> None:
    result = materialized(toy.workspace(tmp_path), [1, 2])
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "asset raw/mine must return a table" in str(failure.step_failure_data.error)
