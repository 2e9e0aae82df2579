from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from gristmill import tables
from gristmill.checks import balance
from gristmill.records import MAX_CASES, Check
from gristmill.spec import Task
from gristmill.spec.validation import BalanceCheck
from tests.conftest import work_on

NAN = float("nan")


def judged(root: Path, values: Any, kind: str = "multiclass", **limits: Any) -> Check:
    work = work_on(root, {"x": [0] * len(values), "y": values})
    by_kind = {
        "multiclass": {"metric": "accuracy", "accept": {"at_least": 0.5}},
        "regression": {"metric": "rmse", "accept": {"at_most": 1}},
    }
    task: Task = TypeAdapter(Task).validate_python({"kind": kind, "target": "y"} | by_kind[kind])
    return balance.check(tables.scan(work.snapshot), task, BalanceCheck(**limits))


def test_the_rarest_class_is_told(tmp_path: Path) -> None:
    found = judged(tmp_path, ["a"] * 6 + ["b"] * 3 + ["c"], min_share=0.1)
    assert (found.code, found.verdict, found.evaluated) == ("GM105", "passed", 10)
    assert found.text == "3 classes, the rarest 'c' with 10.0% of 10 rows"
    assert (found.value, found.limit) == (0.1, 0.1)


def test_classes_that_are_too_rare_are_named_the_rarest_first(tmp_path: Path) -> None:
    found = judged(tmp_path, [1] * 7 + [2] * 2 + [3], min_share=0.25)
    assert found.verdict == "failed"
    assert found.cases == ({"class": "3", "share": 0.1}, {"class": "2", "share": 0.2})
    assert judged(tmp_path, [1] * 9 + [2], min_share=0.25, severity="warn").verdict == "warned"


@pytest.mark.parametrize("severity", ["warn", "fail"])
def test_a20_one_class_only_fails(tmp_path: Path, severity: str) -> None:
    found = judged(tmp_path, ["1", "1", None], min_share=0.0, severity=severity)
    assert (found.verdict, found.text, found.evaluated) == ("failed", "only class '1' present", 2)


def test_rows_without_a_target_are_no_class_and_count_for_no_share(tmp_path: Path) -> None:
    found = judged(tmp_path, [1.0, 2.0, NAN, None, NAN, None], min_share=0.5)
    assert found.text == "2 classes, the rarest '1.0' with 50.0% of 2 rows"
    assert found.verdict == "passed"


@pytest.mark.parametrize("kind", ["multiclass", "regression"])
def test_no_target_at_all_is_not_verified(tmp_path: Path, kind: str) -> None:
    found = judged(tmp_path, pa.array([None, NAN], pa.float64()), kind)
    assert (found.verdict, found.evaluated, found.text) == ("not verified", 0, "no row has a target")


def test_a_regression_target_takes_more_than_one_value(tmp_path: Path) -> None:
    assert judged(tmp_path, [1.0, 2.0], "regression").text == "'y' takes 2 values in 2 rows"
    found = judged(tmp_path, [1.0, 1.0, NAN], "regression")
    assert (found.verdict, found.text) == ("failed", "'y' takes 1 values in 2 rows")


def test_cases_are_bounded(tmp_path: Path) -> None:
    found = judged(tmp_path, [f"c{n:02}" for n in range(60)], min_share=0.1)
    assert (len(found.cases), found.cases[0]) == (MAX_CASES, {"class": "c00", "share": 0.016667})
