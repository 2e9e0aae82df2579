import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gristmill import plan, profile, tables, validation
from gristmill.errors import DataError, InputError
from gristmill.orchestrate.assets import expected_checks
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

# Enough rows for every check to look at, and what makes validation report each of them: those of all
# tasks, and those that one kind of task or split has to itself.
RANDOM = np.random.default_rng(0)
CLEAN_ROWS = 200
LARGE: dict[str, Any] = {
    "n": [None if row % 50 == 3 else row / 7 for row in RANDOM.permutation(CLEAN_ROWS).tolist()],
    "s": RANDOM.choice(["a", "b", "c"], CLEAN_ROWS),
    "id": np.arange(CLEAN_ROWS) + 9007199254740993,
    "when": [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=hour) for hour in range(CLEAN_ROWS)],
    "member": np.arange(CLEAN_ROWS) % 40,
}
CLASSES = LARGE | {"y": RANDOM.integers(0, 2, CLEAN_ROWS)}
NUMBERS = LARGE | {"y": RANDOM.normal(size=CLEAN_ROWS)}
EVERY_CHECK: dict[str, Any] = {
    "contract": {"columns": {"n": {"type": "number", "nullable": True}}},
    "features": {"exclude": ["when", "id", "member"]},
    "validation": {"duplicates": {"key": ["id"]}},
}
BY_GROUP = {"split": {"test": 0.2, "validation": 0.1, "group_on": "member"}}
BY_TIME = {"split": {"test": 0.2, "validation": 0.1, "time_on": "when"}}
WORLDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        CLASSES,
        EVERY_CHECK
        | {"task": BINARY, "validation": {"duplicates": {"key": ["id"]}, "labels": {"max_suspect_share": 1}}}
        | BY_GROUP,
    ),
    (NUMBERS, EVERY_CHECK | BY_TIME),
]


def judged(root: Path, columns: dict[str, Any], **declared: Any) -> tuple[Made, dict[str, Any]]:
    """What validation says of columns, and its validation.json."""
    work = work_on(root, columns, **declared)
    made = validation.make(work)
    return made, json.loads((work.output / "validation.json").read_text())


def check(made: Made, code: str) -> Check:
    [found] = [check for check in made.checks if check.code == code]
    return found


@pytest.mark.parametrize(("columns", "declared"), WORLDS, ids=["classes", "numbers"])
def test_clean_data_passes_every_check(
    tmp_path: Path, columns: dict[str, Any], declared: dict[str, Any]
) -> None:
    made, _ = judged(tmp_path, columns, **declared)
    assert {found.verdict for found in made.checks} == {"passed"}, made.checks
    assert made.values == {"rows": 200, "features": 2}


def test_every_check_is_reported_with_the_name_that_the_plan_tells_dagster(tmp_path: Path) -> None:
    reported = set()
    for columns, declared in WORLDS:
        work = work_on(tmp_path, columns, **declared)
        found = [(check.code, check.name) for check in validation.make(work).checks]
        assert found == expected_checks(plan.stage("validation"), work.spec)
        reported |= set(found)
    assert sorted(reported) == list(plan.stage("validation").checks)


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
    assert body["columns"].pop("n") == found.pop("n") | {
        "role": "numeric feature",
        "missing_over_time": [{"from": 0, "share": 0.25}],
    }
    assert body["columns"] == {name: facts | {"role": roles[name]} for name, facts in found.items()}


def test_missing_values_are_told_by_class_time_and_group_and_beside_which_columns(tmp_path: Path) -> None:
    # A sensor that fails in the last quarter, and its twin with it; a reason that only buyers give.
    gone = [row >= 150 for row in range(CLEAN_ROWS)]
    columns = CLASSES | {
        "sensor": [None if lost else row / 3 for row, lost in enumerate(gone)],
        "twin": [None if lost else "ok" for lost in gone],
        "reason": [RANDOM.random() if y else None for y in CLASSES["y"].tolist()],
    }
    declared = EVERY_CHECK | BY_TIME | {"task": BINARY, "validation": {"missing": {"max_share": 0.9}}}
    made, body = judged(tmp_path, columns, **declared)
    assert check(made, "GM104").text.endswith("; missing together: sensor, twin")
    assert check(made, "GM114").cases[0]["column"] == "reason"
    assert check(made, "GM114").verdict == "warned"
    over_time = check(made, "GM115")
    assert (over_time.verdict, over_time.value) == ("warned", 1.0)
    assert "not judged" not in over_time.text
    assert check(made, "GM125").text == "1 of 5 features are filled for one class only: reason for 1"
    assert body["columns"]["sensor"]["missing_with"] == ["twin"]
    along = body["columns"]["sensor"]["missing_over_time"]
    assert (along[0], along[-1]) == (
        {"from": "2024-01-01T00:00", "share": 0.0},
        {"from": "2024-01-07T21:50", "share": 1.0},
    )


def test_a_group_that_misses_a_column_is_told_where_time_shows_nothing(tmp_path: Path) -> None:
    group = ["p", "q"] * 100
    columns = NUMBERS | {"member": group, "x": [None if g == "p" else 1.5 * i for i, g in enumerate(group)]}
    declared = EVERY_CHECK | BY_GROUP | {"validation": {"missing": {"max_share": 0.5}}}
    found = check(judged(tmp_path, columns, **declared)[0], "GM115")
    assert (found.verdict, found.text) == (
        "warned",
        "1 of 2 features miss values by member: x 100.0% for p, 0.0% for q",
    )


def test_columns_that_tell_too_much_are_found_in_a_sample_with_a_seed(tmp_path: Path) -> None:
    rows = 3_000
    y = np.sort(RANDOM.integers(0, 2, rows))
    columns = {"x": RANDOM.normal(size=rows), "refund": 5.0 * y, "y": y}
    made, _ = judged(tmp_path, columns, task=BINARY, validation={"single_feature": {"rows": 1_000}})
    found = check(made, "GM123")
    assert (found.verdict, found.evaluated) == ("failed", 1_000)
    assert found.text.endswith("refund (100.0%) (a sample of 1,000 of 3,000 rows)")
    assert check(made, "GM124").verdict == "warned"


def test_a_target_of_the_wrong_type_leaves_other_checks_their_say(tmp_path: Path) -> None:
    made, _ = judged(tmp_path, LARGE | {"y": LARGE["s"]}, **EVERY_CHECK)
    assert check(made, "GM102").verdict == "failed"
    assert [found.code for found in made.checks if found.code == "GM116"] == []


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
    columns = CLASSES | {"y": [1, 0, None, *CLASSES["y"][3:].tolist()]}
    made, _ = judged(tmp_path, columns, **EVERY_CHECK | {"task": BINARY})
    assert check(made, "GM102").text == "target 'y' is missing in 1 rows (first: 2)"
    made, _ = judged(tmp_path, columns, **EVERY_CHECK | {"task": BINARY | {"target_missing": "drop"}})
    assert check(made, "GM102").verdict == "passed"
    zeros = columns["y"].count(0)
    assert check(made, "GM105").text == f"2 classes, the rarest '0' with {zeros / 199:.1%} of 199 rows"
    assert check(made, "GM123").evaluated == 199


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
    few = {"single_feature": {"severity": "warn"}}
    made, _ = judged(tmp_path, CLEAN | bad, validation=few)
    assert [found.code for found in made.checks if not found.passed] == ["GM104", "GM107"]
    made, _ = judged(tmp_path, CLEAN | bad, features={"exclude": ["bad"]}, validation=few)
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
    assert told == [
        "profiling columns",
        "checking the contract",
        "checking rows",
        "looking for columns that tell too much",
    ]


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
