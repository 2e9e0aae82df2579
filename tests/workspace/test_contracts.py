"""The contract of the departures accepts them as they are, and refuses what cannot be."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pandera.errors import SchemaErrors

from assets import flights
from checks.flights import Flights
from gristmill import declaration
from gristmill.checks import contract
from gristmill.tables import ROW_ID

ROOT = Path(__file__).parents[2]
AFTER = {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"}

FAULTS: dict[str, tuple[object, str]] = {
    "scheduled_at": (datetime(2014, 1, 1), "less_than"),
    "day_of_week": (0, "greater_than_or_equal_to"),
    "carrier": ("XX", "isin"),
    "origin": ("BOS", "isin"),
    "dest": ("Boston", "str_matches"),
    "distance": (-200, "greater_than_or_equal_to"),
    "seats": (0, "greater_than_or_equal_to"),
    "wind_speed": (1048.36, "less_than_or_equal_to"),
}


@pytest.fixture(scope="module")
def departures(tmp_path_factory: pytest.TempPathFactory) -> ibis.Table:
    return on_duckdb(flights.departures(), tmp_path_factory.mktemp("flights"))


@pytest.fixture(scope="module")
def first_days(departures: ibis.Table, tmp_path_factory: pytest.TempPathFactory) -> ibis.Table:
    return on_duckdb(departures.limit(2500).to_pyarrow(), tmp_path_factory.mktemp("first_days"))


def on_duckdb(table: pa.Table, folder: Path) -> ibis.Table:
    pq.write_table(table, folder / "flights.parquet")
    return ibis.duckdb.connect().read_parquet(folder / "flights.parquet")


def test_the_real_departures_are_accepted(departures: ibis.Table) -> None:
    snapshot = departures.mutate(**{ROW_ID: ibis.row_number()})
    found = contract.check(snapshot, "checks.flights:Flights", ROOT)
    assert (found.verdict, found.evaluated) == ("passed", 336_776)


def test_planted_faults_are_refused_one_by_one(first_days: ibis.Table) -> None:
    first = (first_days.scheduled_at == datetime(2013, 1, 1, 5, 15)) & (first_days.flight == 1545)
    planted = {
        name: ibis.ifelse(first, ibis.literal(value, first_days[name].type()), first_days[name])
        for name, (value, _) in FAULTS.items()
    }
    broken = broken_rules(first_days.mutate(**planted))
    assert broken == [(name, rule) for name, (_, rule) in FAULTS.items()]


def test_a_target_that_does_not_follow_is_refused(first_days: ibis.Table) -> None:
    assert broken_rules(first_days.mutate(late=~first_days.late)) == [("Flights", "late_is_arrival_delay")]
    filled = first_days.mutate(late=first_days.late.fill_null(False))
    assert broken_rules(filled) == [("Flights", "late_is_arrival_delay")]


def test_a_column_of_another_type_is_refused(first_days: ibis.Table) -> None:
    narrow = first_days.mutate(flight=first_days.flight.cast("int32"))
    assert broken_rules(narrow) == [("flight", "dtype('int64')")]


def broken_rules(table: ibis.Table) -> list[tuple[str, str]]:
    with pytest.raises(SchemaErrors) as refused:
        Flights.to_schema().validate(table, lazy=True)
    errors = refused.value.schema_errors
    return [(error.schema.name, str(getattr(error.check, "name", error.check))) for error in errors]


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
