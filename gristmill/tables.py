"""Sources and snapshots as tables: DuckDB reads and counts, Arrow carries, Ibis is the checks' language."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import shutil
import sqlite3
import tempfile
import weakref
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.declaration import resolve_environment
from gristmill.errors import DataError, InputError
from gristmill.files import disk_faults
from gristmill.spec import AssetSource, PathSource, PipelineSpec, SqlSource
from gristmill.workspace import Workspace

ROW_ID = "_row"
GROUP_ROWS = 65_536
PART_ROWS = 8 * GROUP_ROWS
MAX_EXPANDED = 4 << 30
_SUFFIXES = {"csv": "csv", "tsv": "tsv", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet"}
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class SourceTable:
    """A source opened for reading: its columns and its rows, batch by batch, in a stable order."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    facts: dict[str, Any]


def open_source(spec: PipelineSpec, workspace: Workspace) -> SourceTable:
    """Open a declaration's source; raises DataError naming the file, row or column that is not right."""
    source = spec.source
    if isinstance(source, AssetSource):
        file = workspace.asset_table(source.asset)
        if not file.is_file():
            raise DataError(
                f"source.asset {source.asset} must be materialized, however it has no table yet; "
                f"materialize it in Dagster or run `gristmill run`"
            )
        return _parquet([file], workspace)
    if isinstance(source, SqlSource):
        return _query(source, workspace)
    found = _source_files(source, workspace)
    kind = _format(source, found[0])
    if kind == "parquet":
        if source.types:
            raise DataError("source.types is for text files, however Parquet files say their own types")
        return _parquet(found, workspace)
    plain_files, unpacked = _text_files(source, found, workspace)
    try:
        read_text = _json_lines if kind == "jsonl" else _delimited
        table = read_text(source, kind, plain_files, [workspace.shown(file) for file in found])
    except BaseException:
        if unpacked is not None:
            shutil.rmtree(unpacked, ignore_errors=True)
        raise
    if unpacked is not None:
        weakref.finalize(table.batches, shutil.rmtree, unpacked, ignore_errors=True)
    return table


# The snapshot's side


def write_parts(folder: Path, source: SourceTable) -> int:
    """Write rows as Parquet parts with a private row id, and return their number.

    The same rows give the same bytes: fixed part and group sizes, one writer, no time stamps.
    """
    folder.mkdir(parents=True)
    schema = pa.schema([pa.field(ROW_ID, pa.int64(), nullable=False), *plain(source.schema)])
    rows = 0
    writer: pq.ParquetWriter | None = None
    try:
        for group in _groups(source.batches, schema):
            if rows % PART_ROWS == 0:
                if writer is not None:
                    writer.close()
                file = folder / f"part-{rows // PART_ROWS:05d}.parquet"
                writer = pq.ParquetWriter(file, schema, compression="zstd", write_statistics=True)
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
            f"column {field.name!r} cannot be held without loss: {_first_line(error)}; round it upstream"
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


def row_hashes(snapshot: Path, columns: Iterable[str]) -> np.ndarray:
    """A 64-bit hash of each row over the given columns, in row order: equal rows have equal hashes.

    NaN counts as missing and -0.0 as 0.0.
    """
    schema = schema_of(snapshot)
    parts = []
    for name in columns:
        column = _quote(name)
        if pa.types.is_floating(schema.field(name).type):
            column = f"CASE WHEN isnan({column}) THEN NULL ELSE {column} + 0.0 END"
        parts.append(column)
    files = sorted(map(str, snapshot.glob("*.parquet")))
    found = duckdb.execute(
        f"SELECT hash({', '.join(parts)}) AS hash FROM read_parquet($files) ORDER BY {_quote(ROW_ID)}",
        {"files": files},
    )
    return np.asarray(found.fetchnumpy()["hash"])


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
                problems.append(
                    f"{where}: no column {name!r} in the data; its columns are {_listed(present)}"
                )

    split = spec.split
    check("task.target", [spec.task.target])
    check("features.include", spec.features.include)
    check("features.exclude", spec.features.exclude)
    check("features.categorical", spec.features.categorical)
    check("validation.missing.columns", spec.validation.missing.columns)
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


def _listed(names: list[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


# The source's side


def _source_files(source: PathSource, workspace: Workspace) -> list[Path]:
    has_glob = any(sign in source.path for sign in "*?[")
    found = sorted(workspace.root.glob(source.path)) if has_glob else [workspace.root / source.path]
    if not found or not found[0].exists():
        raise DataError(
            f"source.path {source.path} must be there, however nothing is (looked in {workspace.root})"
        )
    for file in found:
        shown = workspace.shown(file)
        if not file.resolve().is_relative_to(workspace.root.resolve()):
            raise DataError(f"{shown} must lie in the workspace, however it leads to {file.resolve()}")
        if not file.is_file():
            raise DataError(f"{shown} must be a regular file, however it is not")
        with file.open("rb") as stream:
            head = stream.read(256)
        if not head:
            raise DataError(f"{shown} must hold data, however the file is empty")
        if head.startswith(b"version https://git-lfs"):
            raise DataError(f"{shown} is a Git LFS pointer, not data; fetch it with `git lfs pull`")
        if head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
            raise DataError(f"{shown} is an HTML page, not data")
    return found


def _format(source: PathSource, file: Path) -> str:
    suffixes = [suffix for suffix in file.name.lower().split(".") if suffix != "gz"][1:]
    found = source.format or (_SUFFIXES.get(suffixes[-1]) if suffixes else None)
    if found is None:
        raise DataError(f"source.format must be declared, however {file.name} does not say what it is")
    return found


def _parquet(found: list[Path], workspace: Workspace) -> SourceTable:
    readers = []
    for file in found:
        with file.open("rb") as stream:
            stream.seek(-min(4, file.stat().st_size), io.SEEK_END)
            if stream.read() != _MAGIC:
                raise DataError(f"{workspace.shown(file)}: no parquet footer (file truncated?)")
        try:
            readers.append(pq.ParquetFile(file))
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{workspace.shown(file)}: {_first_line(error)}") from error
    schema = _without_metadata(readers[0].schema_arrow)
    _refuse_twins(schema.names, workspace.shown(found[0]))
    for file, reader in zip(found, readers, strict=True):
        if not _without_metadata(reader.schema_arrow).equals(schema):
            raise DataError(f"{workspace.shown(file)} must have the columns of {workspace.shown(found[0])}")

    def batches() -> Iterator[pa.RecordBatch]:
        for file, reader in zip(found, readers, strict=True):
            try:
                yield from reader.iter_batches(batch_size=65_536)
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{workspace.shown(file)}: {_first_line(error)}") from error

    return SourceTable(schema, batches(), {"format": "parquet", "files": len(found)})


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _from_duckdb(relation: duckdb.DuckDBPyRelation, facts: dict[str, Any], shown: object) -> SourceTable:
    reader = relation.to_arrow_reader(65_536)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise DataError(f"{shown}: {_reason(error)}") from error

    return SourceTable(reader.schema, batches(), facts)


# Text files


def _text_files(
    source: PathSource, found: list[Path], workspace: Workspace
) -> tuple[list[Path], Path | None]:
    """The files as plain UTF-8, and the folder of the copies where some had to be made.

    A copy is made of what is compressed, so that its checksum is looked at (DuckDB does not), and of
    what has another encoding, for which DuckDB wants an extension that it downloads.
    """
    if source.encoding == "utf-8" and not any(file.suffix.lower() == ".gz" for file in found):
        return found, None
    with disk_faults(workspace.private):
        workspace.private.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=workspace.private, prefix="source-"))
        try:
            copies = [folder / f"{number:05d}" for number in range(len(found))]
            for file, copy in zip(found, copies, strict=True):
                _unpack(file, copy, source.encoding, workspace.shown(file))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return copies, folder


def _unpack(file: Path, copy: Path, encoding: str, shown: Path) -> None:
    limit = max(MAX_EXPANDED, 100 * file.stat().st_size)
    decoder = codecs.getincrementaldecoder(encoding)()
    done = 0
    try:
        with (
            (gzip.open if file.suffix.lower() == ".gz" else open)(file, "rb") as stream,
            copy.open("wb") as out,
        ):
            while chunk := stream.read(1 << 22):
                if done == 0 and encoding != "utf-8" and chunk.startswith(codecs.BOM_UTF8):
                    raise DataError(f"{shown} starts as UTF-8, however source.encoding is {encoding}")
                if done == 0 and encoding == "utf-16" and chunk[:2] not in _UTF16_MARKS:
                    raise DataError(f"{shown} must start with a byte order mark to be read as utf-16")
                done += len(chunk)
                if done > limit:
                    raise DataError(
                        f"{shown}: {file.stat().st_size >> 20} MiB expand to more than {limit >> 20} MiB; "
                        "unpack it yourself if that is right"
                    )
                out.write(chunk if encoding == "utf-8" else decoder.decode(chunk).encode())
            decoder.decode(b"", final=encoding != "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{shown} is not {encoding} near byte {done}; declare source.encoding") from error
    except EOFError as error:
        raise DataError(f"{shown}: compressed data ends early") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{shown}: compressed data is damaged ({_first_line(error)})") from error


_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


# Text is read as text first: what a column is follows from all of its values, and a value that a
# type would change (an id with a leading zero, twenty digits) keeps the column text.

_INTEGER = r"[+-]?(0|[1-9][0-9]*)"
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|NaN|Inf)"
_LEADING_ZERO = r"[+-]?0[0-9].*"
_LONG = r"[+-]?[0-9]{16,}"
_DATE = r"\d{4}-\d{2}-\d{2}"
_CLOCK = _DATE + r"[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?"
_ZONED = _CLOCK + r"(Z|[+-]\d{2}(:?\d{2})?)"
_CASTS = {
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "zoned": "TIMESTAMPTZ",
    "string": "VARCHAR",
}


def _delimited(source: PathSource, kind: str, files: list[Path], shown: list[Path]) -> SourceTable:
    separator = source.separator or ("\t" if kind == "tsv" else ",")
    header: list[str] = []
    for file, name in zip(files, shown, strict=True):
        names = _header(file, separator, name)
        if header and names != header:
            raise DataError(f"{name} must have the columns of {shown[0]}")
        header = names
    connection = duckdb.connect()
    try:
        text = connection.read_csv(
            [str(file) for file in files],
            header=True,
            auto_detect=False,
            columns=dict.fromkeys(header, "VARCHAR"),
            sep=separator,
            quotechar='"',
            escapechar='"',
            # DuckDB wants at least one; a text that holds a NUL is refused anyway.
            na_values=list(source.na_values) or ["\0"],
            strict_mode=True,
        )
        connection.register("source_text", text)
        allowed = dict.fromkeys(header, tuple(_tests("")))
        return _typed(connection, source, allowed, {"format": kind, "files": len(files)}, shown[0])
    except duckdb.Error as error:
        raise DataError(f"{shown[0]}: {_reason(error)}") from error


_JSON_TYPES = {
    "VARCHAR": "text",
    "BIGINT": "number",
    "UBIGINT": "number",
    "DOUBLE": "number",
    "BOOLEAN": "true or false",
    "ARRAY": "list",
    "OBJECT": "mapping",
}
_JSON_ALLOWED = {
    "text": ("date", "timestamp", "zoned"),
    "number": ("integer", "number"),
    "true or false": ("boolean",),
}


def _json_lines(source: PathSource, kind: str, files: list[Path], shown: list[Path]) -> SourceTable:
    connection = duckdb.connect()
    try:
        # At depth 1 each value stays the JSON it is: nothing is guessed from a sample.
        values = connection.read_json(
            [str(file) for file in files],
            format="newline_delimited",
            records="true",
            sample_size=-1,
            maximum_depth=1,
        )
        header = values.columns
        _refuse_twins(header, shown[0])
        connection.register("source_json", values)
        allowed = {name: _json_allowed(connection, name, shown[0]) for name in header}
        chosen = ", ".join(f"{_quote(name)} ->> '$' AS {_quote(name)}" for name in header)
        connection.register("source_text", connection.sql(f"SELECT {chosen} FROM source_json"))
        return _typed(connection, source, allowed, {"format": kind, "files": len(files)}, shown[0])
    except duckdb.Error as error:
        raise DataError(f"{shown[0]}: {_reason(error)}") from error


def _json_allowed(connection: duckdb.DuckDBPyConnection, name: str, shown: object) -> tuple[str, ...]:
    """The types a column may have by what JSON says of its values; raises DataError for a mixture."""
    column = _quote(name)
    found = connection.sql(
        f"SELECT json_type({column}) AS type, min(CAST({column} AS VARCHAR)) AS example FROM source_json "
        f"WHERE {column} IS NOT NULL AND json_type({column}) <> 'NULL' GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    examples = {_JSON_TYPES[kind]: example for kind, example in found}
    if len(examples) > 1:
        listed = " and ".join(f"{example} ({kind})" for kind, example in examples.items())
        raise DataError(f"{shown}: column {name!r} must hold values of one type, however it has {listed}")
    kind = next(iter(examples), "text")
    if kind not in _JSON_ALLOWED:
        raise DataError(
            f"{shown}: column {name!r} must hold plain values, however it has a {kind}: {examples[kind][:80]}"
        )
    return _JSON_ALLOWED[kind]


def _typed(
    connection: duckdb.DuckDBPyConnection,
    source: PathSource,
    allowed: dict[str, tuple[str, ...]],
    facts: dict[str, Any],
    shown: object,
) -> SourceTable:
    if unknown := sorted(set(source.types) - set(allowed)):
        raise DataError(f"source.types: no column {unknown[0]!r} in {shown}")
    connection.execute("SET TimeZone = 'UTC'")
    kinds = _infer(connection, allowed, dict(source.types), shown)
    chosen = ", ".join(f"CAST({_quote(n)} AS {_CASTS[kind]}) AS {_quote(n)}" for n, kind in kinds.items())
    relation = connection.sql(f"SELECT {chosen} FROM source_text")
    return _from_duckdb(relation, facts, shown)


def _header(file: Path, separator: str, shown: object) -> list[str]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            names = next(csv.reader(stream, delimiter=separator), [])
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(
            f"{shown}: byte 0x{byte:02x} at {error.start} is not UTF-8; declare source.encoding"
        ) from error
    except csv.Error as error:
        raise DataError(f"{shown}: line 1: {error}") from error
    if not names:
        raise DataError(f"{shown} must start with the columns' names, however its first line is empty")
    if len(names) == 1:
        for other in ";\t|,":
            if other != separator and other in names[0]:
                raise DataError(
                    f"{shown}: 1 column found; is the separator {other!r}? declare source.separator"
                )
    if "" in names:
        raise DataError(f"{shown}: the column at position {names.index('') + 1} has no name")
    _refuse_twins(names, shown)
    return names


def _refuse_twins(names: list[str], shown: object) -> None:
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


def _infer(
    connection: duckdb.DuckDBPyConnection,
    allowed: dict[str, tuple[str, ...]],
    declared: dict[str, str],
    shown: object,
) -> dict[str, str]:
    """The type of each text column, from all of its values; raises DataError for a value that does not fit."""
    counts = []
    for name in allowed:
        counts.append(f"count({_quote(name)})")
        counts.append(f"count(*) FILTER (contains({_quote(name)}, chr(0)))")
        counts += [f"count(*) FILTER ({test})" for test in _tests(_quote(name)).values()]
    row = connection.sql(f"SELECT {', '.join(counts)} FROM source_text").fetchall()[0]
    tests = list(_tests(""))
    width = len(tests) + 2
    kinds: dict[str, str] = {}
    for index, name in enumerate(allowed):
        present, nul, *fitting = row[index * width : (index + 1) * width]
        fits = dict(zip(tests, fitting, strict=True))
        if nul:
            raise DataError(f"{shown}: {name} holds a NUL character in {nul} rows; it is no text")
        wanted = declared.get(name)
        if wanted == "timestamp" and fits["zoned"] == present > 0:
            wanted = "zoned"
        if wanted is None:
            if fits["timestamp"] and fits["zoned"] and fits["timestamp"] + fits["zoned"] == present:
                value, line = _first(connection, name, "zoned")
                raise DataError(
                    f"{shown}: {name} row {line}: {value!r} has no time zone, however others have one"
                )
            wanted = next((kind for kind in allowed[name] if present and fits[kind] == present), "string")
        elif wanted != "string" and fits[wanted] != present:
            value, line = _first(connection, name, wanted)
            raise DataError(f"{shown}: {name} row {line}: {value!r} is not of the declared type {wanted}")
        kinds[name] = wanted
    return kinds


def _tests(column: str) -> dict[str, str]:
    """SQL that is true where a text is of a type, by type, the narrowest first."""

    def fits(pattern: str, kind: str | None = None) -> str:
        full = f"regexp_full_match({column}, '{pattern}')"
        return f"{full} AND TRY_CAST({column} AS {kind}) IS NOT NULL" if kind else full

    return {
        "integer": fits(_INTEGER, "BIGINT"),
        "number": f"{fits(_NUMBER)} AND NOT {fits(_LEADING_ZERO)} AND NOT {fits(_LONG)}",
        "boolean": f"{column} IN ('true', 'false', 'True', 'False', 'TRUE', 'FALSE')",
        "date": fits(_DATE, "DATE"),
        "timestamp": fits(_CLOCK, "TIMESTAMP"),
        "zoned": fits(_ZONED, "TIMESTAMPTZ"),
    }


def _first(connection: duckdb.DuckDBPyConnection, name: str, kind: str) -> tuple[str, int]:
    """The first value that is not of a type, and its row, counted from 1 behind the header."""
    found = connection.sql(
        f"SELECT value, line FROM (SELECT {_quote(name)} AS value, row_number() OVER () AS line "
        f"FROM source_text) WHERE value IS NOT NULL AND NOT ({_tests('value')[kind]}) ORDER BY line LIMIT 1"
    ).fetchall()
    value, line = found[0]
    return str(value), int(line)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _query(source: SqlSource, workspace: Workspace) -> SourceTable:
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
        raise DataError(f"source.order_by: no column {unknown[0]!r}; the query has {_listed(names)}")
    # The other columns decide between rows that are equal in the declared ones.
    rest = [name for name in names if name not in source.order_by]
    return ", ".join(_quote(name) for name in (*source.order_by, *rest))


def _duckdb_query(source: SqlSource, file: Path) -> SourceTable:
    try:
        connection = duckdb.connect(str(file), read_only=True)
        names = connection.execute(f"DESCRIBE {_inner(source)}").fetchall()
        columns = [str(name[0]) for name in names]
        _refuse_twins(columns, "source.sql")
        ordered = connection.sql(f"SELECT * FROM ({_inner(source)}\n) ORDER BY {_ordered(source, columns)}")
        return _from_duckdb(ordered, {"format": "duckdb"}, "source.sql")
    except duckdb.Error as error:
        raise DataError(f"source.sql: {_first_line(error)}") from error


def _inner(source: SqlSource) -> str:
    return source.sql.strip().removesuffix(";")


def _sqlite_query(source: SqlSource, file: Path) -> SourceTable:
    # sqlite3 of the standard library: DuckDB's own reader of SQLite files is an extension that is
    # downloaded at run time. SQLite types each value, so a column's type follows from all of them.
    connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    try:
        names = [column[0] for column in connection.execute(_inner(source)).description or ()]
        _refuse_twins(names, "source.sql")
        rows = connection.execute(
            f"SELECT * FROM ({_inner(source)}\n) ORDER BY {_ordered(source, names)}"
        ).fetchall()
    except sqlite3.Error as error:
        raise DataError(f"source.sql: {_first_line(error)}") from error
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


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def _reason(error: BaseException) -> str:
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
    return _first_line(error)
