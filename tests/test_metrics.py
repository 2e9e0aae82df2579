"""Each metric is scikit-learn's, and the intervals say what resampling the rows says."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from gristmill import metrics
from gristmill.spec import BETTER_WHEN_HIGHER, METRICS, Kind

Case = tuple[np.ndarray, np.ndarray]


def probabilities(random: np.random.Generator, rows: int, classes: int, ties: bool) -> np.ndarray:
    drawn = random.dirichlet(np.ones(classes), rows)
    if ties:
        drawn = (np.round(drawn * 4) + 0.25) / (np.round(drawn * 4) + 0.25).sum(axis=1, keepdims=True)
        drawn[random.random(rows) < 0.1] = np.eye(classes)[0]
    if classes == 2:
        drawn[:, 0] = 1 - drawn[:, 1]
    return drawn


def case(kind: Kind, seed: int, rows: int = 60, ties: bool = False) -> Case:
    random = np.random.default_rng(seed)
    if kind == "regression":
        truth = random.normal(100, 5, rows)
        return truth, truth + random.normal(0, 3, rows)
    classes = 2 if kind == "binary" else 4
    truth = random.integers(classes, size=rows)
    truth[:classes] = range(classes)
    return truth, probabilities(random, rows, classes, ties)


def classes_of(prediction: np.ndarray) -> np.ndarray:
    return prediction[:, 1] >= 0.5 if prediction.shape[1] == 2 else prediction.argmax(axis=1)


def log_loss(truth: np.ndarray, prediction: np.ndarray, weight: np.ndarray | None) -> float:
    return sklearn_metrics.log_loss(
        truth, prediction, sample_weight=weight, labels=range(prediction.shape[1])
    )


def of_classes(function: Callable[..., float], **options: object) -> Callable[..., float]:
    return lambda truth, prediction, weight: function(
        truth, classes_of(prediction), sample_weight=weight, **options
    )


def of_positive(function: Callable[..., float]) -> Callable[..., float]:
    return lambda truth, prediction, weight: function(truth, prediction[:, 1], sample_weight=weight)


def of_numbers(function: Callable[..., float]) -> Callable[..., float]:
    return lambda truth, prediction, weight: function(truth, prediction, sample_weight=weight)


SKLEARN: dict[str, Callable[..., float]] = {
    "roc_auc": of_positive(sklearn_metrics.roc_auc_score),
    "average_precision": of_positive(sklearn_metrics.average_precision_score),
    "brier_score": of_positive(sklearn_metrics.brier_score_loss),
    "log_loss": log_loss,
    "accuracy": of_classes(sklearn_metrics.accuracy_score),
    "balanced_accuracy": of_classes(sklearn_metrics.balanced_accuracy_score),
    "f1": of_classes(sklearn_metrics.f1_score),
    "f1_macro": of_classes(sklearn_metrics.f1_score, average="macro", labels=list(range(4)), zero_division=0),
    "roc_auc_ovr": lambda truth, prediction, weight: np.mean(
        [
            sklearn_metrics.roc_auc_score(truth == code, column, sample_weight=weight)
            for code, column in enumerate(prediction.T)
        ]
    ),
    "rmse": of_numbers(sklearn_metrics.root_mean_squared_error),
    "mae": of_numbers(sklearn_metrics.mean_absolute_error),
    "r2": of_numbers(sklearn_metrics.r2_score),
}
ALL: list[tuple[Kind, str]] = [(kind, metric) for kind, names in METRICS.items() for metric in names]


@pytest.mark.parametrize(("kind", "metric"), ALL)
@settings(deadline=None, max_examples=40, derandomize=True)
@given(seed=st.integers(0, 10**6), rows=st.integers(8, 80), ties=st.booleans())
def test_score_is_that_of_scikit_learn(kind: Kind, metric: str, seed: int, rows: int, ties: bool) -> None:
    truth, prediction = case(kind, seed, rows, ties)
    random = np.random.default_rng(seed)
    counts = random.integers(0, 4, rows)
    counts[:4] = 1
    for weight in (None, counts, random.random(rows) + 0.01):
        expected = SKLEARN[metric](truth, prediction, weight)
        assert metrics.score(metric, truth, prediction, weight) == pytest.approx(
            expected, rel=1e-11, abs=1e-12
        )


def test_every_metric_is_compared() -> None:
    assert SKLEARN.keys() == BETTER_WHEN_HIGHER.keys() == {metric for _, metric in ALL}


def test_roc_auc_ovr_is_scikit_learns_own_average() -> None:
    truth, prediction = case("multiclass", 0)
    expected = sklearn_metrics.roc_auc_score(truth, prediction, multi_class="ovr", average="macro")
    assert metrics.score("roc_auc_ovr", truth, prediction) == pytest.approx(expected, rel=1e-12)


def test_weights_are_repeated_rows() -> None:
    counts = np.random.default_rng(1).integers(0, 4, 60)
    for kind, metric in ALL:
        truth, prediction = case(kind, 3, ties=True)
        repeated = metrics.score(metric, np.repeat(truth, counts), np.repeat(prediction, counts, axis=0))
        assert metrics.score(metric, truth, prediction, counts) == pytest.approx(repeated, rel=1e-11)


def test_float32_probability_of_zero_costs_what_scikit_learn_says() -> None:
    truth = np.array([0, 1, 1])
    prediction = np.array([[1, 0], [1, 0], [0.25, 0.75]], dtype=np.float32)
    expected = sklearn_metrics.log_loss(truth, prediction)
    assert metrics.score("log_loss", truth, prediction) == pytest.approx(expected, rel=1e-6)


def test_a_half_is_the_positive_class() -> None:
    assert metrics.score("accuracy", np.array([1, 1]), np.full((2, 2), 0.5)) == 1


@pytest.mark.parametrize("metric", ["roc_auc", "average_precision"])
@pytest.mark.parametrize("code", [0, 1])
def test_ranking_of_one_class_is_undefined(metric: str, code: int) -> None:
    truth, prediction = case("binary", 0)
    assert metrics.score(metric, np.full_like(truth, code), prediction) is None
    # Both classes are there, one of them without weight.
    assert metrics.score(metric, truth, prediction, (truth == code).astype(float)) is None


def test_roc_auc_ovr_without_one_of_the_classes_is_undefined() -> None:
    truth, prediction = case("multiclass", 0)
    truth[truth == 2] = 3
    assert metrics.score("roc_auc_ovr", truth, prediction) is None


def test_classes_without_rows() -> None:
    truth, prediction = case("multiclass", 0)
    truth[truth == 2] = 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns that a predicted class is not in truth
        for metric in ("balanced_accuracy", "f1_macro", "log_loss", "accuracy"):
            expected = SKLEARN[metric](truth, prediction, None)
            assert metrics.score(metric, truth, prediction) == pytest.approx(expected, rel=1e-12)


def test_f1_without_positives_is_undefined_and_without_hits_zero() -> None:
    surely_not = np.tile([0.9, 0.1], (4, 1))
    assert metrics.score("f1", np.zeros(4, dtype=int), surely_not) is None
    assert metrics.score("f1", np.array([0, 0, 0, 1]), surely_not) == 0


def test_r2_of_a_constant_is_undefined() -> None:
    # The weighted mean of 0.1 is not exactly 0.1.
    assert metrics.score("r2", np.full(7, 0.1), np.arange(7.0)) is None
    assert metrics.score("r2", np.array([0.1, 0.1, 5]), np.arange(3.0), np.array([1, 2, 0])) is None


@pytest.mark.parametrize(("kind", "metric"), ALL)
def test_no_rows_no_weight_and_no_number_are_undefined(kind: Kind, metric: str) -> None:
    truth, prediction = case(kind, 0)
    assert metrics.score(metric, truth[:0], prediction[:0]) is None
    assert metrics.score(metric, truth, prediction, np.zeros(len(truth))) is None
    if kind == "regression":
        assert metrics.score(metric, truth, np.full(len(truth), np.nan)) is None
        assert metrics.score(metric, truth, np.full(len(truth), np.inf)) is None


@pytest.mark.parametrize("kind", list(METRICS))
@settings(deadline=None, max_examples=20, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_rows_does_not_matter(kind: Kind, seed: int) -> None:
    truth, prediction = case(kind, seed, ties=True)
    order = np.random.default_rng(seed).permutation(len(truth))
    shuffled = metrics.scores(kind, truth[order], prediction[order])
    assert shuffled == pytest.approx(metrics.scores(kind, truth, prediction), rel=1e-12)
    assert list(shuffled) == list(METRICS[kind])


def intervals(kind: Kind, truth: np.ndarray, prediction: np.ndarray, seed: int = 0) -> metrics.Intervals:
    other = prediction[::-1].copy()
    return metrics.intervals(
        METRICS[kind],
        truth,
        {"a": prediction, "b": other},
        200,
        0.95,
        seed,
        compare=[("a", "b"), ("a", "a")],
    )


@pytest.mark.parametrize("kind", list(METRICS))
def test_interval_holds_the_score_and_narrows_with_rows(kind: Kind) -> None:
    widths = {}
    for rows in (200, 6400):
        truth, prediction = case(kind, 2, rows)
        found = intervals(kind, truth, prediction).of["a"]
        widths[rows] = {}
        for metric, score in metrics.scores(kind, truth, prediction).items():
            interval = found[metric]
            assert interval is not None
            assert score is not None
            low, high = interval
            assert low < score < high
            widths[rows][metric] = high - low
    for metric in METRICS[kind]:
        assert widths[6400][metric] < widths[200][metric] / 3


@pytest.mark.parametrize("kind", list(METRICS))
def test_differences_are_paired(kind: Kind) -> None:
    truth, prediction = case(kind, 4, 300)
    found = intervals(kind, truth, prediction)
    assert list(found.difference) == [("a", "b"), ("a", "a")]
    assert set(found.difference["a", "a"].values()) == {(0.0, 0.0)}
    for metric in METRICS[kind]:
        a, b = (metrics.score(metric, truth, rows) for rows in (prediction, prediction[::-1]))
        interval = found.difference["a", "b"][metric]
        assert a is not None
        assert b is not None
        assert interval is not None
        assert interval[0] < a - b < interval[1]


@pytest.mark.parametrize("kind", list(METRICS))
def test_intervals_repeat_by_seed(kind: Kind) -> None:
    truth, prediction = case(kind, 5)
    assert intervals(kind, truth, prediction, 1) == intervals(kind, truth, prediction, 1)
    assert intervals(kind, truth, prediction, 1) != intervals(kind, truth, prediction, 2)


def test_blocks_of_resamples_do_not_change_the_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    truth, prediction = case("binary", 6)
    whole = intervals("binary", truth, prediction)
    monkeypatch.setattr(metrics, "_BLOCK", 7 * len(truth))
    parts = intervals("binary", truth, prediction)
    for metric in METRICS["binary"]:
        assert parts.of["a"][metric] == pytest.approx(whole.of["a"][metric], rel=1e-12)


def test_interval_is_that_of_resampled_rows() -> None:
    truth, prediction = case("binary", 7, 50, ties=True)
    random = np.random.default_rng(0)
    drawn = [random.integers(50, size=50) for _ in range(200)]
    by_rows = [sklearn_metrics.roc_auc_score(truth[rows], prediction[rows, 1]) for rows in drawn]
    interval = intervals("binary", truth, prediction).of["a"]["roc_auc"]
    assert interval == pytest.approx(np.quantile(by_rows, [0.025, 0.975]), rel=1e-12)


def test_undefined_resamples_are_left_out_up_to_half() -> None:
    _, prediction = case("binary", 8, 40)
    # One positive among n rows is missing from 0.37 of the resamples.
    found = intervals("binary", (np.arange(40) == 0).astype(int), prediction).of["a"]
    assert found["roc_auc"] is not None
    assert found["log_loss"] is not None
    # Three classes of one row each are all there in 0.22 of them.
    three = metrics.intervals(
        ["roc_auc_ovr", "accuracy"], np.arange(3), {"a": np.full((3, 3), 1 / 3)}, 200, 0.9, 0
    )
    assert three.of["a"]["roc_auc_ovr"] is None
    assert three.of["a"]["accuracy"] is not None


@pytest.mark.parametrize("kind", list(METRICS))
def test_no_rows_have_no_interval(kind: Kind) -> None:
    truth, prediction = case(kind, 0)
    found = intervals(kind, truth[:0], prediction[:0])
    assert set(found.of["a"].values()) == set(found.difference["a", "b"].values()) == {None}


def test_better_and_gain_follow_the_metric() -> None:
    assert metrics.better("roc_auc", 0.8, 0.7)
    assert not metrics.better("roc_auc", 0.7, 0.7)
    assert metrics.better("rmse", 1, 2)
    assert metrics.better("rmse", 1, None)
    assert not metrics.better("rmse", None, 1)
    assert not metrics.better("rmse", None, None)
    assert metrics.gain("roc_auc", 0.8, 0.7) == pytest.approx(0.1)
    assert metrics.gain("rmse", 3, 2) == -1
    assert metrics.gain("rmse", None, 2) is None
    assert metrics.gain("rmse", 2, None) is None


@pytest.mark.parametrize(
    ("metric", "difference", "wanted"),
    [
        ("roc_auc", (0.01, 0.2), True),
        ("roc_auc", (0.0, 0.2), False),
        ("roc_auc", (-0.2, -0.1), False),
        ("rmse", (-2.0, -0.1), True),
        ("rmse", (-2.0, 0.1), False),
        ("rmse", None, False),
    ],
)
def test_a_gain_is_sure_when_its_whole_interval_is_one(
    metric: str, difference: tuple[float, float] | None, wanted: bool
) -> None:
    assert metrics.surely_better(metric, difference) is wanted
