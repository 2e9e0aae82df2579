"""The workspace's own assets make the tables that its pipelines declare, the same bytes each time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from assets import examples, flights

SCHEDULED = 336_776


@pytest.fixture(scope="module")
def departures() -> pa.Table:
    return flights.departures()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """The package's files as tables, to compare the joined one with."""
    with duckdb.connect() as connection:
        flights.load(connection, tmp_path_factory.mktemp("source"))
        yield connection


def parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def missing(table: pa.Table, column: str) -> int:
    return int(table[column].null_count)


def values(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[object, ...]:
    return tuple(connection.sql(query).fetchall()[0])


def test_each_departure_is_one_row(departures: pa.Table, source: duckdb.DuckDBPyConnection) -> None:
    assert departures.num_rows == SCHEDULED
    key = ["scheduled_at", "carrier", "flight", "origin", "dest"]
    assert departures.select(key).group_by(key).aggregate([]).num_rows == SCHEDULED
    query = "SELECT sum(distance), sum(air_time), sum(arr_delay), count(tailnum) FROM flights"
    before = values(source, query)
    joined = [pc.sum(departures[name]).as_py() for name in ("distance", "air_time", "arr_delay")]
    assert (*joined, SCHEDULED - missing(departures, "tailnum")) == before


def test_what_it_joins_stands_once(source: duckdb.DuckDBPyConnection) -> None:
    hours = "SELECT count(*), count(DISTINCT (origin, time_hour)) FROM weather"
    assert values(source, hours) == (26_115, 26_115)
    assert values(source, "SELECT count(*) - count(DISTINCT tailnum) FROM planes") == (0,)
    assert values(source, "SELECT count(*) - count(DISTINCT faa) FROM airports") == (0,)
    # The local hour would not do: it stands twice when summer time ends.
    local = "SELECT count(*) - count(DISTINCT (origin, month, day, hour)) FROM weather"
    assert values(source, local) == (3,)


def test_weather_is_that_of_the_hour_before(departures: pa.Table, source: duckdb.DuckDBPyConnection) -> None:
    # UA 1545 leaves Newark on 1 January at 5:15; the report of its hour is written at 5:51.
    first = departures.slice(0, 1).to_pylist()[0]
    assert (first["carrier"], first["flight"], first["origin"]) == ("UA", 1545, "EWR")
    query = "SELECT temp, wind_speed FROM weather WHERE origin = 'EWR' AND time_hour = TIMESTAMP '{}'"
    assert values(source, query.format("2013-01-01 09:00")) == (first["temp"], first["wind_speed"])
    assert values(source, query.format("2013-01-01 10:00")) != (first["temp"], first["wind_speed"])


def test_outcomes_are_all_there(departures: pa.Table) -> None:
    outcomes = {name: missing(departures, name) for name in ("dep_time", "dep_delay", "arr_time")}
    assert outcomes == {"dep_time": 8255, "dep_delay": 8255, "arr_time": 8713}
    assert missing(departures, "arr_delay") == missing(departures, "air_time") == 9430


def test_late_is_missing_exactly_where_the_arrival_delay_is(departures: pa.Table) -> None:
    late, delay = departures["late"], departures["arr_delay"]
    assert pc.equal(pc.is_null(late), pc.is_null(delay)) == pa.chunked_array(
        [pa.array([True] * len(chunk)) for chunk in late.chunks]
    )
    assert pc.sum(late).as_py() == pc.sum(pc.greater(delay, 15)).as_py() == 77_630


def test_texts_of_missing_values_are_gone(departures: pa.Table) -> None:
    texts = [field.name for field in departures.schema if pa.types.is_string(field.type)]
    assert texts == ["carrier", "tailnum", "origin", "dest", "plane_type", "manufacturer", "model", "engine"]
    assert not any(pc.any(pc.equal(departures[name], "NA")).as_py() for name in texts)
    assert missing(departures, "tailnum") == 2512


@pytest.mark.parametrize(
    ("dest", "shortest", "longest"),
    [("LAX", 336, 402), ("PHX", 297, 359), ("HNL", 630, 700), ("SJU", 219, 260), ("BOS", 60, 108)],
)
def test_scheduled_duration_allows_for_time_zones(
    departures: pa.Table, dest: str, shortest: int, longest: int
) -> None:
    found = pc.min_max(departures.filter(pc.equal(departures["dest"], dest))["sched_duration"]).as_py()
    assert found == {"min": shortest, "max": longest}


def test_rows_are_in_the_order_of_time(departures: pa.Table) -> None:
    order = [(name, "ascending") for name in ("scheduled_at", "carrier", "flight", "origin", "dest")]
    assert pc.sort_indices(departures, sort_keys=order).to_pylist() == list(range(SCHEDULED))


def test_types_are_those_of_a_snapshot(departures: pa.Table) -> None:
    plain = {"int64", "double", "string", "bool", "timestamp[us]"}
    assert {str(field.type) for field in departures.schema} == plain


def test_two_calls_give_equal_bytes(departures: pa.Table) -> None:
    assert parquet(flights.departures()) == parquet(departures)
    for make in (examples.digits, examples.diabetes):
        assert parquet(make()) == parquet(make())


def test_digits_are_1797_pictures() -> None:
    table = examples.digits()
    assert table.num_rows == 1797
    assert table.column_names[:2] == ["pixel_0_0", "pixel_0_1"]
    assert table.column_names[-2:] == ["pixel_7_7", "digit"]
    assert set(table["digit"].to_pylist()) == set("0123456789")
    assert {str(field.type) for field in table.schema} == {"double", "string"}
    assert sum(table[name].null_count for name in table.column_names) == 0


def test_diabetes_are_442_patients() -> None:
    table = examples.diabetes()
    assert table.num_rows == 442
    assert table.column_names == ["age", "sex", "bmi", "bp", *(f"s{n}" for n in range(1, 7)), "progression"]
    assert set(table["sex"].to_pylist()) == {"1", "2"}
    assert pc.min_max(table["progression"]).as_py() == {"min": 25.0, "max": 346.0}
    assert table["age"][0].as_py() == 59.0


def test_assets_say_who_owns_them_and_where_they_go() -> None:
    for asset in (flights.flights, examples.digits, examples.diabetes):
        (spec,) = asset.specs
        assert spec.group_name == "raw"
        assert spec.owners == ["team:examples"]
        assert spec.kinds == {"parquet"}
        assert spec.description
        assert asset.get_io_manager_key_for_asset_key(spec.key) == "table"
    keys = {
        spec.key for asset in (flights.flights, examples.digits, examples.diabetes) for spec in asset.specs
    }
    assert keys == {dg.AssetKey(["raw", name]) for name in ("flights", "digits", "diabetes")}


def test_loading_the_assets_is_light() -> None:
    for module in (flights, examples):
        text = Path(str(module.__file__)).read_text()
        assert "import pandas" not in text
        assert "\nimport sklearn" not in text
        assert "\nfrom sklearn" not in text
