"""A linear model over the encoded arrays, kept as its coefficients: numpy alone predicts with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array, hstack

from gristmill.encode import Encoded

FILE_NAME = "linear.safetensors"


@dataclass(frozen=True)
class Linear:
    """Logistic or least-squares regression.

    Shape: numeric (p, k), categorical (sum of cardinalities, k), intercept (k,); k is 1 for a
    regression and the number of classes otherwise; offsets (q,) say where each category starts.
    """

    numeric: np.ndarray
    categorical: np.ndarray
    intercept: np.ndarray
    offsets: np.ndarray

    def predict(self, encoded: Encoded) -> np.ndarray:
        scores = encoded.numeric.astype(np.float64) @ self.numeric + self.intercept
        for column, offset in enumerate(self.offsets):
            scores += self.categorical[offset + encoded.categorical[:, column]]
        if scores.shape[1] == 1:
            return scores[:, 0]
        scores -= scores.max(axis=1, keepdims=True)
        exponents = np.exp(scores)
        return exponents / exponents.sum(axis=1, keepdims=True)

    def save(self, folder: Path) -> None:
        save_file(
            {name: np.ascontiguousarray(value) for name, value in vars(self).items()}, folder / FILE_NAME
        )


def load(folder: Path) -> Linear:
    return Linear(**load_file(folder / FILE_NAME))


def offsets_of(cardinalities: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(cardinalities)])[:-1].astype(np.int64)


def design(encoded: Encoded, cardinalities: Sequence[int]) -> csr_array:
    """The matrix a linear model is fitted on, (n, p + sum of cardinalities): numbers, then one-hot codes."""
    rows = len(encoded)
    num_categories = len(cardinalities)
    places = encoded.categorical + offsets_of(cardinalities)
    one_hot = csr_array(
        (
            np.ones(rows * num_categories),
            places.ravel(),
            np.arange(rows + 1) * num_categories,
        ),
        shape=(rows, int(sum(cardinalities))),
    )
    return csr_array(hstack([csr_array(encoded.numeric.astype(np.float64)), one_hot], format="csr"))
