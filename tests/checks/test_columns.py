import pytest

from gristmill.checks import columns
from gristmill.records import MAX_CASES
from gristmill.spec.validation import ConstantCheck


def test_a_constant_feature_is_named() -> None:
    found = columns.constant({"a": 1, "b": 2, "c": 0}, {}, ConstantCheck())
    assert (found.code, found.name, found.verdict, found.evaluated) == ("GM106", "constant", "warned", 3)
    assert found.text == "2 of 3 features hold one value only: a, c"
    assert found.cases == ({"column": "a"}, {"column": "c"})
    assert columns.constant({"a": 1}, {}, ConstantCheck(severity="fail")).verdict == "failed"


def test_features_that_vary_pass() -> None:
    found = columns.constant({"a": 2, "b": 9}, {"a": 0.5}, ConstantCheck(severity="fail"))
    assert (found.verdict, found.text) == ("passed", "0 of 2 features hold one value only")


def test_a_feature_of_nearly_one_value_is_named_with_its_share() -> None:
    distinct, top = {"a": 1, "b": 2, "c": 3}, {"a": 1.0, "b": 0.99995, "c": 0.9999}
    found = columns.constant(distinct, top, ConstantCheck())
    assert (found.verdict, found.value) == ("warned", 2)
    assert found.text == "1 of 3 features hold one value only: a; nearly so: b (99.995%)"
    assert found.cases == ({"column": "a"}, {"column": "b", "share": 0.99995})
    assert columns.constant({"c": 3}, {"c": 0.9}, ConstantCheck(max_share=0.8)).verdict == "warned"


def test_a14_infinite_values_are_counted_by_feature() -> None:
    found = columns.finite({"x": 2, "z": 0, "a": 1_000})
    assert (found.code, found.verdict, found.value) == ("GM107", "failed", 2)
    assert found.text == "inf in x in 2 rows, a in 1,000 rows"
    assert found.cases == ({"column": "x", "rows": 2}, {"column": "a", "rows": 1000})


def test_finite_features_pass() -> None:
    found = columns.finite({"x": 0, "z": 0})
    assert (found.verdict, found.evaluated, found.text) == ("passed", 2, "2 features hold finite numbers")


def test_features_that_can_hold_no_infinite_value_pass() -> None:
    assert columns.finite({}).text == "no feature can hold an infinite value"
    assert columns.finite({}).verdict == "passed"


def test_a_feature_that_is_known_only_afterwards_is_refused() -> None:
    found = columns.known(["late", "carrier", "air_time"], {"late", "air_time", "arrived"})
    assert (found.code, found.name, found.verdict) == ("GM108", "known in time", "failed")
    assert found.text == "air_time, late: known only after the prediction is needed"
    assert found.way_out == "add them to features.exclude"


@pytest.mark.parametrize("after", [set(), {"arrived"}])
def test_features_known_in_time_pass(after: set[str]) -> None:
    found = columns.known(["carrier"], after)
    assert found.verdict == "passed"
    assert found.text == f"none of 1 features is among the {len(after)} columns known only afterwards"


def test_cases_are_bounded() -> None:
    names = [f"c{n:02}" for n in range(40)]
    for found in (
        columns.constant(dict.fromkeys(names, 1), {}, ConstantCheck()),
        columns.finite(dict.fromkeys(names, 1)),
        columns.known(names, names),
    ):
        assert (len(found.cases), found.value) == (MAX_CASES, 40)
        assert found.cases[0]["column"] == "c00"


def test_a_column_of_numbers_that_one_cell_turns_into_text_is_told() -> None:
    found = columns.numbers_as_text(
        {"charges": (7043, 7032, " "), "plan": (7043, 0, "a"), "code": (10, 10, "None")}
    )
    assert (found.code, found.verdict, found.evaluated) == ("GM109", "warned", 3)
    assert found.text == "'charges' is text, though 7,032 of 7,043 values are numbers; one that is none: ' '"
    assert "source.na_values" in found.way_out
    assert columns.numbers_as_text({"plan": (10, 5, "V45")}).verdict == "passed"
    assert columns.numbers_as_text({}).verdict == "passed"


def test_a_category_of_its_own_for_each_row_is_told() -> None:
    found = columns.identifier(["id", "plan"], {"id": 990, "plan": 3}, {"id": 1000, "plan": 1000})
    assert (found.code, found.verdict, found.text) == ("GM110", "warned", "id: nearly as many values as rows")
    assert columns.identifier(["id"], {"id": 50}, {"id": 50}).verdict == "passed"
