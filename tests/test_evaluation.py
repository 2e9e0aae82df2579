from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn import metrics

from gristmill import models, parts, split
from gristmill.errors import GateRefused, InputError
from gristmill.evaluation import FILE_NAME, PREDICTIONS_FILE_NAME
from gristmill.records import Check
from gristmill.spec import METRICS

if TYPE_CHECKING:
    from tests.conftest import Build, Mill, Milled

KINDS = ("binary", "multiclass", "regression")
CHAMPIONS = {"binary": "linear", "multiclass": "xgboost", "regression": "network"}
Judge = Callable[..., list[Check]]


def scores(mill: Mill) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((mill.output("evaluation") / FILE_NAME).read_text())
    return found


def predictions(mill: Mill) -> pd.DataFrame:
    return pq.read_table(mill.output("evaluation") / PREDICTIONS_FILE_NAME).to_pandas()


@pytest.fixture
def judge(copied: Milled) -> Judge:
    """The gate's checks on a finished pipeline under other limits."""

    def under(kind: str, **accept: float) -> list[Check]:
        mill = copied(kind)
        attributes = mill.declaration.spec.model_dump(mode="json", exclude_defaults=True)
        mill.declare(**attributes | {"task": attributes["task"] | {"accept": accept}})
        outcome = mill.make("evaluation")
        assert not outcome.reused
        if not outcome.record.passed:
            with pytest.raises(GateRefused, match="toy/evaluation must have passed, however it did not"):
                mill.make("model")
        return list(outcome.record.checks)

    return under


def test_binary_scores_are_scikit_learns_of_the_written_predictions(milled: Milled) -> None:
    mill = milled("binary")
    frame = predictions(mill)
    assert list(frame.columns) == ["_row", "truth", "probability_no", "probability_yes"]
    truth, sure = (frame["truth"] == "yes").to_numpy(), frame["probability_yes"].to_numpy()
    assert scores(mill)["test"]["linear"] == pytest.approx(
        {
            "roc_auc": metrics.roc_auc_score(truth, sure),
            "average_precision": metrics.average_precision_score(truth, sure),
            "log_loss": metrics.log_loss(truth, sure),
            "brier_score": metrics.brier_score_loss(truth, sure),
            "accuracy": metrics.accuracy_score(truth, sure >= 0.5),
            "balanced_accuracy": metrics.balanced_accuracy_score(truth, sure >= 0.5),
            "f1": metrics.f1_score(truth, sure >= 0.5),
        },
        rel=1e-10,
    )


def test_multiclass_scores_are_scikit_learns_of_the_written_predictions(milled: Milled) -> None:
    mill = milled("multiclass")
    frame = predictions(mill)
    names = ["10", "11", "12"]
    assert list(frame.columns) == ["_row", "truth", *(f"probability_{name}" for name in names)]
    sure = frame.iloc[:, 2:].to_numpy()
    said = np.array(names)[sure.argmax(axis=1)]
    found = scores(mill)["test"]["xgboost"]
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(frame["truth"], said), rel=1e-12)
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(frame["truth"], said))
    assert found["f1_macro"] == pytest.approx(metrics.f1_score(frame["truth"], said, average="macro"))
    even = sure / sure.sum(axis=1, keepdims=True)
    assert found["log_loss"] == pytest.approx(metrics.log_loss(frame["truth"], even), rel=1e-6)
    one_against_rest = metrics.roc_auc_score(frame["truth"], even, multi_class="ovr")
    assert found["roc_auc_ovr"] == pytest.approx(one_against_rest, rel=1e-6)


def test_regression_scores_are_scikit_learns_of_the_written_predictions(milled: Milled) -> None:
    mill = milled("regression")
    frame = predictions(mill)
    assert list(frame.columns) == ["_row", "truth", "prediction"]
    assert scores(mill)["test"]["network"] == pytest.approx(
        {
            "rmse": metrics.root_mean_squared_error(frame["truth"], frame["prediction"]),
            "mae": metrics.mean_absolute_error(frame["truth"], frame["prediction"]),
            "r2": metrics.r2_score(frame["truth"], frame["prediction"]),
        },
        rel=1e-12,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_judged_are_the_test_rows_with_their_truth(milled: Milled, kind: str) -> None:
    mill = milled(kind)
    frame = predictions(mill)
    assert frame["_row"].tolist() == split.read(mill.output("split"))["test"].to_pylist()
    given = pd.read_csv(mill.workspace.root / "data" / "x.csv").iloc[frame["_row"]]
    truth = frame["truth"] if kind != "multiclass" else frame["truth"].astype(int)
    assert truth.tolist() == given.iloc[:, -1].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_is_scored_with_an_interval_around_its_score(milled: Milled, kind: str) -> None:
    mill = milled(kind)
    said, data = scores(mill), parts.training(mill.work("evaluation"))
    test = parts.test(mill.work("evaluation"), data.encoder, data.target)
    assert said["test"].keys() == {"dummy", "linear", "xgboost", "network"}
    assert said["test_rows"] == len(test) == 120
    for name, of in said["test"].items():
        assert of.keys() == said["intervals"][name].keys() == set(METRICS[kind])  # type: ignore[index]
        for metric, score in of.items():
            bounds = said["intervals"][name][metric]
            assert bounds["low"] <= score <= bounds["high"]
    folder = mill.output("network" if kind == "regression" else "baseline")
    found = models.load("mlp" if kind == "regression" else CHAMPIONS[kind], folder).predict(test.encoded)
    assert np.array_equal(predictions(mill).iloc[:, 2:].to_numpy().squeeze(), found)


def test_the_difference_is_of_the_network_and_the_best_baseline_on_the_same_rows(milled: Milled) -> None:
    said = scores(milled("regression"))
    assert said["best_baseline"] == "xgboost"
    for metric, bounds in said["network_minus_baseline"].items():
        difference = said["test"]["network"][metric] - said["test"]["xgboost"][metric]
        assert bounds["low"] <= difference <= bounds["high"]
    # Paired, it is known more narrowly than from two intervals of their own.
    width = {name: of["rmse"]["high"] - of["rmse"]["low"] for name, of in said["intervals"].items()}
    paired = said["network_minus_baseline"]["rmse"]
    assert paired["high"] - paired["low"] < width["network"] + width["xgboost"]


# The champion


@pytest.mark.parametrize("kind", KINDS)
def test_the_champion_is_the_best_plain_model_unless_the_network_surely_leads(
    milled: Milled, kind: str
) -> None:
    mill = milled(kind)
    said = scores(mill)
    choose = min if kind == "regression" else max
    plain = {name: score for name, score in said["validation"].items() if name != "network"}
    assert said["best_baseline"] == choose(plain, key=plain.get)
    lead = said["network_minus_baseline_on_validation"]
    leads = lead["high"] < 0 if kind == "regression" else lead["low"] > 0
    assert said["champion"] == ("network" if leads else said["best_baseline"]) == CHAMPIONS[kind]
    assert said["validation"] == {
        name: mill.record("network" if name == "network" else "baseline").values[f"{said['metric']}_{name}"]
        for name in ("dummy", "linear", "xgboost", "network")
    }


def test_a_baseline_that_beats_the_network_is_the_champion_and_becomes_the_model(build: Build) -> None:
    mill = build("regression", training={"epochs": 1, "optimizer": {"lr": 1e-6}, "device": "cpu"})
    mill.through("evaluation")
    said = scores(mill)
    assert said["champion"] == said["best_baseline"] == "xgboost"
    assert mill.record("evaluation").passed
    assert mill.through("model").record.values["champion"] == "xgboost"


# The gate


@pytest.mark.parametrize(("kind", "sign"), [("binary", ">="), ("regression", "<=")])
@pytest.mark.parametrize("verdict", ["passed", "failed"])
def test_the_score_must_reach_the_limit(
    milled: Milled, judge: Judge, kind: str, sign: str, verdict: str
) -> None:
    said = scores(milled(kind))
    score = said["test"][said["champion"]][said["metric"]]
    easier = -0.01 if sign == ">=" else 0.01
    limit = round(score + (easier if verdict == "passed" else -easier), 6)
    [check] = judge(kind, **{"at_least" if sign == ">=" else "at_most": limit})
    text = f"{said['metric']} of {said['champion']} is {score:.4f}, wanted {sign} {limit:g}"
    assert (check.code, check.verdict, check.text, check.evaluated) == ("GM501", verdict, text, 120)


@pytest.mark.parametrize(("more", "verdict"), [(-0.01, "passed"), (0.01, "failed")])
def test_the_champion_must_beat_the_best_baseline_by_the_declared_gain(
    milled: Milled, judge: Judge, more: float, verdict: str
) -> None:
    test = scores(milled("regression"))["test"]
    won = test["xgboost"]["rmse"] - test["network"]["rmse"]
    above = round(won + more, 6)
    reached, gain = judge("regression", at_most=20.0, above_baseline=above)
    assert reached.verdict == "passed"
    assert (gain.code, gain.verdict, gain.limit) == ("GM502", verdict, above)
    assert gain.value == pytest.approx(won)
    assert gain.text == f"rmse gain of network against xgboost: {won:+.4f}, wanted >= {above:g}"


def test_a_baseline_ties_with_itself(judge: Judge) -> None:
    _, gain = judge("binary", at_least=0.7, above_baseline=0.0)
    assert (gain.verdict, gain.value) == ("passed", 0.0)
    assert gain.text == "roc_auc gain of linear is the best baseline itself: +0.0000, wanted >= 0"


def test_a_baseline_is_not_above_itself(judge: Judge) -> None:
    _, gain = judge("binary", at_least=0.7, above_baseline=0.001)
    assert (gain.code, gain.verdict) == ("GM502", "failed")


def test_k29_a_score_that_is_undefined_is_not_accepted(copied: Milled) -> None:
    mill = copied("binary")
    file = mill.output("split") / split.FILE_NAME
    table = pq.read_table(file).to_pandas()
    bought = pd.read_csv(mill.workspace.root / "data" / "x.csv")["bought"]
    # A test part of one class, which the split's own check would have refused.
    table.loc[(table["part"] == "test") & (bought == "no"), "part"] = "gap"
    table.to_parquet(file, index=False)
    mill.forge("split")
    [check] = mill.make("evaluation", force=True).record.checks
    assert (check.code, check.verdict, check.evaluated, check.value) == ("GM501", "not verified", 0, None)
    assert check.text == "roc_auc of linear is undefined on the test rows: not decidable, so not accepted"
    said = scores(mill)
    assert said["accepted"] is False
    assert said["test"]["linear"]["roc_auc"] is None
    assert said["intervals"]["linear"]["roc_auc"] is None
    with pytest.raises(GateRefused, match=r"toy/evaluation must have passed, however it did not \(GM501"):
        mill.make("model")


def test_whether_it_was_accepted_is_written_down(milled: Milled) -> None:
    assert scores(milled("binary"))["accepted"] is True


# Files


@pytest.mark.parametrize(
    ("kind", "drawn"),
    [
        ("binary", {"confusion.png", "roc.png", "precision_recall.png", "calibration.png"}),
        ("multiclass", {"confusion.png", "calibration.png"}),
        ("regression", {"predicted.png", "residuals.png"}),
    ],
)
def test_scores_and_pictures_are_put_in_the_reports(milled: Milled, kind: str, drawn: set[str]) -> None:
    mill = milled(kind)
    made = {path.name for path in mill.output("evaluation").iterdir()}
    assert made == drawn | {FILE_NAME, PREDICTIONS_FILE_NAME}
    for name in drawn | {FILE_NAME}:
        shown = mill.workspace.reports("toy") / name
        assert shown.read_bytes() == (mill.output("evaluation") / name).read_bytes()
    assert not (mill.workspace.reports("toy") / PREDICTIONS_FILE_NAME).exists()


def test_the_same_models_are_judged_to_the_same_bytes(milled: Milled, copied: Milled) -> None:
    for kind in KINDS:
        again = copied(kind).make("evaluation", force=True)
        assert not again.reused
        assert again.record.output == milled(kind).record("evaluation").output


def test_models_that_saw_other_columns_than_the_test_rows_have_are_not_judged(copied: Milled) -> None:
    mill = copied("binary")
    file = mill.output("network") / "encoder.json"
    file.write_text(file.read_text().replace('"7"', '"8"'))
    mill.forge("network")
    with pytest.raises(InputError, match="baseline and network must have seen the same columns"):
        mill.make("evaluation", force=True)
