import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gristmill import plan, profile, tables, validation
from gristmill.errors import DataError, InputError
from gristmill.records import Check
from gristmill.work import Made
from tests.conftest import work_on

NAN, INF = float("nan"), float("inf")
CLEAN: dict[str, Any] = {
    "n": [1.5, 2.5, None, 4.0],
    "s": ["a", "b", "a", "b"],
    "flag": [True, False, True, True],
    "id": [9007199254740993, 1, 2, 3],
    "y": [0.5, 1.5, 2.5, 3.5],
}
BINARY = {"kind": "binary", "target": "y", "positive": 1, "metric": "f1", "accept": {"at_least": 0.5}}

# What makes validation report each of its checks.
EVERY_CHECK: dict[str, Any] = {
    "task": BINARY,
    "contract": {"columns": {"n": {"type": "number", "nullable": True}}},
    "validation": {"duplicates": {"key": ["id"]}},
}


def judged(root: Path, columns: dict[str, Any], **declared: Any) -> tuple[Made, dict[str, Any]]:
    """What validation says of columns, and its validation.json."""
    work = work_on(root, columns, **declared)
    made = validation.make(work)
    return made, json.loads((work.output / "validation.json").read_text())


def check(made: Made, code: str) -> Check:
    [found] = [check for check in made.checks if check.code == code]
    return found


def test_clean_data_passes_every_check(tmp_path: Path) -> None:
    made, _ = judged(tmp_path, CLEAN | {"y": [0, 1, 0, 1]}, **EVERY_CHECK)
    declared = [code for code, _ in plan.stage("validation").checks]
    assert [found.code for found in made.checks] == declared
    assert {found.verdict for found in made.checks} == {"passed"}
    assert made.values == {"rows": 4, "features": 4}


def test_each_check_has_the_name_that_the_plan_tells_dagster(tmp_path: Path) -> None:
    made, _ = judged(tmp_path, CLEAN | {"y": [0, 1, 0, 1]}, **EVERY_CHECK)
    assert [(found.code, found.name) for found in made.checks] == list(plan.stage("validation").checks)


def test_without_a_contract_there_is_no_contract_check(tmp_path: Path) -> None:
    made, _ = judged(tmp_path, CLEAN)
    assert next(found.code for found in made.checks) == "GM102"


def test_validation_json_holds_the_facts_of_every_column(tmp_path: Path) -> None:
    work = work_on(
        tmp_path,
        CLEAN | {"when": pa.array([0, 0, 1, 1], pa.date32()), "f": [1.0, NAN, INF, -1.0]},
        features={"exclude": ["when", "f"], "categorical": ["id"]},
    )
    validation.make(work)
    body = json.loads((work.output / "validation.json").read_text())
    assert body["rows"] == 4
    assert body["version"] == validation.VERSION
    roles = {name: facts["role"] for name, facts in body["columns"].items()}
    assert roles == {
        "n": "numeric feature",
        "s": "categorical feature",
        "flag": "numeric feature",
        "id": "categorical feature",
        "y": "target",
        "when": "left out",
        "f": "left out",
    }
    found, _ = profile.of(tables.scan(work.snapshot), roles)
    assert body["columns"] == {name: facts | {"role": roles[name]} for name, facts in found.items()}


def test_the_same_data_is_the_same_bytes_however_many_threads_there_are(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=300_000)
    work = work_on(tmp_path, {"x": values, "y": random.permutation(values)})
    contents = set()
    for _ in range(4):
        validation.make(work)
        contents.add((work.output / "validation.json").read_bytes())
    assert len(contents) == 1


def test_k11_a_missing_target_fails_or_is_dropped_as_declared(tmp_path: Path) -> None:
    columns = CLEAN | {"y": [1, 0, None, 1]}
    made, _ = judged(tmp_path, columns, task=BINARY)
    assert check(made, "GM102").text == "target 'y' is missing in 1 rows (first: 2)"
    made, _ = judged(tmp_path, columns, task=BINARY | {"target_missing": "drop"})
    assert check(made, "GM102").verdict == "passed"
    assert check(made, "GM105").text == "2 classes, the rarest '0' with 33.3% of 3 rows"


def test_k09_a_column_without_values_fails(tmp_path: Path) -> None:
    made, body = judged(tmp_path, CLEAN | {"n": pa.array([None] * 4, pa.float64())})
    assert check(made, "GM104").text == "'n' has no values"
    assert body["columns"]["n"]["missing"] == 4
    assert body["columns"]["n"]["mean"] is None


@pytest.mark.parametrize("values", [[3.0, NAN, 3.0, 3.0], [3.0, None, 3.0, 3.0], [0.0, -0.0, 0.0, NAN]])
def test_missing_values_do_not_make_a_constant_column_vary(tmp_path: Path, values: list[Any]) -> None:
    made, body = judged(tmp_path, CLEAN | {"n": values})
    assert body["columns"]["n"]["distinct"] == 1
    assert check(made, "GM106").text == "1 of 4 features hold one value only: n"
    assert check(made, "GM106").verdict == "warned"


def test_only_features_are_held_to_the_limits_of_columns(tmp_path: Path) -> None:
    bad = {"bad": pa.array([None, None, None, INF], pa.float64())}
    made, _ = judged(tmp_path, CLEAN | bad)
    assert [found.code for found in made.checks if not found.passed] == ["GM104", "GM107"]
    made, _ = judged(tmp_path, CLEAN | bad, features={"exclude": ["bad"]})
    assert all(found.passed for found in made.checks)


def test_a_whole_row_makes_a_repeat_the_left_out_columns_too(tmp_path: Path) -> None:
    columns = {"n": [1, 1, 2], "k": [1, 2, 3], "y": [1.0, 1.0, 2.0]}
    made, _ = judged(tmp_path, columns, features={"exclude": ["k"]})
    assert check(made, "GM103").text == "0 of 3 rows repeat an earlier one (0.00%)"
    made, _ = judged(tmp_path, columns | {"k": [1, 1, 3]}, features={"exclude": ["k"]})
    assert check(made, "GM103").text == "1 of 3 rows repeat an earlier one (33.33%)"


def test_what_is_known_only_afterwards_cannot_be_a_feature(tmp_path: Path) -> None:
    contract = {"columns": {"n": {"type": "number", "nullable": True, "known": "after"}}}
    made, _ = judged(tmp_path, CLEAN, contract=contract)
    assert check(made, "GM108").text == "n: known only after the prediction is needed"
    assert check(made, "GM108").verdict == "failed"
    made, _ = judged(tmp_path, CLEAN, contract=contract, features={"exclude": ["n"]})
    assert check(made, "GM108").verdict == "passed"


def test_k04_missing_truth_values_are_counted_as_missing(tmp_path: Path) -> None:
    made, body = judged(tmp_path, CLEAN | {"flag": [None, None, False, True]})
    assert (body["columns"]["flag"]["missing"], body["columns"]["flag"]["distinct"]) == (2, 2)
    assert check(made, "GM104").cases == ({"column": "flag", "share": 0.5, "limit": 0.3},)


def test_a_contract_that_is_not_there_stops_the_stage(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="module nowhere must lie in"):
        judged(tmp_path, CLEAN, contract="nowhere:Rules")


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    work = work_on(tmp_path, CLEAN, contract={"columns": {"n": {"type": "number", "nullable": True}}})
    object.__setattr__(work, "progress", lambda text, *_: told.append(text))
    validation.make(work)
    assert told == ["profiling columns", "checking the contract", "checking rows"]


def test_equal_features_with_other_classes_warn_and_missing_targets_are_no_class(tmp_path: Path) -> None:
    columns = {"x": [1.0, 1.0, -0.0, 0.0, NAN], "when": [1, 2, 3, 4, 5], "y": [0, 1, 1, None, 0]}
    task = BINARY | {"target_missing": "drop"}
    made, _ = judged(tmp_path, columns, task=task, features={"exclude": ["when"]})
    found = check(made, "GM112")
    assert (found.verdict, found.evaluated, found.value) == ("warned", 4, 0.5)
    assert found.cases == ({"row": 0, "equals row": 1},)


def test_a_key_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"validation\.duplicates\.key: no column 'iid'.*'id'"):
        judged(tmp_path, CLEAN, validation={"duplicates": {"key": ["iid"]}})


def test_numbers_are_regressed_and_never_in_conflict(tmp_path: Path) -> None:
    made, _ = judged(tmp_path, {"x": [1, 1], "y": [0.5, 1.5]})
    assert [found.code for found in made.checks if found.code in ("GM111", "GM112")] == []
