"""The contract of the departures accepts them as they are, and refuses what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import ibis
import pyarrow.parquet as pq
import pytest
from pandera.errors import SchemaErrors

from assets import flights
from checks.flights import Flights
from gristmill import declaration
from gristmill.checks import contract

ROOT = Path(__file__).parents[2]
AFTER = {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"}

Fault = Callable[[ibis.Table], ibis.Table]


@pytest.fixture(scope="module")
def departures(tmp_path_factory: pytest.TempPathFactory) -> ibis.Table:
    file = tmp_path_factory.mktemp("flights") / "flights.parquet"
    pq.write_table(flights.departures(), file)
    return ibis.duckdb.connect().read_parquet(file)


@pytest.fixture(scope="module")
def first_days(departures: ibis.Table) -> ibis.Table:
    return departures.filter((departures.month == 1) & (departures.day <= 3)).cache()


def in_one_row(column: str, value: object) -> Fault:
    """Plant a value in the first departure of the year."""

    def plant(table: ibis.Table) -> ibis.Table:
        first = (table.scheduled_at == datetime(2013, 1, 1, 5, 15)) & (table.flight == 1545)
        planted = ibis.literal(value, table[column].type())
        return table.mutate(**{column: ibis.ifelse(first, planted, table[column])})

    return plant


def test_the_real_departures_are_accepted(departures: ibis.Table) -> None:
    found = contract.check(departures, "checks.flights:Flights", ROOT)
    assert (found.verdict, found.rows) == ("passed", 336_776)


@pytest.mark.parametrize(
    ("fault", "column", "rule"),
    [
        (in_one_row("distance", -200), "distance", "greater_than_or_equal_to(1)"),
        (in_one_row("origin", "BOS"), "origin", "isin(['EWR', 'JFK', 'LGA'])"),
        (in_one_row("carrier", "XX"), "carrier", "isin(['9E', 'AA'"),
        (in_one_row("dest", "Boston"), "dest", "str_matches"),
        (in_one_row("wind_speed", 1048.36), "wind_speed", "less_than_or_equal_to(150)"),
        (in_one_row("day_of_week", 0), "day_of_week", "greater_than_or_equal_to(1)"),
        (in_one_row("scheduled_at", datetime(2014, 1, 1)), "scheduled_at", "less_than(2014"),
        (in_one_row("late", None), "Flights", "late_is_arrival_delay"),
        (lambda table: table.mutate(late=~table.late), "Flights", "late_is_arrival_delay"),
        (lambda table: table.mutate(flight=table.flight.cast("int32")), "flight", "dtype('int64')"),
    ],
)
def test_a_planted_fault_is_refused(first_days: ibis.Table, fault: Fault, column: str, rule: str) -> None:
    with pytest.raises(SchemaErrors) as refused:
        Flights.to_schema().validate(fault(first_days), lazy=True)
    ((name, broken),) = [(error.schema.name, str(error.check)) for error in refused.value.schema_errors]
    assert name == column
    assert rule in broken


def test_a_missing_column_is_refused(first_days: ibis.Table) -> None:
    with pytest.raises(SchemaErrors, match="column 'dest' not found"):
        Flights.to_schema().validate(first_days.drop("dest"), lazy=True)


def test_more_columns_are_allowed(first_days: ibis.Table) -> None:
    Flights.to_schema().validate(first_days.mutate(gate=ibis.literal("A1")), lazy=True)


def test_five_columns_are_known_only_afterwards() -> None:
    assert contract.known_after("checks.flights:Flights", ROOT) == AFTER


def test_the_declaration_leaves_out_what_is_known_only_afterwards() -> None:
    spec = declaration.read(ROOT / "pipelines" / "flights" / "defs.yaml").spec
    assert set(spec.features.exclude) >= AFTER
    assert spec.contract == "checks.flights:Flights"


def test_every_column_is_described_and_of_the_table(departures: ibis.Table) -> None:
    columns = Flights.to_schema().columns
    assert list(columns) == list(departures.columns)
    assert [name for name, column in columns.items() if not (column.description or "").endswith(".")] == []
