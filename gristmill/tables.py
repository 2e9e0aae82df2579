"""Snapshots as tables: DuckDB reads and counts, Arrow carries, Ibis is the checks' language."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.errors import DataError
from gristmill.spec import PipelineSpec

ROW_ID = "_row"
GROUP_ROWS = 65_536
PART_ROWS = 8 * GROUP_ROWS


@dataclass(frozen=True)
class SourceTable:
    """A source opened for reading: its columns and its rows, batch by batch, in a stable order."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    facts: dict[str, Any]


def write_parts(folder: Path, source: SourceTable) -> int:
    """Write rows as Parquet parts with a private row id, and return their number.

    The same rows give the same bytes: fixed part and group sizes, one writer, no time stamps.
    """
    folder.mkdir(parents=True)
    schema = pa.schema([pa.field(ROW_ID, pa.int64(), nullable=False), *plain(source.schema)])
    # Extremes leave NaN out, and DuckDB 2.0 skips the row groups whose extremes are ordinary numbers:
    # `WHERE isnan(x)` would find none. Columns that can hold NaN have no statistics to be misled by.
    statistics = [field.name for field in schema if not pa.types.is_floating(field.type)]
    rows = 0
    writer: pq.ParquetWriter | None = None
    try:
        for group in _groups(source.batches, schema):
            if rows % PART_ROWS == 0:
                if writer is not None:
                    writer.close()
                file = folder / f"part-{rows // PART_ROWS:05d}.parquet"
                writer = pq.ParquetWriter(file, schema, compression="zstd", write_statistics=statistics)
            assert writer is not None
            ids = pa.array(np.arange(rows, rows + group.num_rows), pa.int64())
            writer.write_table(group.add_column(0, schema.field(0), ids))
            rows += group.num_rows
    finally:
        if writer is not None:
            writer.close()
    return rows


def _groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows in tables of GROUP_ROWS, the last one shorter, however the source cut its batches."""
    fields = list(schema)[1:]
    waiting: list[pa.RecordBatch] = []
    room = GROUP_ROWS
    for whole in batches:
        columns = [_cast(column, field) for column, field in zip(whole.columns, fields, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        while batch.num_rows:
            piece, batch = batch.slice(0, room), batch.slice(room)
            waiting.append(piece)
            room -= piece.num_rows
            if room == 0:
                yield pa.Table.from_batches(waiting).combine_chunks()
                waiting, room = [], GROUP_ROWS
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"column {field.name!r} cannot be held without loss: {str(error).splitlines()[0]}; round it upstream"
        ) from error


def plain(schema: pa.Schema) -> pa.Schema:
    """A source's columns as a snapshot holds them; raises DataError for a type it cannot hold."""
    return pa.schema([_plain(field) for field in schema])


def _plain(field: pa.Field) -> pa.Field:
    """The field in the few types a snapshot has, none of which loses a value."""
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_string(kind):
        kind = pa.string()
    elif pa.types.is_timestamp(kind):
        kind = pa.timestamp("us", tz="UTC" if kind.tz else None)
    elif pa.types.is_float16(kind):
        kind = pa.float32()
    elif pa.types.is_null(kind):
        kind = pa.string()
    elif not (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
    ):
        raise DataError(
            f"column {field.name!r} must hold numbers, text, truth values or times, however it holds "
            f"{kind}; turn it into such columns upstream"
        )
    return pa.field(field.name, kind)


def schema_of(snapshot: Path) -> pa.Schema:
    """The snapshot's columns, the row id first."""
    return pq.read_schema(next(iter(sorted(snapshot.glob("*.parquet")))))


def scan(snapshot: Path) -> ibis.Table:
    """The snapshot as an Ibis table on an embedded DuckDB; nothing is read before it is asked for."""
    return ibis.duckdb.connect().read_parquet(sorted(map(str, snapshot.glob("*.parquet"))))


def read(snapshot: Path, columns: Iterable[str], rows: pa.Array | None = None) -> pa.Table:
    """Columns of the snapshot in row order; only the rows with the given ids where some are given."""
    files = sorted(map(str, snapshot.glob("*.parquet")))
    table = pq.ParquetDataset(files).read(columns=list(columns))
    # Row ids count from 0 in the order of the rows, so an id is also a position.
    return table if rows is None else table.take(rows)


def read_sample(snapshot: Path, columns: Iterable[str], rows: np.ndarray) -> pa.Table:
    """Columns of the rows with the given ids, which must ascend; no more than a row group is held beside them."""
    wanted = list(columns)
    pieces = []
    first = 0
    for file in sorted(snapshot.glob("*.parquet")):
        parquet = pq.ParquetFile(file)
        for group in range(parquet.num_row_groups):
            last = first + parquet.metadata.row_group(group).num_rows
            low, high = np.searchsorted(rows, [first, last])
            if low < high:
                table = parquet.read_row_group(group, columns=wanted)
                pieces.append(table.select(wanted).take(pa.array(rows[low:high] - first)))
            first = last
    return pa.concat_tables(pieces) if pieces else read(snapshot, wanted).slice(0, 0)


def draw(ids: np.ndarray | int, most: int, seed: int) -> np.ndarray:
    """At most `most` of the ids, drawn at random, in ascending order; all of them where they are no more.

    A number stands for the ids below it, of which only those that are drawn take room.
    """
    if isinstance(ids, int):
        if ids <= most:
            return np.arange(ids)
    elif len(ids) <= most:
        return ids
    return np.sort(np.random.default_rng(seed).choice(ids, most, replace=False))


def row_hashes(snapshot: Path, columns: Iterable[str]) -> np.ndarray:
    """A 64-bit hash of each row over the given columns, in row order: equal rows have equal hashes.

    NaN counts as missing and -0.0 as 0.0.
    """
    schema = schema_of(snapshot)
    parts = []
    for name in columns:
        column = quote(name)
        if pa.types.is_floating(schema.field(name).type):
            column = f"CASE WHEN isnan({column}) THEN NULL ELSE {column} + 0.0 END"
        parts.append(column)
    return hashed(snapshot, f"hash({', '.join(parts)})")


def hashed(snapshot: Path, expression: str) -> np.ndarray:
    """A 64-bit unsigned number a row, in row order: what an SQL expression over the columns gives."""
    files = sorted(map(str, snapshot.glob("*.parquet")))
    found = np.empty(num_rows(snapshot), dtype=np.uint64)
    with duckdb.connect() as connection:
        # The row id says where a value belongs, so that DuckDB need neither sort nor keep an order.
        connection.execute("SET preserve_insertion_order = false")
        relation = connection.sql(
            f"SELECT {quote(ROW_ID)} AS place, {expression} AS value FROM read_parquet($files)",
            params={"files": files},
        )
        for batch in relation.to_arrow_reader(1_000_000):
            found[batch["place"].to_numpy()] = batch["value"].to_numpy()
    return found


def num_rows(snapshot: Path) -> int:
    """The rows of the snapshot, from its files' footers."""
    return sum(pq.read_metadata(file).num_rows for file in snapshot.glob("*.parquet"))


@dataclass(frozen=True)
class Roles:
    """Which column plays which part, after the declaration met the table."""

    target: str
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]

    @property
    def features(self) -> tuple[str, ...]:
        return (*self.numeric, *self.categorical)


def roles(spec: PipelineSpec, schema: pa.Schema) -> Roles:
    """Give each column its role; raises DataError with everything that does not fit, one a line."""
    present = [name for name in schema.names if name != ROW_ID]
    problems: list[str] = []

    def check(where: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in present:
                problems.append(f"{where}: no column {name!r} in the data; {_nearest(name, present)}")

    split = spec.split
    check("task.target", [spec.task.target])
    check("features.include", spec.features.include)
    check("features.exclude", spec.features.exclude)
    check("features.categorical", spec.features.categorical)
    check("validation.missing.columns", spec.validation.missing.columns)
    check("validation.duplicates.key", spec.validation.duplicates.key)
    for role in ("time_on", "group_on", "stratify_on"):
        check(f"split.{role}", [name] if (name := getattr(split, role)) else [])
    if problems:
        raise DataError("\n".join(problems))
    if split.time_on and not pa.types.is_temporal(schema.field(split.time_on).type):
        problems.append(
            f"split.time_on: {split.time_on!r} must be a date or timestamp, however it is "
            f"{schema.field(split.time_on).type}"
        )
    taken = {spec.task.target, split.time_on, split.group_on, *spec.features.exclude}
    wanted = [name for name in (spec.features.include or present) if name not in taken]
    numeric: list[str] = []
    categorical: list[str] = []
    for name in wanted:
        kind = schema.field(name).type
        if pa.types.is_temporal(kind):
            problems.append(
                f"features: {name!r} is a {kind} and no amount; add it to features.exclude, or derive "
                "numbers such as the hour upstream"
            )
        elif name in spec.features.categorical or pa.types.is_string(kind):
            categorical.append(name)
        else:
            numeric.append(name)
    if not wanted:
        problems.append("features: none is left; at least 1 is needed")
    if problems:
        raise DataError("\n".join(problems))
    return Roles(spec.task.target, tuple(numeric), tuple(categorical))


def _nearest(name: str, present: list[str]) -> str:
    by_lower = {other.lower(): other for other in present}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"did you mean {by_lower[close[0]]!r}?" if close else f"its columns are {listed(present)}"


def listed(names: list[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def quote(name: str) -> str:
    """A column's name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'
