"""Rows of a query on a DuckDB or SQLite file, in a stable order."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
import pyarrow as pa

from gristmill.declaration import resolve_environment
from gristmill.errors import DataError, InputError
from gristmill.sources.rows import first_line, from_duckdb, refuse_twins
from gristmill.spec import SqlSource
from gristmill.tables import SourceTable, listed, quote
from gristmill.workspace import Workspace


def read(source: SqlSource, workspace: Workspace) -> SourceTable:
    connection = resolve_environment(source.connection)
    scheme, _, path = connection.partition(":///")
    file = (workspace.root / path).resolve()
    if scheme not in ("duckdb", "sqlite") or not path:
        raise InputError("source.connection must be duckdb:///FILE or sqlite:///FILE, however it is another")
    if not file.is_file():
        raise DataError(f"source.connection: {scheme} file {path} must be there, however it is not")
    return _duckdb_query(source, file) if scheme == "duckdb" else _sqlite_query(source, file)


def _ordered(source: SqlSource, names: list[str]) -> str:
    if unknown := [name for name in source.order_by if name not in names]:
        raise DataError(f"source.order_by: no column {unknown[0]!r}; the query has {listed(names)}")
    # The other columns decide between rows that are equal in the declared ones.
    rest = [name for name in names if name not in source.order_by]
    return ", ".join(quote(name) for name in (*source.order_by, *rest))


def _duckdb_query(source: SqlSource, file: Path) -> SourceTable:
    try:
        connection = duckdb.connect(str(file), read_only=True)
        names = connection.execute(f"DESCRIBE {_inner(source)}").fetchall()
        columns = [str(name[0]) for name in names]
        refuse_twins(columns, "source.sql")
        ordered = connection.sql(f"SELECT * FROM ({_inner(source)}\n) ORDER BY {_ordered(source, columns)}")
        return from_duckdb(ordered, {"format": "duckdb"}, "source.sql")
    except duckdb.Error as error:
        raise DataError(f"source.sql: {first_line(error)}") from error


def _inner(source: SqlSource) -> str:
    return source.sql.strip().removesuffix(";")


def _sqlite_query(source: SqlSource, file: Path) -> SourceTable:
    # sqlite3 of the standard library: DuckDB's own reader of SQLite files is an extension that is
    # downloaded at run time. SQLite types each value, so a column's type follows from all of them.
    connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    try:
        names = [column[0] for column in connection.execute(_inner(source)).description or ()]
        refuse_twins(names, "source.sql")
        rows = connection.execute(
            f"SELECT * FROM ({_inner(source)}\n) ORDER BY {_ordered(source, names)}"
        ).fetchall()
    except sqlite3.Error as error:
        raise DataError(f"source.sql: {first_line(error)}") from error
    finally:
        connection.close()
    arrays = []
    for index, name in enumerate(names):
        values = [row[index] for row in rows]
        kinds = {type(value) for value in values if value is not None}
        if kinds == {int, float}:
            if lost := [value for value in values if type(value) is int and int(float(value)) != value]:
                raise DataError(f"source.sql: column {name!r}: {lost[0]} would lose digits beside numbers")
            values = [None if value is None else float(value) for value in values]
        elif len(kinds) > 1 or bytes in kinds:
            shown = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise DataError(f"source.sql: column {name!r} must hold one type, however it holds {shown}")
        arrays.append(pa.array(values, pa.string() if not kinds else None))
    table = pa.table(arrays, names=names)
    return SourceTable(table.schema, iter(table.to_batches(65_536)), {"format": "sqlite"})
