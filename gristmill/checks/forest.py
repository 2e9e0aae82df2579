"""A random forest for checks that ask what a model would see: columns in, probabilities out, the same each time."""

# ruff: noqa: PLC0415 - scikit-learn loads where such a check is declared, and nowhere else

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa

_FORESTS, _TREES = 10, 10


def frame(table: pa.Table, numeric: Iterable[str], categorical: Iterable[str]) -> pd.DataFrame:
    """Amounts as float64 and categories as text, NaN where missing."""
    columns = {name: table[name].cast(pa.float64(), safe=False) for name in numeric}
    columns |= {name: table[name].cast(pa.string()) for name in categorical}
    return pa.table(columns).to_pandas()


def ranks(features: pd.DataFrame) -> np.ndarray:
    """Amounts by their rank and categories by their code, NaN where missing.

    Trees see order only, and a rank is exact in float32 where an id, a time or infinity is not.
    """
    found = np.empty(features.shape, dtype=np.float32)
    for place, name in enumerate(features):
        column = features[name]
        if column.dtype == np.float64:
            found[:, place] = column.rank(method="dense")
        else:
            codes = pd.factorize(column, sort=True)[0]
            found[:, place] = np.where(codes < 0, np.nan, codes)
    return found


def probabilities(train: np.ndarray, labels: np.ndarray, wanted: np.ndarray, seed: int) -> np.ndarray:
    """Probabilities (m, k) of the k classes in `labels` (n,), fitted on `train` (n, columns), of rows `wanted`."""
    from sklearn.ensemble import RandomForestClassifier

    # A few trees at a time: each of their leaves holds a number a class.
    found = np.zeros((len(wanted), len(np.unique(labels))))
    for forest_seed in np.random.default_rng(seed).integers(2**31, size=_FORESTS):
        forest = RandomForestClassifier(
            _TREES, min_samples_leaf=5, random_state=int(forest_seed), n_jobs=-1
        ).fit(train, labels)
        # One thread: more would add the trees' probabilities up in an order of their own.
        found += forest.set_params(n_jobs=1).predict_proba(wanted)
    return found / _FORESTS
