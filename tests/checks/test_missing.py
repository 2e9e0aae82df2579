from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gristmill import tables
from gristmill.checks import missing
from gristmill.records import MAX_CASES
from gristmill.spec.validation import MissingCheck
from tests.conftest import work_on

NAN = float("nan")


def test_each_feature_is_held_to_its_own_limit() -> None:
    limits = MissingCheck(max_share=0.3, columns={"b": 0.6, "c": 0.1})
    found = missing.check({"a": 0.3, "b": 0.6, "c": 0.1}, 10, limits)
    assert (found.code, found.verdict, found.evaluated) == ("GM104", "passed", 3)
    assert found.text == "3 features within their limits; 'b' misses most (60.0%)"

    found = missing.check({"a": 0.31, "b": 0.6, "c": 0.11}, 100, limits)
    assert found.verdict == "failed"
    assert found.text == "2 of 3 features miss too many values: a, c"
    assert found.cases == (
        {"column": "a", "share": 0.31, "limit": 0.3},
        {"column": "c", "share": 0.11, "limit": 0.1},
    )


def test_its_severity_is_declared() -> None:
    assert missing.check({"a": 0.5}, 10, MissingCheck(severity="warn")).verdict == "warned"


@pytest.mark.parametrize("limits", [{}, {"max_share": 1.0}, {"severity": "warn"}, {"columns": {"a": 1.0}}])
def test_a23_k09_a_feature_without_any_value_always_fails(limits: dict[str, Any]) -> None:
    found = missing.check({"a": 1.0, "b": 0.0}, 10, MissingCheck(**limits))
    assert (found.verdict, found.text) == ("failed", "'a' has no values")


def test_the_empty_feature_is_told_beside_the_others() -> None:
    found = missing.check({"a": 0.9, "b": 1.0, "c": 0.0}, 10, MissingCheck())
    assert found.text == "'b' has no values and 1 more miss too many"
    assert [case["column"] for case in found.cases] == ["b", "a"]


def test_cases_are_bounded() -> None:
    found = missing.check({f"c{n}": 0.5 for n in range(50)}, 10, MissingCheck())
    assert len(found.cases) == MAX_CASES
    assert found.text == "50 of 50 features miss too many values: c0, c1, c2, c3, c4"


def test_no_row_is_not_verified() -> None:
    assert missing.check({"a": 0.0}, 0, MissingCheck()).verdict == "not verified"


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("values", [[1.0, NAN, None], [NAN, 1.0], [5.0, 1.0], [NAN, NAN], [1.0, None]])
def test_null_and_nan_are_missing_in_a_filter_and_in_a_sum(
    tmp_path: Path, values: list[Any], kind: pa.DataType
) -> None:
    table = tables.scan(work_on(tmp_path, {"x": pa.array(values, kind), "y": [0] * len(values)}).snapshot)
    gone = missing.is_missing(table.x)
    wanted = [row for row, value in enumerate(values) if value is None or value != value]
    assert table.filter(gone)["_row"].execute().tolist() == wanted
    assert table.filter(~gone).count().execute() == len(values) - len(wanted)
    assert table.aggregate(n=gone.sum()).execute()["n"][0] == len(wanted)
