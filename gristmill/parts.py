"""The split's parts as encoded arrays, for whoever trains or evaluates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from gristmill import split, tables
from gristmill.encode import Encoded, Encoder, Target
from gristmill.errors import InputError
from gristmill.spec import BinaryTask, RegressionTask
from gristmill.work import Work


@dataclass(frozen=True)
class Part:
    """Rows of one part: their ids (n,) int64, their arrays, and their targets (n,)."""

    rows: np.ndarray
    encoded: Encoded
    target: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Training:
    """What models are fitted on and selected with; the test part is not here."""

    encoder: Encoder
    target: Target
    train: Part
    validation: Part


def training(work: Work) -> Training:
    """Fit encoder and target on the training rows and encode training and validation rows."""
    rows = split.read(work.inputs["split"].folder)
    roles = tables.roles(work.spec, tables.schema_of(work.snapshot))
    frame = frame_of(work, rows["train"])
    encoder = Encoder.fit(frame, roles.numeric, roles.categorical)
    target = _fit_target(work, frame[roles.target])
    train = _part(frame, rows["train"], encoder, target, roles.target)
    validation_frame = frame_of(work, rows["validation"])
    return Training(
        encoder, target, train, _part(validation_frame, rows["validation"], encoder, target, roles.target)
    )


def fitted(work: Work) -> tuple[Encoder, Target]:
    """What the models were fitted with, read back; they must all have been fitted with the same."""
    found = [(Encoder.load(folder), Target.load(folder)) for folder in _fitted_folders(work)]
    if any(other != found[0] for other in found):
        raise InputError(
            f"{work.declaration.name}: baseline and network must have seen the same columns, however their encoders "
            f"differ; run `gristmill run {work.declaration.name} --force`"
        )
    return found[0]


def _fitted_folders(work: Work) -> list[Path]:
    return [work.inputs[stage].folder for stage in ("baseline", "network")]


def validation(work: Work, encoder: Encoder, target: Target) -> Part:
    """The validation part, encoded as the models were fitted."""
    rows = split.read(work.inputs["split"].folder)["validation"]
    return _part(frame_of(work, rows), rows, encoder, target, work.spec.task.target)


def test(work: Work, encoder: Encoder, target: Target) -> Part:
    """The test part; only `evaluation` asks for it."""
    rows = split.read(work.inputs["split"].folder)["test"]
    return _part(frame_of(work, rows), rows, encoder, target, work.spec.task.target)


def frame_of(work: Work, rows: pa.Array) -> pd.DataFrame:
    """Features and target of rows, as a user's frame would hold them."""
    roles = tables.roles(work.spec, tables.schema_of(work.snapshot))
    table = tables.read(work.snapshot, [*roles.features, roles.target], rows)
    # As floats, large whole numbers would lose digits where others are missing.
    return table.to_pandas(integer_object_nulls=True)


def _fit_target(work: Work, column: pd.Series) -> Target:
    task = work.spec.task
    positive = task.positive if isinstance(task, BinaryTask) else None
    return Target.fit(column, positive, regression=isinstance(task, RegressionTask))


def _part(frame: pd.DataFrame, rows: pa.Array, encoder: Encoder, target: Target, name: str) -> Part:
    return Part(rows.to_numpy(), encoder.transform(frame), target.encode(frame[name]))
