"""The model as a folder of files that cannot run code: load it and predict, without any orchestrator."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gristmill import files, models
from gristmill.encode import FILE_NAME as ENCODER_FILE_NAME
from gristmill.encode import Encoder, Target
from gristmill.errors import DataError, InputError
from gristmill.models import Predictor

FILE_NAME = "model.json"
VERSION = 1


@dataclass(frozen=True)
class Bundle:
    """An accepted model, its encoder and what it answers with."""

    facts: dict[str, Any]
    """What model.json says: pipeline, task, target, features, scores."""
    encoder: Encoder
    target: Target
    predictor: Predictor

    def predict(self, frame: pd.DataFrame) -> pd.Series:
        """The predicted class or number of each row, under the frame's own index.

        Columns are found by name, others are ignored; raises DataError for one that is missing.
        """
        found = self._predict(frame)
        name = str(self.facts["target"])
        if self.target.classes is None:
            return pd.Series(found, index=frame.index, name=name)
        classes = pd.Series(list(self.target.classes))
        return pd.Series(classes.to_numpy()[models.decide(found)], index=frame.index, name=name)

    def predict_proba(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The probability of each class, a column a class; raises InputError for a regression."""
        if self.target.classes is None:
            raise InputError("predict_proba needs a classification, however this model predicts a number")
        return pd.DataFrame(self._predict(frame), index=frame.index, columns=list(self.target.classes))

    def _predict(self, frame: pd.DataFrame) -> np.ndarray:
        if not isinstance(frame, pd.DataFrame):
            raise InputError(
                f"rows must come as a pandas DataFrame, whose columns have names, got {type(frame).__name__}"
            )
        encoded = self.encoder.transform(frame)
        wrong = np.argwhere(~np.isfinite(encoded.numeric))
        if len(wrong):
            row, place = wrong[0]
            column = self.encoder.numeric[place].name
            raise DataError(
                f"{column} row {frame.index[row]}: must be finite, however it is {frame[column].iloc[row]}"
            )
        if len(encoded) == 0:
            # XGBoost has no answer of the right shape to no rows.
            return np.empty(0 if self.target.classes is None else (0, self.target.num_outputs))
        return self.predictor.predict(encoded)


def write(folder: Path, facts: dict[str, Any], target: Target, manifest: list[str]) -> None:
    """Write model.json over files that lie in the folder already, with the digest of each."""
    body = {
        "version": VERSION,
        **facts,
        "classes": None if target.classes is None else list(target.classes),
        "files": {name: files.file_digest(folder / name) for name in sorted(manifest)},
    }
    files.write_json(folder / FILE_NAME, body)


def load_model(path: str | Path) -> Bundle:
    """Load a bundle; every file's digest is checked before it is parsed.

    `path` is the bundle's folder, or a pipeline's data/model folder. Raises InputError for a folder
    that is none, is incomplete, or holds a file that is not the one in its list.
    """
    folder = Path(path)
    if not (folder / FILE_NAME).is_file() and (folder / "output" / FILE_NAME).is_file():
        folder = folder / "output"
    if not (folder / FILE_NAME).is_file():
        raise InputError(
            f"{path} must be a model's folder, however it has no {FILE_NAME}; run the pipeline first"
        )
    _refuse_failed(folder)
    try:
        body = json.loads((folder / FILE_NAME).read_text())
        version, kind, classes = int(body["version"]), str(body["kind"]), body["classes"]
        listed = dict(body["files"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder / FILE_NAME} must describe a model, however it does not: {error}"
        ) from error
    if version > VERSION:
        raise InputError(
            f"{folder}: written by a newer gristmill (bundle version {version}, this one reads {VERSION})"
        )
    if kind not in models.KINDS:
        raise InputError(f"{folder}: model kind must be one of {', '.join(models.KINDS)}, got {kind!r}")
    for name, wanted in listed.items():
        file = folder / name
        if Path(name).name != name:
            raise InputError(f"{folder}: entry {name!r} refused: it leaves the folder")
        if not file.is_file():
            raise InputError(f"{folder}: {name} must be there, however it is missing")
        if files.file_digest(file) != wanted:
            raise InputError(f"{folder}: {name} is not the file in the record")
    for file in sorted(folder.iterdir()):
        if (file.stem == kind or file.name == ENCODER_FILE_NAME) and file.name not in listed:
            raise InputError(
                f"{folder}: {file.name} must stand in {FILE_NAME} with its digest, however it does not"
            )
    target = Target(None if classes is None else tuple(classes))
    return Bundle(body, Encoder.load(folder), target, models.load(kind, folder))


def _refuse_failed(folder: Path) -> None:
    """A bundle in its pipeline has a record beside it, which says whether it passed its parity check."""
    record = folder.parent / "record.json"
    if (
        folder.name == "output"
        and record.is_file()
        and not json.loads(record.read_text()).get("passed", False)
    ):
        raise InputError(
            f"{folder} must have passed its checks, however it did not; see {record}, and do not use it"
        )
