"""From columns to arrays: fitted on training rows, the same for baseline and network, saved as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gristmill.errors import DataError, InputError

FILE_NAME = "encoder.json"
TARGET_FILE_NAME = "target.json"
VERSION = 1
# The first two codes of every category; the training rows' values follow in sorted order.
OTHER, MISSING = 0, 1
_RESERVED = 2


@dataclass(frozen=True)
class Encoded:
    """Rows as arrays.

    Shape: numeric (n, p) float32, standardised, then one column of 0 and 1 for each numeric column
    that misses values in training; categorical (n, q) int64, codes below the encoder's cardinalities.
    """

    numeric: np.ndarray
    categorical: np.ndarray

    def __len__(self) -> int:
        return len(self.numeric)

    def take(self, rows: np.ndarray | slice) -> Encoded:
        return Encoded(self.numeric[rows], self.categorical[rows])


@dataclass(frozen=True)
class NumericColumn:
    name: str
    mean: float
    scale: float
    """Standard deviation of the training rows; 1 for a constant column."""
    flagged: bool
    """Whether training rows miss values, so that 'missing' has an input of its own."""


@dataclass(frozen=True)
class CategoricalColumn:
    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Encoder:
    """What training rows taught about each feature. Nothing else is ever fitted to data before a model."""

    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]

    @classmethod
    def fit(cls, train: pd.DataFrame, numeric: Sequence[str], categorical: Sequence[str]) -> Encoder:
        """Learn means, scales and vocabularies from training rows."""
        columns = []
        for name in numeric:
            values = _numbers(train[name], name)
            present = values[~np.isnan(values)]
            mean, scale = _moments(present)
            columns.append(NumericColumn(name, mean, scale, len(present) < len(values)))
        categories = [
            CategoricalColumn(name, tuple(sorted(_texts(train[name]).dropna().unique())))
            for name in categorical
        ]
        return cls(tuple(columns), tuple(categories))

    @property
    def features(self) -> tuple[str, ...]:
        return (*(column.name for column in self.numeric), *(column.name for column in self.categorical))

    @property
    def num_numeric(self) -> int:
        """Width of the numeric array: the columns and their flags."""
        return len(self.numeric) + sum(column.flagged for column in self.numeric)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Codes of each category, `other` and `missing` included."""
        return tuple(len(column.values) + _RESERVED for column in self.categorical)

    def transform(self, frame: pd.DataFrame) -> Encoded:
        """Encode rows by column name; raises DataError naming the columns that are not there."""
        if absent := [name for name in self.features if name not in frame.columns]:
            raise DataError(f"missing {', '.join(map(repr, absent))}: the model needs these columns")
        numeric = np.empty((len(frame), self.num_numeric), dtype=np.float32)
        flag = len(self.numeric)
        for place, column in enumerate(self.numeric):
            values = _numbers(frame[column.name], column.name)
            gone = np.isnan(values)
            numeric[:, place] = np.where(gone, 0.0, (values - column.mean) / column.scale)
            if column.flagged:
                numeric[:, flag] = gone
                flag += 1
        categorical = np.empty((len(frame), len(self.categorical)), dtype=np.int64)
        for place, category in enumerate(self.categorical):
            texts = _texts(frame[category.name])
            codes = pd.Index(category.values, dtype="str").get_indexer(pd.Index(texts)) + _RESERVED
            codes[codes < _RESERVED] = OTHER
            codes[texts.isna().to_numpy()] = MISSING
            categorical[:, place] = codes
        return Encoded(numeric, categorical)

    def unknown(self, encoded: Encoded) -> dict[str, int]:
        """How many rows hold a value that no training row had, by category."""
        counts = (encoded.categorical == OTHER).sum(axis=0)
        return {column.name: int(n) for column, n in zip(self.categorical, counts, strict=True) if n}

    def save(self, folder: Path) -> None:
        text = json.dumps({"version": VERSION, **asdict(self)}, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / FILE_NAME).write_text(text + "\n")

    @classmethod
    def load(cls, folder: Path) -> Encoder:
        body = json.loads((folder / FILE_NAME).read_text())
        if body["version"] != VERSION:
            raise InputError(
                f"{folder / FILE_NAME}: encoder version {body['version']}, this gristmill reads {VERSION}"
            )
        return cls(
            tuple(NumericColumn(**column) for column in body["numeric"]),
            tuple(CategoricalColumn(c["name"], tuple(c["values"])) for c in body["categorical"]),
        )


@dataclass(frozen=True)
class Target:
    """How the target becomes numbers: class codes, or a standardised number for a regression."""

    classes: tuple[Any, ...] | None
    """The classes in the order of their codes; None for a regression. A binary task's positive is last."""
    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def fit(cls, train: pd.Series, positive: Any = None, *, regression: bool = False) -> Target:
        """Learn classes, or mean and scale, from training rows."""
        if regression:
            values = _numbers(train, str(train.name))
            return cls(None, *_moments(values))
        found = sorted(set(train.tolist()), key=lambda value: (str(type(value)), value))
        if positive is not None:
            found = [value for value in found if value != positive] + [positive]
        return cls(tuple(found))

    def save(self, folder: Path) -> None:
        body = {"classes": self.classes, "mean": self.mean, "scale": self.scale}
        (folder / TARGET_FILE_NAME).write_text(json.dumps(body, ensure_ascii=False, allow_nan=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Target:
        body = json.loads((folder / TARGET_FILE_NAME).read_text())
        classes = body["classes"]
        return cls(None if classes is None else tuple(classes), body["mean"], body["scale"])

    @property
    def num_outputs(self) -> int:
        return 1 if self.classes is None else len(self.classes)

    def encode(self, column: pd.Series) -> np.ndarray:
        """Class codes (n,) int64, or the plain numbers (n,) float64; DataError for a class not in training."""
        if self.classes is None:
            return _numbers(column, str(column.name))
        codes = {value: code for code, value in enumerate(self.classes)}
        try:
            return np.array([codes[value] for value in column.tolist()], dtype=np.int64)
        except KeyError as error:
            raise DataError(
                f"{column.name}: class {error.args[0]!r} is not among the training rows"
            ) from error

    def standardise(self, values: np.ndarray) -> np.ndarray:
        return (values - self.mean) / self.scale

    def restore(self, values: np.ndarray) -> np.ndarray:
        return values * self.scale + self.mean


def _moments(values: np.ndarray) -> tuple[float, float]:
    """Mean and scale. Equal values have the scale 1: their deviation is rounding, or nothing."""
    if len(values) == 0 or values.min() == values.max():
        return (float(values[0]) if len(values) else 0.0), 1.0
    return float(values.mean()), float(values.std()) or 1.0


def _numbers(column: pd.Series, name: str) -> np.ndarray:
    """Values as float64, NaN where missing; DataError names the first value that is no number."""
    if column.dtype == np.float64:
        return column.to_numpy()
    try:
        return column.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    except (ValueError, TypeError):
        as_number = pd.to_numeric(column, errors="coerce")
        wrong = column[as_number.isna() & column.notna()]
        if wrong.empty:
            return as_number.to_numpy(dtype=np.float64, na_value=np.nan)
        raise DataError(f"{name} row {wrong.index[0]}: {wrong.iloc[0]!r} is not a number") from None


def _texts(column: pd.Series) -> pd.Series:
    """Values as text, in one spelling whatever the dtype and the other rows; DataError for mixed types.

    3 and 3.0 are '3', truth is 'true' or 'false', a missing value is NaN.
    """
    if column.dtype == object:
        _refuse_mixture(column.dropna(), str(column.name))
    codes, values = pd.factorize(column)
    texts = np.array([*map(_text, np.asarray(values)), np.nan], dtype=object)
    # A missing value has the code -1: the last text.
    return pd.Series(texts[codes], dtype="str")


def _text(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float | np.floating) and value.is_integer() else str(value)


def _refuse_mixture(values: pd.Series, name: str) -> None:
    first: dict[str, Any] = {}
    for value in values:
        kind = "truth" if isinstance(value, bool) else "number" if isinstance(value, Number) else "text"
        first.setdefault(kind, value)
    if len(first) > 1:
        shown = " and ".join(f"{value!r} ({kind})" for kind, value in first.items())
        raise DataError(f"{name} must hold values of one type, however it holds {shown}")
