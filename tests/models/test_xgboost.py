from pathlib import Path

import numpy as np
import pytest
import xgboost as xgb

from gristmill.encode import MISSING, OTHER, Encoded
from gristmill.models import xgboost
from gristmill.models.xgboost import Trees, matrix

OBJECTIVES = {1: "reg:squarederror", 2: "binary:logistic", 3: "multi:softprob"}


def rows(number: int = 300, num_categories: int = 1) -> Encoded:
    random = np.random.default_rng(0)
    codes = random.integers(MISSING, 6, (number, num_categories))
    return Encoded(random.normal(size=(number, 2)).astype(np.float32), codes)


def grown(outputs: int, encoded: Encoded, rounds: int = 6) -> xgb.Booster:
    signal = encoded.numeric[:, 0] + np.array([0, 0, 2, -2, 1, -1])[encoded.categorical[:, 0]]
    label = signal if outputs == 1 else np.digitize(signal, [0.0, 1.0][: outputs - 1])
    settings = {"objective": OBJECTIVES[outputs], "max_depth": 3, "nthread": 1}
    settings |= {"num_class": 3} if outputs == 3 else {}
    return xgb.train(settings, matrix(encoded, label), rounds)


@pytest.mark.parametrize("outputs", OBJECTIVES)
def test_prediction_is_the_boosters(outputs: int) -> None:
    encoded = rows()
    booster = grown(outputs, encoded)
    found, wanted = Trees(booster).predict(encoded), booster.predict(matrix(encoded))
    assert found.dtype == np.float64
    assert found.shape == ((300,) if outputs == 1 else (300, outputs))
    wanted = wanted.astype(np.float64)
    if outputs == 3:
        wanted /= wanted.sum(axis=1, keepdims=True)
    assert np.array_equal(found[:, 1] if outputs == 2 else found, wanted)
    if outputs > 1:
        assert found.sum(axis=1) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("outputs", OBJECTIVES)
def test_k45_the_saved_model_answers_the_same_bits(tmp_path: Path, outputs: int) -> None:
    encoded = rows()
    model = Trees(grown(outputs, encoded)[:4])
    model.save(tmp_path)
    again = xgboost.load(tmp_path)
    assert again.booster.num_boosted_rounds() == 4
    assert np.array_equal(again.predict(encoded), model.predict(encoded))


def test_a_value_that_no_training_row_had_counts_as_missing() -> None:
    encoded = rows()
    booster = grown(1, encoded)
    unseen = Encoded(encoded.numeric, np.full_like(encoded.categorical, OTHER))
    without = np.hstack([encoded.numeric, np.full((300, 1), np.nan, dtype=np.float32)])
    blank = xgb.DMatrix(without, feature_types=["q", "q", "c"], enable_categorical=True)
    assert np.array_equal(Trees(booster).predict(unseen), booster.predict(blank).astype(np.float64))


def test_codes_are_categories_and_not_amounts() -> None:
    # Numbers would need five cuts to tell 2 and 4 from 3 and 5; categories need one.
    encoded = Encoded(np.zeros((40, 0), dtype=np.float32), np.tile([[2], [3], [4], [5]], (10, 1)))
    label = np.tile([1.0, -1.0, 1.0, -1.0], 10)
    settings = {"max_depth": 1, "eta": 1.0, "lambda": 0.0, "base_score": 0.0, "max_cat_to_onehot": 1}
    booster = xgb.train(settings, matrix(encoded, label), 1)
    assert Trees(booster).predict(encoded).tolist() == label.tolist()
