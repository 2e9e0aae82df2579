"""The source's rows as Parquet parts, in a stable order, with a private row id."""

from __future__ import annotations

from gristmill import sources, tables
from gristmill.errors import DataError
from gristmill.records import Check
from gristmill.work import Made, Work


def make(work: Work) -> Made:
    """Copy the source; raises DataError where it cannot be read, has no row or lacks a declared column."""
    source = sources.open_source(work.spec, work.workspace)
    tables.roles(work.spec, tables.plain(source.schema))
    # `output` exists and is empty; the parts are written beside it and take its place.
    work.output.rmdir()
    rows = tables.write_parts(work.output, source)
    if rows == 0:
        raise DataError("the source must have at least 1 row, however it has 0")
    columns = len(source.schema)
    check = Check(
        "GM001", "readable", "passed", rows, f"{rows:,} rows and {columns} columns, typed without loss"
    )
    return Made((check,), {"rows": rows, "columns": columns})
