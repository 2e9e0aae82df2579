import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill import files, tables
from gristmill.errors import DataError, GristmillError
from gristmill.tables import GROUP_ROWS, PART_ROWS, SourceTable
from gristmill.workspace import Workspace
from tests.conftest import work_on
from tests.reading import declared, opened

UTC = datetime.UTC

# The snapshot's side


def batches(rows: int, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, size):
        values = np.arange(start, min(start + size, rows))
        yield pa.record_batch({"a": values * 3, "s": pa.array(values % 7).cast(pa.string())})


def source_of(rows: int, size: int) -> SourceTable:
    return SourceTable(pa.schema({"a": pa.int64(), "s": pa.string()}), batches(rows, size), {})


# Ibis 12 calls DuckDB 2 by a name that DuckDB deprecates.
@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_rows_are_numbered_through_all_parts(tmp_path: Path) -> None:
    rows = PART_ROWS + 75_000
    assert tables.write_parts(tmp_path / "out", source_of(rows, 50_000)) == rows
    parts = sorted((tmp_path / "out").iterdir())
    assert [part.name for part in parts] == ["part-00000.parquet", "part-00001.parquet"]
    assert [pq.read_metadata(part).num_rows for part in parts] == [PART_ROWS, 75_000]
    table = tables.read(tmp_path / "out", ["_row", "a"])
    assert np.array_equal(table["_row"], np.arange(rows))
    assert np.array_equal(table["a"], np.arange(rows) * 3)
    assert tables.scan(tmp_path / "out").count().to_pyarrow().as_py() == rows
    chosen = tables.read(tmp_path / "out", ["a"], pa.array([rows - 1, 5, PART_ROWS]))
    assert chosen["a"].to_pylist() == [(rows - 1) * 3, 15, PART_ROWS * 3]


def test_the_same_rows_are_the_same_bytes_however_they_were_cut(tmp_path: Path) -> None:
    rows = 3 * GROUP_ROWS + 10
    for size in (1_000, 9_999, GROUP_ROWS, rows):
        tables.write_parts(tmp_path / str(size), source_of(rows, size))
    digests = {files.digest(files.tree_digests(folder)) for folder in tmp_path.iterdir()}
    assert len(digests) == 1
    meta = pq.read_metadata(tmp_path / "1000" / "part-00000.parquet")
    assert [meta.row_group(n).num_rows for n in range(meta.num_row_groups)] == [GROUP_ROWS] * 3 + [10]


def test_a_full_part_is_not_followed_by_an_empty_one(tmp_path: Path) -> None:
    assert tables.write_parts(tmp_path / "out", source_of(PART_ROWS, PART_ROWS)) == PART_ROWS
    assert len(list((tmp_path / "out").iterdir())) == 1
    assert tables.write_parts(tmp_path / "none", source_of(0, 1)) == 0


def test_the_schema_has_the_row_id_first(tmp_path: Path) -> None:
    tables.write_parts(tmp_path / "out", source_of(3, 3))
    assert tables.schema_of(tmp_path / "out").names == ["_row", "a", "s"]


def test_k03_equal_rows_have_equal_hashes_and_others_do_not(workspace: Workspace, tmp_path: Path) -> None:
    content = "id,x,y\n9007199254740993,-0.0,1\n9007199254740992,0.0,1\n9007199254740993,0.0,1\n,nan,1\n,,1\n"
    tables.write_parts(tmp_path / "out", opened(workspace, content))
    hashes = tables.row_hashes(tmp_path / "out", ["id", "x", "y"]).tolist()
    assert hashes[0] == hashes[2]
    assert hashes[3] == hashes[4]
    assert len(set(hashes)) == 3


# Roles

SCHEMA = pa.schema(
    {
        "_row": pa.int64(),
        "y": pa.float64(),
        "when": pa.timestamp("us"),
        "tail": pa.string(),
        "month": pa.int64(),
        "wet": pa.bool_(),
    }
)


def test_columns_get_their_roles() -> None:
    spec = declared(
        {"path": "x.csv"},
        features={"categorical": ["month"]},
        split={"test": 0.2, "validation": 0.1, "time_on": "when"},
    )
    roles = tables.roles(spec, SCHEMA)
    assert (roles.target, roles.numeric, roles.categorical) == ("y", ("wet",), ("tail", "month"))
    assert roles.features == ("wet", "tail", "month")


def test_the_splits_group_is_no_feature() -> None:
    spec = declared(
        {"path": "x.csv"},
        features={"include": ["month", "wet"]},
        split={"test": 0.2, "validation": 0.1, "group_on": "tail"},
    )
    assert tables.roles(spec, SCHEMA).features == ("month", "wet")


def test_all_missing_columns_are_told_at_once() -> None:
    spec = declared(
        {"path": "x.csv"},
        task={"kind": "regression", "target": "z", "metric": "rmse", "accept": {"at_most": 1}},
        features={"include": ["a"], "exclude": ["b"], "categorical": ["c"]},
        validation={"missing": {"columns": {"d": 0.5}}},
        split={"test": 0.2, "validation": 0.1, "group_on": "e", "stratify_on": "f"},
    )
    with pytest.raises(DataError, match="no column") as caught:
        tables.roles(spec, SCHEMA)
    lines = str(caught.value).splitlines()
    assert lines[0] == "task.target: no column 'z' in the data; its columns are y, when, tail, month, wet"
    assert [line.split(":")[0] for line in lines] == [
        "task.target",
        "features.include",
        "features.exclude",
        "features.categorical",
        "validation.missing.columns",
        "split.group_on",
        "split.stratify_on",
    ]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "features: 'when' is a timestamp\\[us\\] and no amount; add it to features.exclude"),
        ({"features": {"include": ["when"]}}, "'when' is a timestamp"),
        ({"features": {"exclude": ["when", "tail", "month", "wet"]}}, "features: none is left; at least 1"),
        (
            {"split": {"test": 0.2, "validation": 0.1, "time_on": "month"}},
            "split.time_on: 'month' must be a date or timestamp, however it is int64",
        ),
    ],
)
def test_a_column_that_does_not_fit_its_role_is_told(more: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        tables.roles(declared({"path": "x.csv"}, **more), SCHEMA)


def test_every_refusal_has_an_exit_code_for_input() -> None:
    assert issubclass(DataError, GristmillError)
    assert DataError("x").exit_code == 2


def test_a_name_that_is_nearly_a_columns_is_told_the_column() -> None:
    schema = pa.schema([("Churn", pa.string()), ("x", pa.int64())])
    task = {"kind": "multiclass", "target": "churn", "metric": "accuracy", "accept": {"at_least": 0}}
    spec = declared({"path": "x.csv"}, task=task)
    with pytest.raises(DataError, match=r"no column 'churn' in the data; did you mean 'Churn'\?"):
        tables.roles(spec, schema)


def test_a_sample_is_the_rows_asked_for_in_their_order(tmp_path: Path) -> None:
    rows = tables.GROUP_ROWS + 50
    work = work_on(tmp_path, {"a": list(range(rows)), "y": [0.5] * rows})
    ids = np.array([0, 7, tables.GROUP_ROWS - 1, tables.GROUP_ROWS, rows - 1])
    assert tables.read_sample(work.snapshot, ["a"], ids)["a"].to_pylist() == ids.tolist()
    empty = tables.read_sample(work.snapshot, ["y", "a"], ids[:0])
    assert (empty.column_names, len(empty)) == (["y", "a"], 0)


def test_a_draw_is_seeded_bounded_and_ascends() -> None:
    ids = np.arange(100, 200)
    drawn = tables.draw(ids, 10, 1)
    assert len(drawn) == len(set(drawn.tolist())) == 10
    assert (np.diff(drawn) > 0).all()
    assert set(drawn.tolist()) <= set(ids.tolist())
    assert drawn.tolist() == tables.draw(ids, 10, 1).tolist() != tables.draw(ids, 10, 2).tolist()
    assert tables.draw(ids, 100, 1).tolist() == ids.tolist()
