import datetime
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import plan, split
from gristmill.errors import DataError
from gristmill.records import Check
from gristmill.spec import Split
from gristmill.work import Made
from tests.conftest import work_on

NAN = float("nan")
MULTICLASS = {"kind": "multiclass", "target": "y", "metric": "accuracy", "accept": {"at_least": 0.5}}
REGRESSION = {"kind": "regression", "target": "y", "metric": "rmse", "accept": {"at_most": 1}}
START = datetime.datetime(2024, 1, 1)

Parts = dict[str, list[int]]


def made(
    root: Path, columns: dict[str, Any], task: dict[str, Any] = REGRESSION, **declared: Any
) -> tuple[Made, Parts]:
    """What the split of columns says of itself, and the rows of each part."""
    declared = {"test": 0.2, "validation": 0.1} | declared
    # What orders or groups the rows is for the split alone, unless it is a feature as well.
    work = work_on(root, columns, task=task, split=declared)
    result = split.make(work)
    return result, {name: rows.to_pylist() for name, rows in split.read(work.output).items()}


def distinct(rows: int, **columns: Any) -> dict[str, Any]:
    """Columns with a feature, x, that is another in each row, and a target."""
    return {"x": list(range(rows)), "y": [n % 2 for n in range(rows)]} | columns


def placed(parts: Parts) -> list[int]:
    return sorted(itertools.chain.from_iterable(parts.values()))


def check(result: Made, code: str) -> Check:
    [found] = [check for check in result.checks if check.code == code]
    return found


def refused(root: Path, columns: dict[str, Any], task: dict[str, Any] = REGRESSION, **declared: Any) -> str:
    with pytest.raises(DataError, match="split") as caught:
        made(root, columns, task, **declared)
    return str(caught.value)


# By chance

shares = st.tuples(st.sampled_from([0.1, 0.15, 0.2, 0.3]), st.sampled_from([0.1, 0.2, 0.25]))


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(12, 300), wanted=shares, seed=st.integers(0, 2**40))
def test_parts_are_disjoint_complete_and_as_large_as_declared(
    rows: int, wanted: tuple[float, float], seed: int
) -> None:
    test, validation = wanted
    with tempfile.TemporaryDirectory() as root:
        result, parts = made(Path(root), distinct(rows), test=test, validation=validation, seed=seed)
    assert placed(parts) == list(range(rows))
    assert abs(len(parts["test"]) - test * rows) <= 1
    assert abs(len(parts["validation"]) - validation * rows) <= 1
    assert all(ids == sorted(ids) for ids in parts.values())
    assert result.values == {name: len(ids) for name, ids in parts.items()} | {"gap": 0, "no_target": 0}
    assert check(result, "GM202").verdict == "passed"


@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.sampled_from([None, NAN, 0.0, -0.0, 1.0, 2.0, *range(3, 30)]), min_size=30))
def test_equal_rows_are_on_one_side(values: list[Any]) -> None:
    alike = ["missing" if v is None or v != v else v + 0.0 for v in values]
    columns = {"x": pa.array(values, pa.float64()), "y": [float(n) for n in range(len(values))]}
    with tempfile.TemporaryDirectory() as root:
        try:
            result, parts = made(Path(root), columns, test=0.3, validation=0.3)
        except DataError as error:
            # A few large heaps of equal rows leave nothing for a part.
            assert "would have 0 rows" in str(error)  # noqa: PT017
            return
    assert check(result, "GM202").verdict == "passed"
    sides = [{alike[row] for row in ids} for ids in parts.values()]
    assert sum(map(len, sides)) == len(set().union(*sides))


@settings(max_examples=25, deadline=None)
@given(groups=st.lists(st.integers(0, 15), min_size=40, max_size=150), wanted=shares)
def test_groups_are_on_one_side(groups: list[int], wanted: tuple[float, float]) -> None:
    columns = distinct(len(groups), g=groups)
    with tempfile.TemporaryDirectory() as root:
        try:
            result, parts = made(Path(root), columns, test=wanted[0], validation=wanted[1], group_on="g")
        except DataError as error:
            assert "would have 0 rows" in str(error) or "3 parts but" in str(error)  # noqa: PT017
            return
    assert placed(parts) == list(range(len(groups)))
    assert check(result, "GM203").verdict == "passed"
    sides = [{groups[row] for row in ids} for ids in parts.values()]
    assert sum(map(len, sides)) == len(set().union(*sides))


@settings(max_examples=25, deadline=None)
@given(
    counts=st.lists(st.integers(3, 60), min_size=2, max_size=4).filter(lambda counts: sum(counts) >= 20),
    wanted=shares,
    seed=st.integers(0, 99),
)
def test_each_part_has_each_class_in_its_share(
    counts: list[int], wanted: tuple[float, float], seed: int
) -> None:
    test, validation = wanted
    classes = [f"c{code}" for code, count in enumerate(counts) for _ in range(count)]
    classes = np.random.default_rng(seed).permutation(classes).tolist()
    with tempfile.TemporaryDirectory() as root:
        result, parts = made(
            Path(root),
            distinct(len(classes), y=classes),
            MULTICLASS,
            test=test,
            validation=validation,
            stratify_on="y",
            seed=seed,
        )
    for code, count in enumerate(counts):
        held = {name: sum(classes[row] == f"c{code}" for row in ids) for name, ids in parts.items()}
        assert abs(held["test"] - test * count) <= 1
        assert abs(held["validation"] - validation * count) <= 1
        assert min(held.values()) >= 1
    assert check(result, "GM205").verdict == "passed"


def test_the_seed_decides_and_nothing_else_does(tmp_path: Path) -> None:
    columns = distinct(200)
    _, first = made(tmp_path, columns, seed=1)
    _, second = made(tmp_path, columns, seed=2)
    assert first != second
    duckdb.execute("SET threads = 1")
    try:
        _, alone = made(tmp_path, columns, seed=1)
    finally:
        duckdb.execute("RESET threads")
    assert alone == first


def test_the_split_is_the_same_under_another_hash_seed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gristmill import files, split\n"
        "from tests.conftest import work_on\n"
        "n = range(60); columns = {'s': [f'v{i // 2}' for i in n], 'g': [f'g{i // 4}' for i in n], 'y': [i % 3 for i in n]}\n"
        "declared = {'test': 0.3, 'validation': 0.2, 'group_on': 'g', 'stratify_on': 'y'}\n"
        "work = work_on(Path(sys.argv[1]), columns, split=declared)\n"
        "split.make(work); print(files.tree_digests(work.output))\n"
    )
    found = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
            env=environment,
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(run.stdout)
    assert len(found) == 1


def test_rows_without_a_target_are_in_no_part(tmp_path: Path) -> None:
    target = [None if n % 10 == 0 else float(n) for n in range(100)]
    result, parts = made(tmp_path, distinct(100, y=target), REGRESSION | {"target_missing": "drop"})
    assert placed(parts) == [n for n in range(100) if n % 10]
    assert (result.values["no_target"], check(result, "GM201").text) == (
        10,
        "train 63, validation 9, test 18 rows; 10 in no part",
    )


def test_equal_rows_are_together_whatever_their_target_or_group(tmp_path: Path) -> None:
    """Two groups that share an equal row are one: 0-1, 2-3 and so on."""
    groups = [n // 3 for n in range(60)]
    x = list(range(60))
    for first in range(0, 20, 2):
        x[3 * first] = x[3 * first + 3]
    result, parts = made(tmp_path, distinct(60, x=x, g=groups), test=0.3, validation=0.2, group_on="g")
    side = {row: name for name, ids in parts.items() for row in ids}
    for pair in range(10):
        assert len({side[row] for row in range(6 * pair, 6 * pair + 6)}) == 1
    assert {found.verdict for found in result.checks} == {"passed"}


def test_groups_and_classes_together(tmp_path: Path) -> None:
    groups = [n // 2 for n in range(120)]
    columns = distinct(120, g=groups, y=["a" if n // 2 % 3 else "b" for n in range(120)])
    result, parts = made(
        tmp_path, columns, MULTICLASS, test=0.25, validation=0.25, group_on="g", stratify_on="y"
    )
    assert {found.verdict for found in result.checks} == {"passed"}
    for ids in parts.values():
        share = sum(columns["y"][row] == "b" for row in ids) / len(ids)
        assert abs(share - 1 / 3) < 0.05


def test_minus_zero_is_the_group_of_zero_and_missing_strata_are_one(tmp_path: Path) -> None:
    groups = [0.0, -0.0] * 10 + [float(n) for n in range(1, 21)]
    result, parts = made(tmp_path, distinct(40, g=groups), test=0.2, validation=0.2, group_on="g")
    assert check(result, "GM203").text == "0 of 21 groups of g stand in more than one part"
    assert set(range(20)) <= set(parts["train"])
    strata = [None, NAN, 1.0, 2.0] * 10
    _, parts = made(tmp_path, distinct(40, k=strata), test=0.2, validation=0.2, stratify_on="k", seed=3)
    for name in ("test", "validation"):
        assert sum(row % 4 < 2 for row in parts[name]) == 4


# By chance: what is refused


def test_k20_s01_a_class_of_one_row_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    text = refused(tmp_path, distinct(10, y=[0] * 9 + [1]), MULTICLASS, stratify_on="y")
    assert text == (
        "split.stratify_on: class 1 of y has 1 row(s); a stratified train, validation and test needs 3; "
        "merge the class, drop it, or leave stratify_on out"
    )


def test_k20_a_class_of_three_rows_stands_in_each_part(tmp_path: Path) -> None:
    classes = ["a"] * 60 + ["b"] * 3
    result, parts = made(tmp_path, distinct(63, y=classes), MULTICLASS, stratify_on="y")
    assert [sum(row >= 60 for row in ids) for ids in parts.values()] == [1, 1, 1]
    assert check(result, "GM205").verdict == "passed"


def test_k23_s03_a_missing_group_is_refused_with_its_row(tmp_path: Path) -> None:
    groups = [float(n) for n in range(20)]
    groups[7] = groups[9] = NAN
    text = refused(tmp_path, distinct(20, g=groups), group_on="g")
    assert text.startswith("split.group_on: g is missing in 2 rows (first: 7); ")
    names = [f"g{n}" if n != 4 else None for n in range(20)]
    assert "(first: 4)" in refused(tmp_path, distinct(20, g=names), group_on="g")


def test_k23_the_row_is_the_snapshots_also_where_rows_without_a_target_go(tmp_path: Path) -> None:
    target = [None] * 5 + [1.0] * 15
    groups = [None if n in (2, 8) else n for n in range(20)]
    task = REGRESSION | {"target_missing": "drop"}
    text = refused(tmp_path, distinct(20, g=groups, y=target), task, group_on="g")
    assert "g is missing in 1 rows (first: 8)" in text
    moments = [None if n in (2, 8) else START for n in range(20)]
    text = refused(tmp_path, distinct(20, t=moments, y=target), task, time_on="t")
    assert text == "split.time_on: t is missing in 1 rows (first: 8)"


def test_s02_fewer_groups_than_parts_are_refused(tmp_path: Path) -> None:
    text = refused(tmp_path, distinct(20, g=[n % 2 for n in range(20)]), group_on="g")
    assert text == "split.group_on: 3 parts but 2 groups in g"


def test_s05_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"split\.group_on: no column 'patient' in the data"):
        made(tmp_path, distinct(20, patient_id=[1] * 20), group_on="patient")


@pytest.mark.parametrize(("part", "share"), [("test", 0.01), ("validation", 0.012)])
def test_s06_a_part_that_rounds_to_no_row_is_refused(tmp_path: Path, part: str, share: float) -> None:
    text = refused(tmp_path, distinct(40), **{part: share})
    assert text == f"split.{part} would have 0 rows ({share:g} of 40); raise the share"


def test_rows_that_are_all_equal_leave_nothing_to_test(tmp_path: Path) -> None:
    assert "would have 0 rows of 20" in refused(tmp_path, distinct(20, x=[1] * 20))


# By time


def timed(rows: int, moments: list[Any], **more: Any) -> dict[str, Any]:
    return distinct(rows, t=moments, **more)


def test_k24_unsorted_rows_and_ties_are_cut_on_values(tmp_path: Path) -> None:
    days = [n // 4 for n in range(40)]
    order = np.random.default_rng(0).permutation(40)
    moments = [START + datetime.timedelta(days=days[place]) for place in order]
    result, parts = made(tmp_path, timed(40, moments), time_on="t")
    by_part = {name: {moments[row].day for row in ids} for name, ids in parts.items()}
    assert by_part == {"train": set(range(1, 8)), "validation": {8}, "test": {9, 10}}
    assert [len(ids) for ids in parts.values()] == [28, 4, 8]
    assert result.values["validation_from"] == "2024-01-08T00:00:00"
    assert result.values["test_from"] == "2024-01-09T00:00:00"
    assert check(result, "GM204").verdict == "passed"
    assert check(result, "GM204").text == (
        "train 2024-01-01T00:00:00 to 2024-01-07T00:00:00; "
        "validation 2024-01-08T00:00:00 to 2024-01-08T00:00:00; "
        "test 2024-01-09T00:00:00 to 2024-01-10T00:00:00"
    )


@settings(max_examples=25, deadline=None)
@given(
    hours=st.lists(st.integers(0, 200), min_size=30, max_size=120),
    gap=st.sampled_from([None, "1h", "5h", "1d"]),
    wanted=shares,
)
def test_every_part_is_later_than_the_one_before_by_more_than_the_gap(
    hours: list[int], gap: str | None, wanted: tuple[float, float]
) -> None:
    moments = [START + datetime.timedelta(hours=hour) for hour in hours]
    declared = {"time_on": "t", "test": wanted[0], "validation": wanted[1]} | ({"gap": gap} if gap else {})
    with tempfile.TemporaryDirectory() as root:
        try:
            result, parts = made(Path(root), timed(len(hours), moments), **declared)
        except DataError as error:
            assert "cannot cut" in str(error) or "leaves 0" in str(error)  # noqa: PT017
            return
    between = {None: 0, "1h": 1, "5h": 5, "1d": 24}[gap]
    train, validation, test = ([hours[row] for row in ids] for ids in parts.values())
    assert max(train) < min(validation) - between
    assert max(validation) < min(test) - between
    left_out = set(range(len(hours))) - set(placed(parts))
    assert result.values["gap"] == len(left_out)
    # Nothing is left out that the gap does not ask for.
    cuts = [min(validation), min(test)]
    assert all(any(cut - between <= hours[row] < cut for cut in cuts) for row in left_out)
    assert check(result, "GM204").verdict == "passed"


def test_the_gap_is_strict(tmp_path: Path) -> None:
    moments = [START + datetime.timedelta(days=n) for n in range(20)]
    result, parts = made(tmp_path, timed(20, moments), time_on="t", gap="1d", validation=0.2)
    assert parts == {
        "train": list(range(11)),
        "validation": [12, 13, 14],
        "test": [16, 17, 18, 19],
    }
    assert result.values["gap"] == 2


@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(20), pa.date32()),
        pa.array([n * 86_400_000_000 for n in range(20)], pa.timestamp("us", tz="Europe/Paris")),
        pa.array([n * 86_400 for n in range(20)], pa.timestamp("s")),
    ],
)
def test_dates_and_zoned_times_are_moments_too(tmp_path: Path, column: pa.Array) -> None:
    result, parts = made(tmp_path, timed(20, column), time_on="t")
    assert (parts["validation"], parts["test"]) == ([14, 15], [16, 17, 18, 19])
    assert result.values["test_from"] == "1970-01-17T00:00:00"


def test_k08_zones_are_compared_as_moments(tmp_path: Path) -> None:
    """The hour that the end of summer time repeats: 2:30 before it is earlier than 2:10 after it."""
    seconds = [1_729_989_000 + 600 * n for n in range(20)]
    column = pa.array([s * 1_000_000 for s in reversed(seconds)], pa.timestamp("us", tz="Europe/Paris"))
    _, parts = made(tmp_path, timed(20, column), time_on="t")
    assert parts["test"] == [0, 1, 2, 3]


def test_equal_rows_at_two_moments_may_be_on_two_sides(tmp_path: Path) -> None:
    moments = [START + datetime.timedelta(days=n) for n in range(20)]
    result, _ = made(tmp_path, timed(20, moments, x=[1] * 20), time_on="t")
    assert check(result, "GM202").verdict == "passed"


def test_rows_without_a_target_do_not_move_the_cut(tmp_path: Path) -> None:
    moments = [START + datetime.timedelta(days=n) for n in range(40)]
    target = [float(n) if n < 20 else None for n in range(40)]
    task = REGRESSION | {"target_missing": "drop"}
    _, parts = made(tmp_path, timed(40, moments, y=target), task, time_on="t")
    assert parts["test"] == [16, 17, 18, 19]


@pytest.mark.parametrize(("days", "words"), [(1, "1 distinct times"), (2, "2 distinct times")])
def test_s08_too_few_moments_are_refused(tmp_path: Path, days: int, words: str) -> None:
    moments = [START + datetime.timedelta(days=n % days) for n in range(20)]
    text = refused(tmp_path, timed(20, moments), time_on="t")
    assert text == f"split.time_on: cannot cut t: {words}, 3 needed"


def test_s09_a_gap_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    moments = [START + datetime.timedelta(days=n) for n in range(20)]
    text = refused(tmp_path, timed(20, moments), time_on="t", gap="90d")
    assert text == "split.gap: 90d leaves 0 train rows; shorten it"
    text = refused(tmp_path, timed(20, moments), time_on="t", gap="3d")
    assert text == "split.gap: 3d leaves 0 validation rows; shorten it"
    text = refused(tmp_path, timed(20, moments), time_on="t", gap="9d", validation=0.7)
    assert text == "split.gap: 9d leaves 0 train rows; shorten it"


def test_s07_a_column_that_is_no_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"split\.time_on: 't' must be a date or timestamp, however it is str"
    ):
        made(tmp_path, timed(20, ["soon"] * 20), time_on="t")


def test_times_too_coarse_for_the_shares_fail_the_sizes(tmp_path: Path) -> None:
    moments = [START + datetime.timedelta(days=n // 4) for n in range(12)]
    result, parts = made(tmp_path, timed(12, moments), time_on="t")
    assert [len(ids) for ids in parts.values()] == [4, 4, 4]
    assert check(result, "GM201").verdict == "failed"
    result, _ = made(tmp_path, timed(12, moments), time_on="t", test=0.33, validation=0.33)
    assert check(result, "GM201").verdict == "passed"


# Proofs: planted faults


def test_each_check_has_the_name_that_the_plan_tells_dagster(tmp_path: Path) -> None:
    declared = dict(plan.stage("split").checks)
    groups, _ = made(tmp_path, distinct(60, g=[n // 2 for n in range(60)]), MULTICLASS, group_on="g")
    times, _ = made(tmp_path, timed(60, [START + datetime.timedelta(days=n) for n in range(60)]), time_on="t")
    found = {check.code: check.name for check in (*groups.checks, *times.checks)}
    assert found == declared


ROWS = {"train": np.arange(14), "validation": np.arange(14, 16), "test": np.arange(16, 20)}
DECLARED = Split(test=0.2, validation=0.1)


def test_gm201_fails_parts_far_from_their_shares() -> None:
    assert split._shares(ROWS, 20, DECLARED).verdict == "passed"
    found = split._shares(ROWS | {"test": np.arange(16, 22), "train": np.arange(12)}, 22, DECLARED)
    assert (found.verdict, found.value) == ("failed", pytest.approx(0.1))
    assert found.text == "train 12, validation 2, test 6 rows; 2 in no part"


@pytest.mark.parametrize(("code", "name"), [("GM202", "equal rows"), ("GM203", "groups")])
def test_gm202_gm203_fail_a_key_in_two_parts(code: str, name: str) -> None:
    keys = np.arange(20)
    assert split._apart(code, name, keys, ROWS, name).verdict == "passed"
    keys[17] = keys[3]
    found = split._apart(code, name, keys, ROWS, name)
    assert (found.code, found.verdict, found.value, found.evaluated) == (code, "failed", 1, 20)
    assert found.cases == ({"train row": 3, "test row": 17},)
    assert found.text == f"1 of 19 {name} stand in more than one part"


def test_gm204_fails_a_row_that_is_too_late_for_its_part() -> None:
    moments = np.arange(20) * 3_600_000_000
    assert split._time_order(moments, ROWS, DECLARED).verdict == "passed"
    for row, moment in ((3, 14), (15, 16), (16, 15), (0, 20)):
        wrong = moments.copy()
        wrong[row] = moments[1] * moment
        assert split._time_order(wrong, ROWS, DECLARED).verdict == "failed"


def test_gm204_fails_a_gap_that_is_not_kept() -> None:
    moments = np.arange(20) * 3_600_000_000
    declared = DECLARED.model_copy(update={"time_on": "t", "gap": "1h"})
    assert split._time_order(moments, ROWS, declared).verdict == "failed"
    apart = {"train": np.arange(12), "validation": np.arange(14, 16), "test": np.arange(18, 20)}
    assert split._time_order(moments, apart, declared).verdict == "passed"


def test_gm205_fails_a_part_that_lacks_a_class() -> None:
    codes = np.array([0, 1] * 10)
    assert split._classes(codes, ROWS).verdict == "passed"
    codes[14:16] = 0
    found = split._classes(codes, ROWS)
    assert (found.verdict, found.value) == ("failed", 1)
    assert found.cases == ({"part": "validation", "classes lacking": 1},)
    assert found.text == "train has 2 of 2 classes; validation has 1 of 2 classes; test has 2 of 2 classes"


def test_s04_a_class_that_one_group_holds_fails_the_classes(tmp_path: Path) -> None:
    groups = [n // 4 for n in range(60)]
    columns = distinct(60, g=groups, y=["rare" if group == 3 else "common" for group in groups])
    result, _ = made(tmp_path, columns, MULTICLASS, group_on="g", stratify_on="y")
    assert check(result, "GM205").verdict == "failed"
