"""Boosted trees, cut to their best round, in XGBoost's own UBJ format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xgboost as xgb

from gristmill.encode import MISSING, Encoded

FILE_NAME = "xgboost.ubj"


@dataclass(frozen=True)
class Trees:
    booster: xgb.Booster

    def predict(self, encoded: Encoded) -> np.ndarray:
        found = self.booster.predict(matrix(encoded)).astype(np.float64)
        if '"binary:logistic"' in self.booster.save_config():
            return np.column_stack([1 - found, found])
        # XGBoost's probabilities are float32, whose sum is 1 only nearly.
        return found if found.ndim == 1 else found / found.sum(axis=1, keepdims=True)

    def save(self, folder: Path) -> None:
        self.booster.save_model(folder / FILE_NAME)


def load(folder: Path) -> Trees:
    booster = xgb.Booster()
    booster.load_model(folder / FILE_NAME)
    return Trees(booster)


def matrix(encoded: Encoded, label: np.ndarray | None = None) -> xgb.DMatrix:
    """The arrays as XGBoost wants them; a value that is missing, or that no training row had, is missing."""
    codes = np.where(encoded.categorical <= MISSING, np.nan, encoded.categorical).astype(np.float32)
    kinds = ["q"] * encoded.numeric.shape[1] + ["c"] * codes.shape[1]
    together = np.hstack([encoded.numeric, codes])
    return xgb.DMatrix(together, label, feature_types=kinds, enable_categorical=True)
