"""`gristmill predict`: a file of rows in, the model's answers out, batch by batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from gristmill import files
from gristmill.bundle import Bundle, load_model
from gristmill.errors import DataError, InputError

BATCH_ROWS = 65_536
_BLOCK_BYTES = 8 << 20
_TRUTH = {
    text: value for value in (True, False) for text in (str(value), str(value).lower(), str(value).upper())
}


def predict_file(model: Path, file: Path, output: Path | None) -> int:
    """Predict every row of a CSV or Parquet file and return their number.

    The answer has a column with the target's name and, for classes, one `probability_…` each; rows keep
    their order. It is written beside its place and moved there when it is whole.
    """
    bundle = load_model(model)
    if not file.is_file():
        raise InputError(f"FILE must be a CSV or Parquet file, however {file} is not there")
    frames = _answers(bundle, file)
    if output is None:
        return _write_csv(frames, sys.stdout)
    if output.suffix not in (".csv", ".parquet"):
        raise InputError(f"--output must end in .csv or .parquet, got {output}")
    if not output.parent.is_dir():
        raise InputError(f"--output must lie in a folder that exists, however {output.parent} is none")
    staging = output.with_name(f".{output.name}.tmp")
    with files.disk_faults(output):
        try:
            if output.suffix == ".csv":
                with staging.open("w", newline="") as stream:
                    rows = _write_csv(frames, stream)
            else:
                rows = _write_parquet(frames, staging)
            staging.replace(output)
        finally:
            staging.unlink(missing_ok=True)
    return rows


def _answers(bundle: Bundle, file: Path) -> Iterator[pd.DataFrame]:
    for frame in _batches(bundle, file):
        answer = bundle.predict(frame).to_frame()
        if bundle.target.classes is not None:
            probabilities = bundle.predict_proba(frame)
            answer[[f"probability_{name}" for name in probabilities.columns]] = probabilities
        yield answer


def _batches(bundle: Bundle, file: Path) -> Iterator[pd.DataFrame]:
    """The file's rows, their index counted through the file, so that a message names the right row."""
    is_parquet = file.suffix == ".parquet"
    batches = _parquet(bundle, file) if is_parquet else _csv(bundle, file)
    rows = 0
    try:
        for table in _even(batches):
            frame = table.to_pandas()
            frame.index = pd.RangeIndex(rows, rows + len(frame))
            rows += len(frame)
            yield frame if is_parquet else _typed(bundle, frame)
    except pa.ArrowInvalid as error:
        raise DataError(f"{file}: {str(error).strip().splitlines()[0]}") from error
    if rows == 0:
        raise DataError(f"{file} must have at least 1 row, however it has 0")


def _even(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of BATCH_ROWS, the last one shorter: a network rounds alike where it sees the same rows at once."""
    waiting: pa.Table | None = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        while waiting.num_rows >= BATCH_ROWS:
            yield waiting.slice(0, BATCH_ROWS)
            waiting = waiting.slice(BATCH_ROWS)
    if waiting is not None and waiting.num_rows:
        yield waiting


def _parquet(bundle: Bundle, file: Path) -> Iterator[pa.RecordBatch]:
    reader = pq.ParquetFile(file)
    wanted = _wanted(bundle, reader.schema_arrow.names, file)
    yield from reader.iter_batches(BATCH_ROWS, columns=wanted)


def _csv(bundle: Bundle, file: Path) -> Iterator[pa.RecordBatch]:
    """Every field as text, missing where it was so in training."""
    read = pc.ReadOptions(block_size=_BLOCK_BYTES)
    parse = pc.ParseOptions(newlines_in_values=True)
    with pc.open_csv(file, read, parse) as reader:
        wanted = _wanted(bundle, reader.schema.names, file)
    convert = pc.ConvertOptions(
        include_columns=wanted,
        column_types=dict.fromkeys(wanted, pa.string()),
        null_values=bundle.facts["na_values"],
        strings_can_be_null=True,
    )
    with pc.open_csv(file, read, parse, convert) as reader:
        yield from reader


def _wanted(bundle: Bundle, names: list[str], file: Path) -> list[str]:
    wanted = [name for name in bundle.encoder.features if name in names]
    if twice := [name for name in wanted if names.count(name) > 1]:
        raise DataError(f"{file}: column name {twice[0]!r} appears {names.count(twice[0])} times")
    return wanted


def _typed(bundle: Bundle, frame: pd.DataFrame) -> pd.DataFrame:
    """Texts as values of the types that the columns had in training; amounts the encoder reads itself.

    A truth value is no number to the encoder, and as categories 1, +1 and 1.0 are one.
    """
    categorical = {column.name for column in bundle.encoder.categorical}
    for name in [name for name in bundle.encoder.features if name in frame.columns]:
        kind = bundle.facts["types"][name]
        reads: Callable[[str], Any]
        if kind == "bool":
            reads, dtype = _TRUTH.__getitem__, "boolean"
        elif name in categorical and "int" in kind:
            reads, dtype = int, "Int64"
        elif name in categorical and kind in ("double", "float"):
            reads, dtype = float, "Float64"
        else:
            continue
        texts, values = frame[name], {}
        for text in texts.dropna().unique():
            try:
                values[text] = reads(text)
            except (KeyError, ValueError):
                row = texts.index[texts == text][0]
                raise DataError(
                    f"{name} row {row}: {text!r} is not of the type {kind} that was trained on"
                ) from None
        frame[name] = pd.Series([values.get(text) for text in texts], texts.index, dtype)
    return frame


def _write_csv(frames: Iterator[pd.DataFrame], stream: object) -> int:
    rows = 0
    for frame in frames:
        frame.to_csv(stream, index=False, header=rows == 0, lineterminator="\n")  # type: ignore[call-overload]
        rows += len(frame)
    return rows


def _write_parquet(frames: Iterator[pd.DataFrame], file: Path) -> int:
    rows = 0
    writer: pq.ParquetWriter | None = None
    for frame in frames:
        table = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pq.ParquetWriter(file, table.schema, compression="zstd")
        writer.write_table(table)
        rows += len(frame)
    assert writer is not None
    writer.close()
    return rows
