"""`gristmill predict`: a file of rows in, the model's answers out, batch by batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from gristmill import files
from gristmill.bundle import Bundle, load_model
from gristmill.errors import DataError, InputError

BATCH_ROWS = 65_536


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
    if file.suffix == ".parquet":
        reader = pq.ParquetFile(file)
        wanted = [name for name in bundle.encoder.features if name in reader.schema_arrow.names]
        for batch in reader.iter_batches(BATCH_ROWS, columns=wanted):
            yield batch.to_pandas()
        return
    # Categories are read as text, so that a code with a leading zero is the one that was trained on,
    # and only an empty field is missing, as in training.
    texts = {column.name: "str" for column in bundle.encoder.categorical}
    try:
        yield from pd.read_csv(file, dtype=texts, keep_default_na=False, na_values=[""], chunksize=BATCH_ROWS)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: {str(error).strip().splitlines()[0]}") from error


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
        table = pq.pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pq.ParquetWriter(file, table.schema, compression="zstd")
        writer.write_table(table)
        rows += len(frame)
    if writer is None:
        raise DataError("the file must have at least 1 row, however it has 0")
    writer.close()
    return rows
