"""Rows on their way from a reader: names nobody can mistake, and one line where reading fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from gristmill.errors import DataError
from gristmill.tables import ROW_ID, SourceTable


def from_duckdb(relation: duckdb.DuckDBPyRelation, facts: dict[str, Any], shown: object) -> SourceTable:
    reader = relation.to_arrow_reader(65_536)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise DataError(f"{shown}: {reason(error)}") from error

    return SourceTable(reader.schema, batches(), facts)


def refuse_twins(names: list[str], shown: object) -> None:
    first: dict[str, str] = {}
    for name in names:
        if name.lower() == ROW_ID:
            raise DataError(f"{shown}: column name {name!r} is gristmill's own; rename it")
        # SQL does not tell them apart, so a check would look at one of them twice.
        if first.setdefault(name.lower(), name) != name:
            raise DataError(
                f"{shown}: column names {first[name.lower()]!r} and {name!r} differ in case only; rename one"
            )
    for name in names:
        if names.count(name) > 1:
            places = ", ".join(str(place) for place, other in enumerate(names, start=1) if other == name)
            raise DataError(
                f"{shown}: column name {name!r} appears {names.count(name)} times (positions {places})"
            )


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def reason(error: BaseException) -> str:
    """What DuckDB says of a text file, in a line."""
    text = str(error)
    if place := re.search(r"CSV Error on Line: (\d+)", text):
        line = f"line {place[1]}"
        if fields := re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text):
            return f"{line} has {fields[2]} fields, header has {fields[1]}"
        if "not utf-8" in text:
            return f"{line} is not UTF-8; declare source.encoding"
        if "unterminated quote" in text:
            return f"{line} opens a quote that is never closed"
        return f"{line} cannot be read as delimited text"
    if "state machine reached an invalid state" in text:
        return "must end all lines in one way and quote with double quotes, however a line does not"
    return first_line(error)
