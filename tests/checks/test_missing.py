from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gristmill import tables
from gristmill.checks import missing
from gristmill.records import MAX_CASES
from gristmill.spec.validation import MissingByClassCheck, MissingCheck, MissingOverTimeCheck
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


def test_columns_that_miss_together_are_named() -> None:
    found = missing.check({"a": 0.1, "b": 0.1, "c": 0.2}, 10, MissingCheck(), [["a", "b"]])
    assert found.text == "3 features within their limits; 'c' misses most (20.0%); missing together: a, b"


def test_columns_belong_together_when_nearly_the_same_rows_miss_both(tmp_path: Path) -> None:
    def column(gone: set[int]) -> list[float | None]:
        return [None if row in gone else float(row) for row in range(60)]

    columns = {
        "a": column(set(range(20))),
        "b": column({*range(19), 40}),  # 19 of 21 rows in common: 90 %
        "c": column(set(range(20)) | {50}),  # 20 of 21: 95.2 %
        "d": column({30}),
        "e": column(set()),
    }
    table = tables.scan(work_on(tmp_path, columns | {"y": [0] * 60}).snapshot)
    assert missing.together(table, list("abcde")) == [["a", "c"]]
    assert missing.together(table, ["a"]) == []
    # More columns than a mask has bits.
    wide = {f"x{n:03}": column({1, 2}) for n in range(70)} | {"z": column({3})}
    (tmp_path / "wide").mkdir()
    table = tables.scan(work_on(tmp_path / "wide", wide | {"y": [0] * 60}).snapshot)
    assert missing.together(table, list(wide)) == [[f"x{n:03}" for n in range(70)]]


def test_a_value_that_one_class_lacks_is_named_with_both_shares(tmp_path: Path) -> None:
    columns = {
        "x": [None] * 20 + [1.0] * 20 + [None] * 4 + [1.0] * 36 + [None] * 5,
        "z": [1.0] * 84 + [None],
        "y": ["a"] * 40 + ["b"] * 40 + ["c"] * 5,
    }
    table = tables.scan(work_on(tmp_path, columns).snapshot)
    classes = missing.by_value(table, ["x", "z"], "y")
    assert [(part.label, part.rows, part.missing) for part in classes] == [
        ("a", 40, {"x": 20, "z": 0}),
        ("b", 40, {"x": 4, "z": 0}),
        ("c", 5, {"x": 5, "z": 1}),
    ]
    # Class c is too small to compare.
    found = missing.by_class(classes, ["x", "z"], MissingByClassCheck())
    assert (found.code, found.verdict, found.evaluated, found.value) == ("GM114", "warned", 80, 0.4)
    assert found.text == "1 of 2 features miss values by class: x 50.0% for a, 10.0% for b"
    case = {"column": "x", "most": "a", "share": 0.5, "least": "b", "least share": 0.1}
    assert found.cases == (case,)
    found = missing.by_class(classes, ["x", "z"], MissingByClassCheck(max_difference=0.4))
    assert (found.verdict, found.text) == ("passed", "missing shares differ by 40.0% at most by class (x)")


def test_nothing_missing_passes_and_too_few_rows_are_not_judged() -> None:
    limits = MissingByClassCheck(severity="fail")
    assert missing.by_class([], [], limits).verdict == "passed"
    few = [missing.Stretch("a", 29, {"x": 9}), missing.Stretch("b", 30, {})]
    found = missing.by_class(few, ["x"], limits)
    assert (found.verdict, found.evaluated) == ("not verified", 0)
    assert found.text == "not judged: 1 of 2 parts by class have 30 rows, 2 are needed"
    assert missing.by_class(few, ["x"], MissingByClassCheck()).verdict == "warned"


def test_a_feed_that_broke_shows_along_the_rows(tmp_path: Path) -> None:
    columns = {"x": [1.0] * 300 + [None] * 100, "y": [0] * 400}
    table = tables.scan(work_on(tmp_path, columns).snapshot)
    stretches = missing.by_place(table, ["x"], table["_row"], 0, 399, [0, 100, 200, 300])
    assert [(part.label, part.rows, part.missing["x"]) for part in stretches] == [
        (0, 100, 0), (100, 100, 0), (200, 100, 0), (300, 100, 100),
    ]  # fmt: skip
    found = missing.over_time(stretches, ["x"], "place in the source", MissingOverTimeCheck())
    assert (found.code, found.verdict) == ("GM115", "warned")
    assert found.text == "1 of 1 features miss values by place in the source: x 100.0% for 300, 0.0% for 0"
