import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gristmill import profile, tables
from gristmill.profile import BINS, FEW, TOP
from tests.conftest import work_on

NAN, INF = float("nan"), float("inf")


def facts_of(root: Path, column: Any) -> dict[str, Any]:
    """The facts of one column of a snapshot."""
    root.mkdir(exist_ok=True)
    rows = len(column)
    work = work_on(root, {"x": column, "z": [1] * rows, "y": [0.5] * rows}, features={"exclude": ["x"]})
    found, counted = profile.of(tables.scan(work.snapshot), ["x"])
    assert (list(found), counted) == (["x"], rows)
    return found["x"]


def test_a_column_of_numbers(tmp_path: Path) -> None:
    assert facts_of(tmp_path, [1.5, NAN, None, 4.0, 1.5]) == {
        "type": "float64",
        "missing": 2,
        "distinct": 2,
        "top": [[1.5, 2], [4.0, 1]],
        "infinite": 0,
        "min": 1.5,
        "max": 4.0,
        "mean": pytest.approx(7 / 3),
    }


def test_a_column_of_text_has_no_extremes(tmp_path: Path) -> None:
    assert facts_of(tmp_path, ["b", "a", None, "b"]) == {
        "type": "string",
        "missing": 1,
        "distinct": 2,
        "top": [["b", 2], ["a", 1]],
    }


def test_a_column_of_truth_values(tmp_path: Path) -> None:
    found = facts_of(tmp_path, [True, False, True])
    assert found == {"type": "boolean", "missing": 0, "distinct": 2, "top": [[True, 2], [False, 1]]}


def test_infinite_values_are_counted_and_are_no_extremes_that_json_could_not_hold(tmp_path: Path) -> None:
    found = facts_of(tmp_path, [1.0, INF, -1.0, -INF])
    assert (found["infinite"], found["min"], found["max"], found["mean"]) == (2, None, None, None)
    assert found["top"] == [["-inf", 1], [-1.0, 1], [1.0, 1], ["inf", 1]]


def test_a_column_without_values(tmp_path: Path) -> None:
    assert facts_of(tmp_path, pa.array([None, None], pa.float64())) == {
        "type": "float64",
        "missing": 2,
        "distinct": 0,
        "top": [],
        "infinite": 0,
        "min": None,
        "max": None,
        "mean": None,
    }


def test_negative_zero_is_zero(tmp_path: Path) -> None:
    found = facts_of(tmp_path, [0.0, -0.0, 1.0])
    assert (found["distinct"], found["top"][0]) == (2, [0.0, 2])


def test_integers_beyond_floats_keep_their_digits(tmp_path: Path) -> None:
    found = facts_of(tmp_path, [9007199254740993, 1])
    assert (found["min"], found["max"]) == (1, 9007199254740993)


def test_moments_are_written_in_iso_8601(tmp_path: Path) -> None:
    day = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
    moments = [day + datetime.timedelta(hours=hour) for hour in range(40)]
    found = facts_of(tmp_path, pa.array(moments, pa.timestamp("us", tz="UTC")))
    assert (found["min"], found["max"]) == ("2026-03-01T00:00:00+00:00", "2026-03-02T15:00:00+00:00")
    assert found["histogram"]["rows"] == [2] * BINS


def test_a_histogram_has_stretches_of_equal_width_between_the_extremes(tmp_path: Path) -> None:
    found = facts_of(tmp_path, [*range(100), 0, None])
    assert found["histogram"] == {"from": 0, "to": 99, "rows": [6, *[5] * (BINS - 1)]}
    assert found["top"][0] == [0, 2]
    assert len(found["top"]) == TOP


def test_the_number_of_many_values_is_an_estimate_that_says_so(tmp_path: Path) -> None:
    few = facts_of(tmp_path / "few", list(range(FEW // 2)))
    assert (few["distinct"], "distinct_is_estimate" in few) == (FEW // 2, False)
    many = facts_of(tmp_path / "many", list(range(FEW * 4)))
    assert many["distinct_is_estimate"]
    assert many["distinct"] == pytest.approx(FEW * 4, rel=0.1)
    assert "top" not in many
    assert sum(many["histogram"]["rows"]) == FEW * 4


def test_the_mean_is_that_of_all_rows_however_they_are_grouped(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(3, 1, tables.GROUP_ROWS * 2 + 17)
    values[::7] = NAN
    assert facts_of(tmp_path, values)["mean"] == pytest.approx(np.nanmean(values), rel=1e-12)


def test_the_share_of_the_most_frequent_value() -> None:
    assert profile.top_share({"top": [["a", 3], ["b", 1]]}, 5) == 0.6
    assert profile.top_share({"top": []}, 5) is None
    assert profile.top_share({"distinct": 1_000_000}, 5_000_000) is None
