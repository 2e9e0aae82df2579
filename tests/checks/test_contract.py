import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gristmill import tables
from gristmill.checks import contract
from gristmill.errors import InputError
from gristmill.records import MAX_CASES, Check
from gristmill.spec import InlineContract, SuiteContract
from tests.conftest import work_on

NAN = float("nan")


@pytest.fixture(autouse=True)
def own_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that a test writes are forgotten after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "rules", raising=False)


def inline(root: Path, values: Any, **column: Any) -> Check:
    """The judgement of an inline contract on one column, x."""
    return contract.check(scanned(root, x=values), InlineContract(columns={"x": column}), root)


def scanned(root: Path, **columns: Any) -> Any:
    length = len(next(iter(columns.values())))
    more = {"y": [0.0] * length, "z": [0] * length}
    return tables.scan(work_on(root, more | columns, features={"include": ["z"]}).snapshot)


def coded(root: Path, code: str, **columns: Any) -> Check:
    """The judgement of the contract `Rules` of a module of the user's."""
    (root / "rules.py").write_text(code)
    return contract.check(scanned(root, **columns), "rules:Rules", root)


def suite(root: Path, *rules: tuple[str, dict[str, Any]], **columns: Any) -> Check:
    """The judgement of a Great Expectations suite."""
    body = {"name": "s", "expectations": [{"type": kind, "kwargs": kwargs} for kind, kwargs in rules]}
    (root / "suite.json").write_text(json.dumps(body))
    return contract.check(scanned(root, **columns), SuiteContract(suite="suite.json"), root)


# Inline columns


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([1, 2], {"type": "integer", "min": 1, "max": 2, "unique": True, "allowed": [1, 2, 3]}),
        (pa.array([1, 2], pa.int16()), {"type": "integer"}),
        ([1, 2], {"type": "number"}),
        (pa.array([0.5, 1], pa.float32()), {"type": "number", "min": 0.5}),
        ([1.0, NAN, None], {"type": "number", "nullable": True, "max": 1}),
        ([1, None, None, 2], {"type": "integer", "nullable": True, "unique": True}),
        (["aa", "ab", None], {"type": "string", "nullable": True, "pattern": "a|b", "allowed": ["aa", "ab"]}),
        ([True, False], {"type": "boolean", "allowed": [True, False]}),
        (pa.array([0, 1], pa.date32()), {"type": "date"}),
        (pa.array([0, 1], pa.timestamp("us")), {"type": "timestamp"}),
        (pa.array([0, 1], pa.timestamp("us", tz="Europe/Paris")), {"type": "timestamp"}),
    ],
)
def test_a_table_that_is_what_its_contract_says_passes(tmp_path: Path, values: Any, column: Any) -> None:
    found = inline(tmp_path, values, **column)
    assert (found.code, found.verdict, found.value, found.cases) == ("GM101", "passed", 0, ())
    assert found.evaluated == len(values)


@pytest.mark.parametrize(
    ("values", "column", "rule", "what"),
    [
        ([1, 5, 9], {"type": "integer", "min": 4}, "min 4", "1 rows: 1 in row 0"),
        ([1, 5, 9], {"type": "integer", "max": 4.5}, "max 4.5", "2 rows: 5 in row 1, 9 in row 2"),
        (["a", "b"], {"type": "string", "allowed": ["a"]}, "allowed ['a']", "1 rows: b in row 1"),
        (["ba", "ab"], {"type": "string", "pattern": "a"}, "pattern a", "1 rows: ba in row 0"),
        ([7, 8, 7, 7], {"type": "integer", "unique": True}, "unique", "2 rows: 7 in row 2, 7 in row 3"),
        ([1.0, NAN], {"type": "number"}, "not nullable", "1 rows: nan in row 1"),
        (["1", "2"], {"type": "integer"}, "type integer", "string"),
        ([True, False], {"type": "number"}, "type number", "boolean"),
        ([1.5, 2.0], {"type": "integer"}, "type integer", "float64"),
    ],
)
def test_a_broken_rule_is_named_with_its_column_and_rows(
    tmp_path: Path, values: Any, column: Any, rule: str, what: str
) -> None:
    found = inline(tmp_path, values, **column)
    assert (found.verdict, found.value, found.limit) == ("failed", 1, 0)
    [case] = found.cases
    assert (case["column"], case["rule"], case["found"]) == ("x", rule, what)
    assert f"rules broken: x: {rule}" in found.text
    assert found.way_out == "mend the data upstream, or change the contract if the data is right"


def test_a_column_that_is_not_there_is_a_broken_rule(tmp_path: Path) -> None:
    declared = InlineContract(
        columns={"gone": {"type": "integer", "min": 1}, "x": {"type": "integer", "max": 1}}
    )
    found = contract.check(scanned(tmp_path, x=[1, 2]), declared, tmp_path)
    assert found.verdict == "failed"
    assert found.text == "2 of 6 rules broken: gone: present; x: max 1"


def test_k04_missing_truth_values_are_refused_with_their_rows_or_stay_missing(tmp_path: Path) -> None:
    values = [None, None, False]
    found = inline(tmp_path, values, type="boolean")
    assert found.verdict == "failed"
    assert found.cases[0]["found"] == "2 rows: None in row 0, None in row 1"
    # With a missing value read as True, `allowed: [false]` would fail.
    assert inline(tmp_path, values, type="boolean", nullable=True, allowed=[False]).verdict == "passed"


def test_k09_rules_on_a_column_without_any_value_are_not_verified(tmp_path: Path) -> None:
    values = pa.array([None, None], pa.float64())
    found = inline(tmp_path, values, type="number", nullable=True, min=0, max=1)
    assert (found.verdict, found.evaluated) == ("not verified", 0)
    assert found.text == "rules on 1 of the columns looked at no value, for there is none: x"
    assert inline(tmp_path, [NAN, NAN], type="number", nullable=True, max=1).verdict == "not verified"
    # Whether a value may be missing can be told of missing values.
    assert inline(tmp_path, values, type="number", nullable=True).verdict == "passed"
    assert inline(tmp_path, ["x", None], type="string", nullable=True, allowed=["x"]).verdict == "passed"


def test_k09_a_table_without_rows_is_not_verified(tmp_path: Path) -> None:
    empty = scanned(tmp_path, x=[1]).limit(0)
    (tmp_path / "rules.py").write_text(PANDAS)
    (tmp_path / "suite.json").write_text(json.dumps({"expectations": [{"type": "t", "kwargs": {}}]}))
    for declared in (
        InlineContract(columns={"x": {"type": "integer"}}),
        "rules:Rules",
        SuiteContract(suite="suite.json"),
    ):
        found = contract.check(empty, declared, tmp_path)
        assert (found.verdict, found.evaluated) == ("not verified", 0)
        assert "on 0 rows: nothing to verify" in found.text


@pytest.mark.parametrize(
    ("values", "column", "rule", "words"),
    [
        (["a"], {"type": "string", "pattern": "("}, "pattern (", "missing )"),
        (["a"], {"type": "string", "min": 3}, "min 3", "not comparable"),
        ([3], {"type": "integer", "pattern": "3"}, "pattern 3", "re_search"),
    ],
)
def test_k10_a_rule_that_raises_is_a_broken_rule(
    tmp_path: Path, values: Any, column: Any, rule: str, words: str
) -> None:
    found = inline(tmp_path, values, **column)
    [case] = found.cases
    assert (found.verdict, case["rule"]) == ("failed", rule)
    assert case["found"].startswith("cannot be evaluated: ")
    assert words in case["found"]
    assert "Traceback" not in json.dumps(found.cases)


def test_k10_the_other_rules_are_judged_as_well(tmp_path: Path) -> None:
    found = inline(tmp_path, ["b"], type="string", pattern="(", allowed=["a"])
    assert found.text == "2 of 4 rules broken: x: allowed ['a']; x: pattern ("


def test_cases_are_bounded(tmp_path: Path) -> None:
    columns = {f"c{n}": list(range(50)) for n in range(30)}
    declared = InlineContract(columns={name: {"type": "integer", "max": 0} for name in columns})
    found = contract.check(scanned(tmp_path, **columns), declared, tmp_path)
    assert (found.value, len(found.cases)) == (30, MAX_CASES)
    assert found.text.endswith("c0: max 0; c1: max 0; c2: max 0 ...")
    assert found.cases[0]["rows"] == 49
    assert len(found.cases[0]["found"]) < 100


# pandera

PANDAS = """
import pandera.pandas as pa

class Rules(pa.DataFrameModel):
    x: int = pa.Field(ge=2)
    s: str = pa.Field(nullable=True, metadata={"known": "after"})

    @pa.check("x")
    def even(cls, x):
        return x % 2 == 0
"""
IBIS = """
import pandera.ibis as pa

class Rules(pa.DataFrameModel):
    x: int = pa.Field(ge=2)
    s: str = pa.Field(nullable=True, metadata={"known": "after"})
"""


@pytest.mark.parametrize("code", [PANDAS, IBIS], ids=["pandas", "ibis"])
def test_a_pandera_model_is_a_contract(tmp_path: Path, code: str) -> None:
    found = coded(tmp_path, code, x=[2, 4], s=["a", None], y_other=[1, 1])
    assert (found.verdict, found.evaluated) == ("passed", 2)


@pytest.mark.parametrize("code", [PANDAS, IBIS], ids=["pandas", "ibis"])
def test_a_broken_pandera_rule_is_named_with_its_column(tmp_path: Path, code: str) -> None:
    found = coded(tmp_path, code, x=[0, 4, -2], s=["a", None, "b"])
    [case] = found.cases
    assert (found.verdict, case["column"], case["rule"]) == ("failed", "x", "greater_than_or_equal_to(2)")
    assert "0" in case["found"]
    assert "-2" in case["found"]


def test_the_users_own_check_of_a_model_is_named_as_the_function(tmp_path: Path) -> None:
    found = coded(tmp_path, PANDAS, x=[2, 3], s=["a", "b"])
    assert found.text == "1 of 5 rules broken: x: even"


@pytest.mark.parametrize("code", [PANDAS, IBIS], ids=["pandas", "ibis"])
def test_a_column_that_a_pandera_model_wants_is_named(tmp_path: Path, code: str) -> None:
    found = coded(tmp_path, code, x=[2, 4])
    [case] = found.cases
    assert (found.verdict, case["column"], case["rule"]) == ("failed", "s", "column_in_dataframe")


@pytest.mark.parametrize("code", [PANDAS, IBIS], ids=["pandas", "ibis"])
def test_the_private_row_id_is_no_business_of_a_contract(tmp_path: Path, code: str) -> None:
    strict = code + "\n    class Config:\n        strict = True\n"
    found = coded(
        tmp_path, strict.replace("    s: str", "    y: float\n    z: int\n    s: str"), x=[2], s=["a"]
    )
    assert found.verdict == "passed", found.text


def test_a_schema_object_is_a_contract(tmp_path: Path) -> None:
    code = (
        "import pandera.pandas as pa\nRules = pa.DataFrameSchema({'x': pa.Column(int, pa.Check.isin([1]))})"
    )
    assert coded(tmp_path, code, x=[1, 1]).verdict == "passed"


def test_a_schema_that_only_wants_rows_to_be_unique_is_a_contract(tmp_path: Path) -> None:
    code = "import pandera.pandas as pa\nRules = pa.DataFrameSchema(unique=['x'])"
    assert coded(tmp_path, code, x=[1, 2]).verdict == "passed"


def test_k09_an_empty_schema_is_not_verified(tmp_path: Path) -> None:
    found = coded(tmp_path, "import pandera.pandas as pa\nRules = pa.DataFrameSchema()", x=[1])
    assert (found.verdict, found.text) == ("not verified", "0 rules on 1 rows: nothing to verify")


@pytest.mark.parametrize("code", [PANDAS, IBIS], ids=["pandas", "ibis"])
def test_k09_a_pandera_rule_on_a_column_without_values_is_not_verified(tmp_path: Path, code: str) -> None:
    code = code.replace("nullable=True", "nullable=True, str_startswith='a'")
    found = coded(tmp_path, code, x=[2, 4], s=pa.array([None, None], pa.string()))
    assert (found.verdict, found.cases) == ("not verified", ({"column": "s"},))


def test_k10_a_pandera_rule_that_raises_is_a_broken_rule(tmp_path: Path) -> None:
    code = """
import pandera.pandas as pa
Rules = pa.DataFrameSchema(
    {"x": pa.Column(int, [pa.Check(lambda x: x["nope"] > 1, name="peeks"), pa.Check.gt(1)])},
    checks=pa.Check(lambda frame: frame["gone"] > 1, name="whole"),
)
"""
    found = coded(tmp_path, code, x=[1, 2])
    assert found.text == "3 of 5 rules broken: x: peeks; x: greater_than(1); table: whole"
    assert 'KeyError("nope")' in found.cases[0]["found"]
    assert "Traceback" not in json.dumps(found.cases)


def test_k10_an_ibis_rule_that_raises_is_a_broken_rule(tmp_path: Path) -> None:
    code = """
import pandera.ibis as pa
Rules = pa.DataFrameSchema({"x": pa.Column(int, [pa.Check(lambda data: 1 / 0, name="divides"), pa.Check.gt(1)])})
"""
    found = coded(tmp_path, code, x=[1, 2])
    assert found.text == "2 of 4 rules broken: x: divides; x: greater_than(1)"
    assert found.cases[0]["found"] == 'ZeroDivisionError("division by zero")'


def test_k10_a_schema_that_raises_as_a_whole_fails(tmp_path: Path) -> None:
    code = """
import pandera.pandas as pa

def parse(frame):
    raise RuntimeError("the parser broke")

Rules = pa.DataFrameSchema({"x": pa.Column(int)}, parsers=pa.Parser(parse), name="flights")
"""
    found = coded(tmp_path, code, x=[1])
    assert (found.verdict, found.cases[0]["rule"]) == ("failed", "flights")
    assert "the parser broke" in found.cases[0]["found"]


def test_k04_coercion_turns_no_missing_value_into_true(tmp_path: Path) -> None:
    code = "import pandera.pandas as pa\nRules = pa.DataFrameSchema({'x': pa.Column(bool, coerce=True)})"
    found = coded(tmp_path, code, x=[None, False])
    assert found.verdict == "failed"
    assert {case["rule"] for case in found.cases} >= {"not_nullable"}
    code = (
        "import pandera.pandas as pa\nRules = pa.DataFrameSchema({'x': pa.Column('boolean', nullable=True)})"
    )
    del sys.modules["rules"]
    assert coded(tmp_path, code, x=[None, False]).verdict == "passed"


def test_k03_large_ids_beside_a_missing_one_stay_distinct(tmp_path: Path) -> None:
    code = (
        "import pandera.pandas as pa\n"
        "Rules = pa.DataFrameSchema({'x': pa.Column('Int64', unique=True, nullable=True)})"
    )
    assert coded(tmp_path, code, x=[9007199254740993, None, 9007199254740992]).verdict == "passed"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("nowhere:Rules", "module nowhere must lie in"),
        ("rules:Gone", "rules must define 'Gone', however it does not"),
        ("rules:seven", "contract rules:seven must be a pandera model or schema, however it is int"),
    ],
)
def test_a_contract_that_is_not_there_is_refused(tmp_path: Path, entry: str, words: str) -> None:
    (tmp_path / "rules.py").write_text("seven = 7\n")
    with pytest.raises(InputError, match=words):
        contract.check(scanned(tmp_path, x=[1]), entry, tmp_path)


# Great Expectations

BETWEEN, IN_SET = "expect_column_values_to_be_between", "expect_column_values_to_be_in_set"
# Its own imports: modules that Python and pandas are about to drop.
quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@quiet
def test_a_suite_is_a_contract(tmp_path: Path) -> None:
    found = suite(
        tmp_path,
        (BETWEEN, {"column": "x", "min_value": 1}),
        (IN_SET, {"column": "s", "value_set": ["a"]}),
        ("expect_table_row_count_to_equal", {"value": 3}),
        x=[1, None, 3],
        s=["a", None, "a"],
    )
    assert (found.verdict, found.evaluated, found.text) == ("passed", 3, "3 rules hold for 3 rows")


@quiet
def test_a_broken_expectation_is_named_with_its_column(tmp_path: Path) -> None:
    found = suite(
        tmp_path,
        (BETWEEN, {"column": "x", "min_value": 2}),
        (IN_SET, {"column": "s", "value_set": ["a"]}),
        ("expect_table_row_count_to_equal", {"value": 3}),
        x=[1, 2],
        s=["a", "a"],
    )
    assert found.text == f"2 of 3 rules broken: x: {BETWEEN}; table: expect_table_row_count_to_equal"
    assert [case["found"] for case in found.cases] == ["1 rows: [1]", "observed 2"]


@quiet
def test_k10_an_expectation_that_raises_is_a_broken_rule(tmp_path: Path) -> None:
    found = suite(
        tmp_path,
        (BETWEEN, {"column": "gone", "min_value": 2}),
        (BETWEEN, {"column": "s", "min_value": 2}),
        (BETWEEN, {"column": "x", "nonsense": 2}),
        ("expect_the_unknown", {"column": "x"}),
        (BETWEEN, {"column": "x", "min_value": 1}),
        x=[1, 2],
        s=["a", "b"],
    )
    assert found.text.startswith("4 of 5 rules broken: ")
    assert [(case["column"], case["rule"]) for case in found.cases] == [
        ("gone", BETWEEN),
        ("s", BETWEEN),
        ("x", BETWEEN),
        ("x", "expect_the_unknown"),
    ]
    assert all(case["found"].startswith("cannot be evaluated: ") for case in found.cases)
    assert "Traceback" not in json.dumps(found.cases)


@quiet
def test_k09_an_expectation_on_a_column_without_values_is_not_verified(tmp_path: Path) -> None:
    rule = (BETWEEN, {"column": "x", "min_value": 0, "max_value": 1})
    found = suite(tmp_path, rule, x=pa.array([None, None], pa.float64()))
    assert (found.verdict, found.cases) == ("not verified", ({"column": "x"},))


def test_k09_an_empty_suite_is_not_verified(tmp_path: Path) -> None:
    found = suite(tmp_path, x=[1, 2])
    assert (found.verdict, found.text) == ("not verified", "0 rules on 2 rows: nothing to verify")


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"expectations": [{"type": "a"}]}', '{"expectations": 3}']
)
def test_a_file_that_is_no_suite_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "suite.json").write_text(text)
    with pytest.raises(
        InputError, match=r"contract\.suite suite\.json must be a suite as Great Expectations"
    ):
        contract.check(scanned(tmp_path, x=[1]), SuiteContract(suite="suite.json"), tmp_path)


def test_a_suite_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"contract\.suite suite\.json must be there, however"):
        contract.check(scanned(tmp_path, x=[1]), SuiteContract(suite="suite.json"), tmp_path)


# What is known only afterwards


def test_inline_columns_say_what_is_known_only_afterwards(tmp_path: Path) -> None:
    columns = {"x": {"type": "integer"}, "z": {"type": "integer", "known": "after"}}
    assert contract.known_after(InlineContract(columns=columns), tmp_path) == {"z"}


@pytest.mark.parametrize("code", [PANDAS, IBIS], ids=["pandas", "ibis"])
def test_pandera_columns_say_it_in_their_metadata(tmp_path: Path, code: str) -> None:
    (tmp_path / "rules.py").write_text(code)
    assert contract.known_after("rules:Rules", tmp_path) == {"s"}


def test_no_contract_and_a_suite_say_nothing_of_it(tmp_path: Path) -> None:
    assert contract.known_after(None, tmp_path) == frozenset()
    assert contract.known_after(SuiteContract(suite="suite.json"), tmp_path) == frozenset()
