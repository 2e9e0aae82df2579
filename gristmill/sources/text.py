"""Delimited text and JSON lines: read as text first, typed by all of the values.

What a column is follows from all of its values, and a value that a type would change (an id with a
leading zero, twenty digits) keeps the column text.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import shutil
import tempfile
import weakref
import zlib
from pathlib import Path
from typing import Any

import duckdb

from gristmill.errors import DataError
from gristmill.files import disk_faults
from gristmill.sources.rows import first_line, from_duckdb, reason, refuse_twins
from gristmill.spec import PathSource
from gristmill.tables import SourceTable, quote
from gristmill.workspace import Workspace

MAX_EXPANDED = 4 << 30


def read(source: PathSource, kind: str, found: list[Path], workspace: Workspace) -> SourceTable:
    """Open text files of one kind (csv, tsv or jsonl) as one table."""
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
        raise DataError(f"{shown}: compressed data is damaged ({first_line(error)})") from error


_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


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
        raise DataError(f"{shown[0]}: {reason(error)}") from error


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
        refuse_twins(header, shown[0])
        connection.register("source_values", values)
        # JSON has a null of its own, and an empty text is a text: only what is declared means missing too.
        declared = source.na_values if "na_values" in source.model_fields_set else ()
        missing = ", ".join("'" + text.replace("'", "''") + "'" for text in declared)
        if missing:
            kept = ", ".join(
                f"CASE WHEN json_type({quote(name)}) = 'VARCHAR' AND {quote(name)} ->> '$' IN ({missing}) "
                f"THEN NULL ELSE {quote(name)} END AS {quote(name)}"
                for name in header
            )
            connection.register("source_json", connection.sql(f"SELECT {kept} FROM source_values"))
        else:
            connection.register("source_json", values)
        allowed = {name: _json_allowed(connection, name, shown[0]) for name in header}
        chosen = ", ".join(f"{quote(name)} ->> '$' AS {quote(name)}" for name in header)
        connection.register("source_text", connection.sql(f"SELECT {chosen} FROM source_json"))
        return _typed(connection, source, allowed, {"format": kind, "files": len(files)}, shown[0])
    except duckdb.Error as error:
        raise DataError(f"{shown[0]}: {reason(error)}") from error


def _json_allowed(connection: duckdb.DuckDBPyConnection, name: str, shown: object) -> tuple[str, ...]:
    """The types a column may have by what JSON says of its values; raises DataError for a mixture."""
    column = quote(name)
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
    chosen = ", ".join(f"CAST({quote(n)} AS {_CASTS[kind]}) AS {quote(n)}" for n, kind in kinds.items())
    relation = connection.sql(f"SELECT {chosen} FROM source_text")
    return from_duckdb(relation, facts, shown)


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
    refuse_twins(names, shown)
    return names


def _infer(
    connection: duckdb.DuckDBPyConnection,
    allowed: dict[str, tuple[str, ...]],
    declared: dict[str, str],
    shown: object,
) -> dict[str, str]:
    """The type of each text column, from all of its values; raises DataError for a value that does not fit."""
    counts = []
    for name in allowed:
        counts.append(f"count({quote(name)})")
        counts.append(f"count(*) FILTER (contains({quote(name)}, chr(0)))")
        counts += [f"count(*) FILTER ({test})" for test in _tests(quote(name)).values()]
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
        f"SELECT value, line FROM (SELECT {quote(name)} AS value, row_number() OVER () AS line "
        f"FROM source_text) WHERE value IS NOT NULL AND NOT ({_tests('value')[kind]}) ORDER BY line LIMIT 1"
    ).fetchall()
    value, line = found[0]
    return str(value), int(line)
