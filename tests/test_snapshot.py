from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gristmill import files, snapshot, tables
from gristmill.errors import DataError
from gristmill.work import Made, Work
from gristmill.workspace import Workspace
from tests.conftest import Declare

GOOD = {
    "source": {"path": "data/x.csv"},
    "task": {"kind": "regression", "target": "y", "metric": "rmse", "accept": {"at_most": 9}},
    "split": {"test": 0.2, "validation": 0.1},
}


def made(declare: Declare, root: Path, csv: str, place: str = "output", **more: Any) -> tuple[Made, Path]:
    """The snapshot of a CSV: what it says and where its parts lie."""
    declare(GOOD | more)
    (root / "data").mkdir(exist_ok=True)
    (root / "data" / "x.csv").write_text(csv)
    workspace = Workspace.find(root)
    output = root / "work" / place
    output.mkdir(parents=True)
    work = Work(workspace, workspace.pipeline("flights"), {}, output, root / "scratch", "run")
    return snapshot.make(work), output


def test_a_snapshot_is_the_sources_rows_in_their_order(declare: Declare, tmp_path: Path) -> None:
    result, output = made(declare, tmp_path, "id,tail,y\n30,007,1.5\n10,,2\n20,N1,\n")
    assert tables.read(output, ["_row", "id", "tail", "y"]).to_pylist() == [
        {"_row": 0, "id": 30, "tail": "007", "y": 1.5},
        {"_row": 1, "id": 10, "tail": None, "y": 2.0},
        {"_row": 2, "id": 20, "tail": "N1", "y": None},
    ]
    assert result.values == {"rows": 3, "columns": 3}


def test_it_is_judged_readable_with_the_rows_that_were_looked_at(declare: Declare, tmp_path: Path) -> None:
    result, _ = made(declare, tmp_path, "id,y\n1,2\n3,4\n")
    [check] = result.checks
    assert (check.code, check.verdict, check.evaluated) == ("GM001", "passed", 2)
    assert check.text == "2 rows and 2 columns, typed without loss"


def test_the_same_source_is_the_same_bytes(declare: Declare, tmp_path: Path) -> None:
    csv = "id,y\n" + "".join(f"{n},{n / 7}\n" for n in range(70_000))
    _, first = made(declare, tmp_path, csv, "first")
    _, second = made(declare, tmp_path, csv, "second")
    _, other = made(declare, tmp_path, csv + "0,0\n", "other")
    assert files.tree_digests(first) == files.tree_digests(second)
    assert files.tree_digests(first) != files.tree_digests(other)


def test_the_same_rows_are_the_same_bytes_from_another_format(declare: Declare, tmp_path: Path) -> None:
    _, first = made(declare, tmp_path, "id,y\n1,0.5\n,2\n", "first")
    table = tables.read(first, ["id", "y"])
    pq.write_table(table, tmp_path / "data" / "x.parquet", row_group_size=1)
    _, second = made(declare, tmp_path, "", "second", source={"path": "data/x.parquet"})
    assert files.tree_digests(first) == files.tree_digests(second)


def test_a03_no_row_is_no_snapshot(declare: Declare, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the source must have at least 1 row, however it has 0"):
        made(declare, tmp_path, "id,y\n")


def test_a_column_that_is_declared_and_missing_is_refused_before_a_byte_is_written(
    declare: Declare, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"task.target: no column 'y' in the data; its columns are id, z"):
        made(declare, tmp_path, "id,z\n1,2\n")
    assert list((tmp_path / "work" / "output").iterdir()) == []


def test_a_file_that_breaks_off_is_refused(declare: Declare, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data/x.csv: line 3 has 1 fields, header has 2"):
        made(declare, tmp_path, "id,y\n1,2\n3")
