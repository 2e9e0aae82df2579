"""Sources: files, tables of assets and queries become rows in a stable order, typed without loss."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.errors import DataError
from gristmill.sources import query, text
from gristmill.sources.rows import first_line, refuse_twins
from gristmill.spec import AssetSource, PathSource, PipelineSpec, SqlSource
from gristmill.tables import SourceTable
from gristmill.workspace import Workspace

_SUFFIXES = {"csv": "csv", "tsv": "tsv", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet"}
_MAGIC = b"PAR1"


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
        return query.read(source, workspace)
    found = _source_files(source, workspace)
    kind = _format(source, found[0])
    foreign = {"parquet": ("types", "separator", "encoding", "na_values"), "jsonl": ("separator",)}
    for name in foreign.get(kind, ()):
        if getattr(source, name) != PathSource.model_fields[name].get_default():
            raise DataError(
                f"source.{name} is for delimited text, however the files are {kind}; leave it out"
            )
    if kind == "parquet":
        return _parquet(found, workspace)
    return text.read(source, kind, found, workspace)


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
            raise DataError(f"{workspace.shown(file)}: {first_line(error)}") from error
    schema = _without_metadata(readers[0].schema_arrow)
    refuse_twins(schema.names, workspace.shown(found[0]))
    for file, reader in zip(found, readers, strict=True):
        if not _without_metadata(reader.schema_arrow).equals(schema):
            raise DataError(f"{workspace.shown(file)} must have the columns of {workspace.shown(found[0])}")

    def batches() -> Iterator[pa.RecordBatch]:
        for file, reader in zip(found, readers, strict=True):
            try:
                yield from reader.iter_batches(batch_size=65_536)
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{workspace.shown(file)}: {first_line(error)}") from error

    return SourceTable(schema, batches(), {"format": "parquet", "files": len(found)})


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])
