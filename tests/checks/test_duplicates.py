from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gristmill import tables
from gristmill.checks import duplicates
from gristmill.records import MAX_CASES, Check
from gristmill.spec import DuplicatesCheck
from tests.conftest import work_on

NAN = float("nan")


def judged(root: Path, columns: dict[str, Any], **limits: Any) -> Check:
    length = len(next(iter(columns.values())))
    work = work_on(root, columns | {"y": [0] * length})
    return duplicates.check(tables.row_hashes(work.snapshot, [*columns, "y"]), DuplicatesCheck(**limits))


def test_a_row_that_repeats_an_earlier_one_is_counted_and_named(tmp_path: Path) -> None:
    found = judged(tmp_path, {"a": [1, 2, 1, 1, 2, 3], "b": list("xyxxzz")})
    assert (found.code, found.verdict, found.evaluated) == ("GM103", "failed", 6)
    assert found.text == "2 of 6 rows repeat an earlier one (33.33%)"
    assert (found.value, found.limit) == (2 / 6, 0.0)
    assert found.cases == ({"row": 2, "equals row": 0}, {"row": 3, "equals row": 0})


@pytest.mark.parametrize(
    "values",
    [[NAN, None, NAN], [0.0, -0.0, 0.0], pa.array([NAN, None, NAN], pa.float32()), [None, None, None]],
)
def test_nan_equals_nan_and_minus_zero_equals_zero(tmp_path: Path, values: Any) -> None:
    found = judged(tmp_path, {"a": values, "b": ["x", "x", "x"]})
    assert found.text == "2 of 3 rows repeat an earlier one (66.67%)"


@pytest.mark.parametrize(
    "columns",
    [
        {"a": [9007199254740993, None, 9007199254740992]},
        {"a": ["", None, "NA"]},
        {"a": ["x", "xx", "x"], "b": ["xx", "x", "x"]},
        {"a": [0, 1, 2], "b": [0, 0, 0]},
        {"a": [None, "x", None], "b": ["x", None, None]},
    ],
)
def test_rows_that_differ_in_one_value_are_no_repeats(tmp_path: Path, columns: dict[str, Any]) -> None:
    assert judged(tmp_path, columns).text == "0 of 3 rows repeat an earlier one (0.00%)"


def test_the_limit_is_a_share_and_its_severity_is_declared(tmp_path: Path) -> None:
    columns = {"a": [1, 1, 2, 3]}
    assert judged(tmp_path, columns, max_share=0.25).verdict == "passed"
    assert judged(tmp_path, columns, max_share=0.24).verdict == "failed"
    assert judged(tmp_path, columns, max_share=0.24, severity="warn").verdict == "warned"


def test_few_of_many_repeats_are_named() -> None:
    found = duplicates.check(np.zeros(100, dtype=np.uint64), DuplicatesCheck())
    assert (len(found.cases), found.cases[0]) == (MAX_CASES, {"row": 1, "equals row": 0})


def test_no_row_is_not_verified() -> None:
    assert duplicates.check(np.zeros(0, dtype=np.uint64), DuplicatesCheck()).verdict == "not verified"
