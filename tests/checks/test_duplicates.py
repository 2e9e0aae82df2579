from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gristmill import tables
from gristmill.checks import duplicates
from gristmill.records import MAX_CASES, Check
from gristmill.spec.validation import ConflictsCheck, DuplicatesCheck
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


# The declared key


def keyed(root: Path, columns: dict[str, Any], key: list[str]) -> Check:
    length = len(next(iter(columns.values())))
    work = work_on(root, columns | {"y": [0] * length})
    return duplicates.key(tables.row_hashes(work.snapshot, key), key)


def test_rows_with_the_key_of_an_earlier_one_are_counted_and_named(tmp_path: Path) -> None:
    found = keyed(tmp_path, {"id": [1, 2, 1, 1], "month": [1, 1, 2, 1], "x": [1, 2, 3, 4]}, ["id", "month"])
    assert (found.code, found.verdict, found.evaluated, found.value, found.limit) == (
        "GM111",
        "failed",
        4,
        1,
        0,
    )
    assert found.text == "1 of 4 rows have the key (id, month) of an earlier one"
    assert found.cases == ({"row": 3, "same key as row": 0},)


def test_a_key_that_stands_once_passes(tmp_path: Path) -> None:
    found = keyed(tmp_path, {"id": [1, 2, 1], "month": [1, 1, 2]}, ["id", "month"])
    assert (found.verdict, found.value, found.cases) == ("passed", 0, ())


def test_k03_large_ids_are_keys_of_their_own(tmp_path: Path) -> None:
    ids = pa.array([9007199254740993, None, 9007199254740992], pa.int64())
    assert keyed(tmp_path, {"id": ids}, ["id"]).verdict == "passed"


def test_two_missing_keys_are_the_same_key(tmp_path: Path) -> None:
    assert keyed(tmp_path, {"id": [NAN, 1.0, None]}, ["id"]).cases == ({"row": 2, "same key as row": 0},)


def test_a_key_of_no_row_is_not_verified() -> None:
    assert duplicates.key(np.array([], np.uint64), ["id"]).verdict == "not verified"


# Conflicting labels


def conflicting(root: Path, x: list[Any], y: list[Any], **limits: Any) -> Check:
    snapshot = work_on(root, {"x": x, "y": y}).snapshot
    present = np.array([value is not None for value in y])
    hashes = (tables.row_hashes(snapshot, ["x"]), tables.row_hashes(snapshot, ["y"]))
    return duplicates.conflicts(*hashes, present, ConflictsCheck(**limits))


def test_rows_of_equal_features_and_other_classes_are_all_counted(tmp_path: Path) -> None:
    found = conflicting(tmp_path, [5, 1, 1, 1, 2, 2, 5], ["a", "a", "b", "b", "a", "a", "b"])
    assert (found.code, found.verdict, found.evaluated) == ("GM112", "warned", 7)
    assert (found.value, found.limit) == (5 / 7, 0.05)
    text = "5 of 7 rows equal another in every feature and have another class (71.43%)"
    assert found.text == text
    assert found.cases == ({"row": 0, "equals row": 6}, {"row": 1, "equals row": 2})


def test_repeats_with_the_same_class_are_no_conflict(tmp_path: Path) -> None:
    found = conflicting(tmp_path, [1, 1, 2], ["a", "a", "b"], severity="fail")
    assert (found.verdict, found.value, found.cases) == ("passed", 0.0, ())


def test_a_row_without_a_target_is_in_no_conflict(tmp_path: Path) -> None:
    found = conflicting(tmp_path, [1, 1, 1], ["a", None, "a"], max_share=0.0, severity="fail")
    assert (found.verdict, found.evaluated) == ("passed", 2)
    assert conflicting(tmp_path, [1], [None]).verdict == "not verified"


@pytest.mark.parametrize(("max_share", "verdict"), [(0.49, "failed"), (0.5, "passed")])
def test_the_limit_is_the_share_of_rows_in_conflict(tmp_path: Path, max_share: float, verdict: str) -> None:
    found = conflicting(tmp_path, [1, 1, 2, 3], list("abab"), max_share=max_share, severity="fail")
    assert (found.value, found.verdict) == (0.5, verdict)


def test_cases_of_conflicts_are_bounded(tmp_path: Path) -> None:
    found = conflicting(tmp_path, [*range(50), *range(50)], ["a"] * 50 + ["b"] * 50)
    assert found.value == 1.0
    assert found.cases == tuple({"row": row, "equals row": row + 50} for row in range(MAX_CASES))
