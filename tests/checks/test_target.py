import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from gristmill import tables
from gristmill.checks import target
from gristmill.records import MAX_CASES, Check
from gristmill.spec import Task
from tests.conftest import work_on

NAN, INF = float("nan"), float("inf")
REGRESSION = {"kind": "regression", "metric": "rmse", "accept": {"at_most": 1}}
BINARY = {"kind": "binary", "metric": "f1", "accept": {"at_least": 0.5}}
MULTICLASS = {"kind": "multiclass", "metric": "accuracy", "accept": {"at_least": 0.5}}


def judged(root: Path, values: Any, task: dict[str, Any], **more: Any) -> Check:
    work = work_on(root, {"x": [0] * len(values), "y": values})
    declared: Task = TypeAdapter(Task).validate_python({"target": "y"} | task | more)
    return target.check(tables.scan(work.snapshot), declared)


@pytest.mark.parametrize("missing", [None, NAN])
def test_k11_a15_a_missing_target_is_refused_with_its_first_row(tmp_path: Path, missing: Any) -> None:
    values = [float(n) for n in range(20)]
    values[17], values[19] = missing, missing
    found = judged(tmp_path, pa.array(values, pa.float64()), REGRESSION)
    assert (found.code, found.verdict, found.value) == ("GM102", "failed", 2)
    assert found.text == "target 'y' is missing in 2 rows (first: 17)"
    assert found.cases == ({"row": 17}, {"row": 19})
    assert "task.target_missing: drop" in found.way_out


def test_k11_declared_to_be_dropped_it_passes_and_is_counted(tmp_path: Path) -> None:
    found = judged(tmp_path, [1.0, NAN, None, 2.0], REGRESSION, target_missing="drop")
    assert (found.verdict, found.value, found.evaluated) == ("passed", 2, 4)
    assert found.text == "2 rows have a finite number; 2 rows without a target are left out"
    found = judged(tmp_path, ["a", None, "b"], BINARY, positive="a", target_missing="drop")
    assert found.text == "2 rows have one of 2 classes; 1 rows without a target are left out"


def test_k11_an_infinite_target_is_refused_also_where_missing_ones_are_dropped(tmp_path: Path) -> None:
    found = judged(tmp_path, [1.0, INF, None, -INF], REGRESSION, target_missing="drop")
    assert (found.verdict, found.value) == ("failed", 2)
    assert found.text == "target 'y' is infinite in 2 rows"


def test_a_few_of_many_rows_are_named(tmp_path: Path) -> None:
    found = judged(tmp_path, [1.0] + [None] * 100, REGRESSION)
    assert found.cases == tuple({"row": row} for row in range(1, MAX_CASES + 1))


@pytest.mark.parametrize("task", [REGRESSION, MULTICLASS])
def test_a_target_without_any_value_is_not_verified(tmp_path: Path, task: dict[str, Any]) -> None:
    found = judged(tmp_path, pa.array([None, NAN], pa.float64()), task, target_missing="drop")
    assert (found.verdict, found.evaluated, found.text) == ("not verified", 0, "target 'y' has no value")


@pytest.mark.parametrize(
    ("values", "positive"),
    [
        ([True, False, True], True),
        ([0, 1, 1], 1),
        ([0.0, 1.0, 1.0], 1),
        (["no", "yes", "no"], "yes"),
    ],
)
def test_a_binary_target_has_two_classes_and_the_positive_one(
    tmp_path: Path, values: Any, positive: Any
) -> None:
    found = judged(tmp_path, values, BINARY, positive=positive)
    assert (found.verdict, found.text) == ("passed", "3 rows have one of 2 classes")


@pytest.mark.parametrize(
    ("values", "positive", "shown"),
    [
        (["a", "b", "c"], "a", "'a' among them; 'y' has 3: a, b, c"),
        (["a", "a", "a"], "a", "'a' among them; 'y' has 1: a"),
        (["no", "yes"], "late", "'late' among them; 'y' has 2: no, yes"),
        ([0, 1], True, "True among them; 'y' has 2: 0, 1"),
        ([0, 1], "1", "'1' among them; 'y' has 2: 0, 1"),
        (["0", "1"], 1, "1 among them; 'y' has 2: 0, 1"),
    ],
)
def test_k32_any_other_binary_target_is_refused_with_its_classes(
    tmp_path: Path, values: Any, positive: Any, shown: str
) -> None:
    found = judged(tmp_path, values, BINARY, positive=positive)
    assert (found.verdict, found.text) == ("failed", f"a binary target has 2 classes, {shown}")
    assert found.way_out == "set task.positive and task.kind to what the data holds"


def test_of_many_classes_five_are_shown(tmp_path: Path) -> None:
    found = judged(tmp_path, [f"c{n}" for n in range(30)], BINARY, positive="c1")
    assert found.text.endswith("'y' has 30: c0, c1, c10, c11, c12")


def test_k13_a_task_is_what_is_declared(tmp_path: Path) -> None:
    assert judged(tmp_path, [1.0, 2.0, 5.0], REGRESSION).verdict == "passed"
    assert judged(tmp_path, [0, 1, 1], REGRESSION).text == "3 rows have a finite number"
    assert judged(tmp_path, [1.0, 2.0, 5.0], MULTICLASS).text == "3 rows have one of 3 classes"


@pytest.mark.parametrize(("values", "kind"), [(["1", "2"], "string"), ([True, False], "boolean")])
def test_a_regression_target_is_a_number(tmp_path: Path, values: Any, kind: str) -> None:
    found = judged(tmp_path, values, REGRESSION)
    assert (found.verdict, found.text) == ("failed", f"a regression target is a number; 'y' is {kind}")


def test_unused_categories_of_the_source_are_no_classes(tmp_path: Path) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", "b", "never"]))
    assert judged(tmp_path, values, BINARY, positive="a").text == "3 rows have one of 2 classes"


def test_a_class_that_no_file_could_name_is_refused(tmp_path: Path) -> None:
    values = [decimal.Decimal("1.5"), decimal.Decimal("2.5")]
    found = judged(tmp_path, values, MULTICLASS)
    assert found.verdict == "failed"
    assert found.text.startswith("a class is text, a whole number or a truth value; 'y' is decimal")
