from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from gristmill import tables
from gristmill.checks import balance
from gristmill.records import MAX_CASES, Check
from gristmill.spec import Task
from gristmill.spec.validation import BalanceCheck, EffectiveRowsCheck, TargetShapeCheck
from tests.conftest import work_on

NAN = float("nan")


def judged(root: Path, values: Any, kind: str = "multiclass", **limits: Any) -> Check:
    work = work_on(root, {"x": [0] * len(values), "y": values})
    by_kind = {
        "multiclass": {"metric": "accuracy", "accept": {"at_least": 0.5}},
        "regression": {"metric": "rmse", "accept": {"at_most": 1}},
    }
    task: Task = TypeAdapter(Task).validate_python({"kind": kind, "target": "y"} | by_kind[kind])
    return balance.check(tables.scan(work.snapshot), task, BalanceCheck(**limits), (0.5, 0.34))


def test_the_rarest_class_is_told(tmp_path: Path) -> None:
    found = judged(tmp_path, ["a"] * 18 + ["b"] * 9 + ["c"] * 3, min_share=0.1)
    assert (found.code, found.verdict, found.evaluated) == ("GM105", "passed", 30)
    assert found.text == "3 classes, the rarest 'c' with 10.0% of 30 rows"
    assert (found.value, found.limit) == (0.1, 0.1)


def test_classes_that_are_too_rare_are_named_the_rarest_first(tmp_path: Path) -> None:
    found = judged(tmp_path, [1] * 21 + [2] * 6 + [3] * 3, min_share=0.25)
    assert found.verdict == "failed"
    assert found.cases == ({"class": "3", "share": 0.1, "rows": 3}, {"class": "2", "share": 0.2, "rows": 6})
    assert judged(tmp_path, [1] * 27 + [2] * 3, min_share=0.25, severity="warn").verdict == "warned"


@pytest.mark.parametrize("severity", ["warn", "fail"])
def test_a20_one_class_only_fails(tmp_path: Path, severity: str) -> None:
    found = judged(tmp_path, ["1", "1", None], min_share=0.0, severity=severity)
    assert (found.verdict, found.text, found.evaluated) == ("failed", "only class '1' present", 2)


def test_rows_without_a_target_are_no_class_and_count_for_no_share(tmp_path: Path) -> None:
    found = judged(tmp_path, [1.0, 2.0] * 3 + [NAN, None, NAN, None], min_share=0.5)
    assert found.text == "2 classes, the rarest '1.0' with 50.0% of 6 rows"
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
    assert (len(found.cases), found.cases[0]) == (MAX_CASES, {"class": "c00", "share": 0.016667, "rows": 1})


def test_a_class_that_the_split_cannot_spread_fails_and_one_it_may_miss_warns(tmp_path: Path) -> None:
    found = judged(tmp_path, ["a"] * 30 + ["b"] * 2, min_share=0, severity="warn")
    assert found.verdict == "failed"
    assert found.text == "2 classes, the rarest 'b' with 6.2% of 32 rows; 2 rows cannot stand in 3 parts"
    work = work_on(tmp_path, {"x": [0] * 100, "y": ["a"] * 95 + ["b"] * 5})
    task: Task = TypeAdapter(Task).validate_python(
        {"kind": "multiclass", "target": "y", "metric": "accuracy", "accept": {"at_least": 0.5}}
    )
    found = balance.check(tables.scan(work.snapshot), task, BalanceCheck(), (0.2, 0.1))
    assert found.verdict == "warned"
    assert found.text.endswith("; 5 rows are fewer than the 10 of which a part of 0.1 expects one")
    assert found.cases == ({"class": "b", "share": 0.05, "rows": 5},)


def shaped(root: Path, values: Any, **limits: Any) -> Check:
    work = work_on(root, {"x": [0] * len(values), "y": values})
    return balance.target_shape(tables.scan(work.snapshot), "y", TargetShapeCheck(**limits))


def test_a_mass_at_one_value_warns(tmp_path: Path) -> None:
    found = shaped(tmp_path, [0.0, -0.0, 0.0, 1.0, 2.0, None])
    assert (found.code, found.verdict, found.value, found.limit) == ("GM116", "warned", 0.6, 0.5)
    assert found.text.startswith("60.0% of 5 rows are 0; 0.00% lie more than 3 interquartile ranges outside")
    assert shaped(tmp_path, [0] * 9 + [1]).text == (
        "90.0% of 10 rows are 0; the quartiles are both 0, which leaves no range to measure outliers by"
    )


def test_outliers_are_counted_by_tukeys_far_fences_and_the_farthest_shown(tmp_path: Path) -> None:
    # Quartiles 2 and 6: the fences are -10 and 18, which belong to the usual.
    values = [0, 1, 2, 3, 4, 5, 6, 18, 19]
    found = shaped(tmp_path, values, max_outlier_share=0.1)
    assert (found.verdict, found.value, found.limit) == ("warned", 0.111111, 0.1)
    assert found.text == (
        "11.1% of 9 rows are 0; 11.11% lie more than 3 interquartile ranges outside the quartiles, "
        "which are 2 and 6 (tails of 0.5 and 3.2 ranges)"
    )
    assert found.cases == ({"row": 8, "y": 19.0},)
    assert shaped(tmp_path, values, max_outlier_share=0.2).verdict == "passed"
    assert shaped(tmp_path, values, max_outlier_share=0.1, severity="fail").verdict == "failed"


def test_a_target_without_a_number_has_no_shape(tmp_path: Path) -> None:
    assert shaped(tmp_path, pa.array([None, NAN], pa.float64())).verdict == "not verified"


def worth(root: Path, groups: list[Any], values: list[Any], kind: str, **limits: Any) -> Check:
    by_kind = {
        "multiclass": {"metric": "accuracy", "accept": {"at_least": 0.5}},
        "regression": {"metric": "rmse", "accept": {"at_most": 1}},
    }
    work = work_on(root, {"g": groups, "x": [0] * len(values), "y": values})
    task: Task = TypeAdapter(Task).validate_python({"kind": kind, "target": "y"} | by_kind[kind])
    return balance.effective_rows(tables.scan(work.snapshot), task, "g", EffectiveRowsCheck(**limits))


@pytest.mark.parametrize(
    ("kind", "values"), [("regression", [1.5, 2.5, 9.5]), ("multiclass", ["a", "b", "c"])]
)
def test_rows_that_repeat_their_group_are_worth_one_row_a_group(
    tmp_path: Path, kind: str, values: list[Any]
) -> None:
    found = worth(tmp_path, [1, 2, 3] * 5, values * 5, kind)
    assert (found.code, found.verdict, found.value, found.limit) == ("GM117", "passed", 3.0, None)
    assert found.text == (
        "15 rows in 3 groups of g are worth 3 independent ones (intraclass correlation 1.00)"
    )
    assert worth(tmp_path, [1, 2, 3] * 5, values * 5, kind, min_rows=4).verdict == "warned"


@pytest.mark.parametrize(
    ("kind", "values"), [("regression", [1.0, 2.0, 3.0]), ("multiclass", ["a", "b", "c"])]
)
def test_groups_that_say_nothing_of_the_target_take_nothing_away(
    tmp_path: Path, kind: str, values: list[Any]
) -> None:
    found = worth(tmp_path, ["p"] * 3 + ["q"] * 3, values * 2, kind)
    assert found.value == 6.0
    assert worth(tmp_path, list(range(3)), values, kind, min_rows=3).value == 3.0


def test_the_intraclass_correlation_is_that_of_the_analysis_of_variance(tmp_path: Path) -> None:
    # Shrout and Fleiss 1979, table 2: four judges' ratings of six targets, ICC(1, 1) = 0.17.
    ratings = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    groups = [target for target in range(6) for _ in range(4)]
    found = worth(tmp_path, groups, [float(r) for row in ratings for r in row], "regression")
    assert found.text.endswith("(intraclass correlation 0.17)")
    assert found.value == pytest.approx(24 / (1 + 3 * 0.165742), rel=1e-5)


def test_one_group_says_nothing(tmp_path: Path) -> None:
    found = worth(tmp_path, [1, 1], [1.0, 2.0], "regression")
    assert found.verdict == "warned"
    assert found.text == "not judged: 2 rows in 1 groups of g, 2 groups are needed"
    assert worth(tmp_path, [1, 1], [1.0, 2.0], "regression", severity="fail").verdict == "not verified"
