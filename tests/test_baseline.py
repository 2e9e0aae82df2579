from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xgboost as xgb
from sklearn import metrics
from sklearn.linear_model import LogisticRegression, Ridge

from gristmill import models, parts, tables
from gristmill.baseline import FILE_NAME, MODELS
from gristmill.encode import Encoder
from gristmill.errors import GateRefused
from gristmill.models import linear
from gristmill.models.xgboost import matrix

if TYPE_CHECKING:
    from tests.conftest import Build, Milled

KINDS = ("binary", "multiclass", "regression")
SKLEARN = {
    "binary": lambda truth, found: metrics.roc_auc_score(truth, found[:, 1]),
    "multiclass": lambda truth, found: metrics.accuracy_score(truth, found.argmax(axis=1)),
    "regression": metrics.root_mean_squared_error,
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_validation_scores_are_scikit_learns_of_the_saved_models(milled: Milled, kind: str) -> None:
    mill = milled(kind)
    folder, validation = mill.output("baseline"), parts.training(mill.work("baseline")).validation
    said = json.loads((folder / FILE_NAME).read_text())
    assert said["validation"].keys() == set(MODELS)
    for name in MODELS:
        predicted = models.load(name, folder).predict(validation.encoded)
        assert said["validation"][name] == pytest.approx(
            SKLEARN[kind](validation.target, predicted), rel=1e-12
        )


@pytest.mark.parametrize(("kind", "best"), [("binary", "linear"), ("multiclass", "xgboost")])
def test_the_best_is_named_and_its_gain_over_the_dummy_judged(milled: Milled, kind: str, best: str) -> None:
    record = milled(kind).record("baseline")
    metric = {"binary": "roc_auc", "multiclass": "accuracy"}[kind]
    assert record.values["best"] == best
    [check] = record.checks
    assert (check.code, check.verdict, check.evaluated, check.limit) == ("GM301", "passed", 96, 0.0)
    assert check.value == record.values[f"{metric}_{best}"] - record.values[f"{metric}_dummy"]


def test_where_less_is_better_the_lowest_is_the_best(milled: Milled) -> None:
    record = milled("regression").record("baseline")
    assert record.values["best"] == min(MODELS, key=lambda name: record.values[f"rmse_{name}"])
    assert record.checks[0].value == record.values["rmse_dummy"] - record.values["rmse_xgboost"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_linear_model_is_scikit_learns(milled: Milled, kind: str) -> None:
    mill = milled(kind)
    data = parts.training(mill.work("baseline"))
    sizes = data.encoder.cardinalities
    train, validation = (linear.design(part.encoded, sizes) for part in (data.train, data.validation))
    if kind == "regression":
        mean, scale = data.train.target.mean(), data.train.target.std()
        fitted = Ridge(alpha=1.0).fit(train, (data.train.target - mean) / scale)
        wanted = fitted.predict(validation) * scale + mean
    else:
        fitted = LogisticRegression(C=1.0, tol=1e-3, max_iter=200).fit(train, data.train.target)
        wanted = fitted.predict_proba(validation)
    found = models.load("linear", mill.output("baseline")).predict(data.validation.encoded)
    assert np.abs(found - wanted).max() < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_k45_the_saved_trees_are_those_of_the_best_round_and_no_more(milled: Milled, kind: str) -> None:
    mill = milled(kind)
    data = parts.training(mill.work("baseline"))
    validation = matrix(data.validation.encoded, data.validation.target)
    settings = {"eta": 0.1, "max_depth": 3, "tree_method": "hist", "seed": 0} | {
        "binary": {"objective": "binary:logistic", "eval_metric": "logloss"},
        "multiclass": {"objective": "multi:softprob", "eval_metric": "mlogloss", "num_class": 3},
        "regression": {"objective": "reg:squarederror", "eval_metric": "rmse"},
    }[kind]
    seen: dict[str, dict[str, list[float]]] = {}
    train = matrix(data.train.encoded, data.train.target)
    booster = xgb.train(
        settings,
        train,
        40,
        evals=[(validation, "v")],
        early_stopping_rounds=5,
        evals_result=seen,
        verbose_eval=False,
    )
    [losses] = seen["v"].values()
    best = int(np.argmin(losses))
    saved = models.load("xgboost", mill.output("baseline"))
    assert saved.booster.num_boosted_rounds() == best + 1 == mill.record("baseline").values["rounds"]
    assert "best_iteration" not in saved.booster.attributes()
    found = saved.predict(data.validation.encoded)
    wanted = booster.predict(validation, iteration_range=(0, best + 1)).astype(np.float64)
    if kind == "multiclass":
        wanted /= wanted.sum(axis=1, keepdims=True)
    assert np.array_equal(found[:, 1] if kind == "binary" else found, wanted)


def test_k45_growing_stops_and_is_cut_back_when_the_validation_loss_rises(build: Build) -> None:
    mill = build("binary", baseline={"rounds": 300, "patience": 4, "max_depth": 6, "learning_rate": 0.5})
    rounds = mill.through("baseline").record.values["rounds"]
    assert 1 <= rounds < 40
    assert models.load("xgboost", mill.output("baseline")).booster.num_boosted_rounds() == rounds


def test_k26_the_encoder_has_seen_training_rows_only(milled: Milled) -> None:
    mill = milled("binary")
    work = mill.work("baseline")
    encoder = Encoder.load(mill.output("baseline"))
    rows = parts.training(work).train.rows
    amount = np.array(tables.read(work.snapshot, ["amount"])["amount"].to_pylist(), dtype=float)
    assert encoder.numeric[0].mean == pytest.approx(np.nanmean(amount[rows]), rel=1e-12)
    assert encoder.numeric[0].scale == pytest.approx(np.nanstd(amount[rows]), rel=1e-12)
    assert encoder.numeric[0].mean != pytest.approx(np.nanmean(amount), rel=1e-6)


def test_features_that_say_nothing_of_the_target_fail_the_gate(build: Build) -> None:
    from tests.conftest import table

    task = {"kind": "binary", "target": "bought", "positive": "yes"}
    accepted = {"metric": "log_loss", "accept": {"at_most": 1.0}}
    mill = build("binary", table("binary", noise=True), task=task | accepted)
    record = mill.through("baseline").record
    [check] = record.checks
    assert (check.code, check.verdict) == ("GM301", "failed")
    assert record.values["best"] == "dummy"
    assert check.way_out.startswith("the features say nothing of the target")
    with pytest.raises(
        GateRefused, match=r"toy/baseline must have passed, however it did not \(GM301 beats the dummy\)"
    ):
        mill.through("evaluation")


def test_the_same_rows_make_the_same_bytes(milled: Milled, copied: Milled) -> None:
    for kind in KINDS:
        again = copied(kind).make("baseline", force=True)
        assert not again.reused
        assert again.record.output == milled(kind).record("baseline").output
