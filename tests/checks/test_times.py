import numpy as np

from gristmill.checks import times
from gristmill.spec.validation import TimeGapsCheck


def moments(*hours: int) -> np.ndarray:
    return np.datetime64("2024-01-01T00:00:00", "us") + np.array(hours) * np.timedelta64(3600, "s")


def test_a_month_without_rows_warns() -> None:
    found = times.gaps(moments(*range(200), *range(200 + 720, 400 + 720)), "at", TimeGapsCheck())
    assert (found.code, found.verdict, found.evaluated) == ("GM126", "warned", 399)
    assert (found.value, found.limit) == (721, 4)
    assert found.text == (
        "1 stretches of at without a row; the longest is 30.04d from 2024-01-09T07:00:00, usual is 1h"
    )
    assert found.cases == ({"from": "2024-01-09T07:00:00", "to": "2024-02-08T08:00:00", "length": "30.04d"},)


def test_nights_and_weekends_without_rows_are_no_gaps() -> None:
    days = [day for day in range(140) if day % 7 < 5]
    found = times.gaps(
        moments(*(24 * day + hour for day in days for hour in range(8, 18))), "at", TimeGapsCheck()
    )
    assert found.verdict == "passed"
    assert found.text == (
        "the longest stretch of at without a row is 2.625d from 2024-01-05T17:00:00; usual is 2.625d"
    )


def test_a_day_without_rows_is_one_among_nights_without_them() -> None:
    hours = [24 * day + hour for day in range(60) if day != 31 for hour in range(6, 24)]
    found = times.gaps(moments(*hours), "at", TimeGapsCheck())
    assert (found.verdict, found.value, len(found.cases)) == ("warned", 4.428571, 1)
    assert found.cases[0]["from"] == "2024-01-31T23:00:00"


def test_a_year_without_rows_is_one_among_months() -> None:
    months = np.array(
        [f"{year}-{month:02}-01" for year in range(2000, 2010) if year != 2005 for month in range(1, 13)]
    )
    found = times.gaps(months.astype("datetime64[us]"), "at", TimeGapsCheck())
    assert (found.verdict, found.cases[0]["from"]) == ("warned", "2004-12-01T00:00:00")


def test_few_moments_are_not_judged() -> None:
    assert (
        times.gaps(moments(1, 2, 3), "at", TimeGapsCheck()).text
        == "not judged: at has 3 moments, 10 are needed"
    )
    assert times.gaps(moments(1, 2), "at", TimeGapsCheck(severity="fail")).verdict == "not verified"
