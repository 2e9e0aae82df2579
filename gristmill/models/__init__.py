"""Models: one file each, `load(folder)` gives a Predictor. Only the file of the model in use is imported."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gristmill.encode import Encoded

if TYPE_CHECKING:
    # Loaded by name, and named here so that their code counts as code of whatever loads a model.
    from gristmill.models import dummy, linear, mlp, xgboost  # noqa: F401

KINDS = ("dummy", "linear", "xgboost", "mlp")


class Predictor(Protocol):
    """A fitted model.

    Shape: (n, classes) probabilities for a classification, (n,) numbers in the target's unit for a
    regression.
    """

    def predict(self, encoded: Encoded) -> np.ndarray: ...


def decide(probabilities: np.ndarray) -> np.ndarray:
    """The code of each row's class: of two the positive from one half on, as scores count it, else the likeliest.

    Shape: (n, k) in, (n,) int64 out.
    """
    if probabilities.shape[1] == 2:
        return (probabilities[:, 1] >= 0.5).astype(np.int64)
    return probabilities.argmax(axis=1)


def load(kind: str, folder: Path) -> Predictor:
    """The model of a kind saved in a folder."""
    assert kind in KINDS, kind
    found: Predictor = importlib.import_module(f"gristmill.models.{kind}").load(folder)
    return found
