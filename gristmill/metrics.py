"""Scores of predictions under row weights, with intervals from resampled rows.

Shapes: truth (n,) codes or numbers; prediction (n, k) probabilities, or (n,) numbers of a regression;
weights (b, n), one row per resample. A score that is undefined is NaN inside and None outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gristmill.spec import BETTER_WHEN_HIGHER, METRICS, Kind

Interval = tuple[float, float]
Prepared = Callable[[np.ndarray], dict[str, np.ndarray]]

# Weights held at once: 8 MiB, so that memory does not grow with the number of resamples.
_BLOCK = 2**20


@dataclass(frozen=True)
class Intervals:
    """Percentile intervals; None where fewer than half of the resamples have the score."""

    of: dict[str, dict[str, Interval | None]]
    """By model, then metric."""
    difference: dict[tuple[str, str], dict[str, Interval | None]]
    """Score of the first model minus that of the second on the same rows, by pair, then metric."""


def score(
    metric: str, truth: np.ndarray, prediction: np.ndarray, weight: np.ndarray | None = None
) -> float | None:
    """One score, equal to scikit-learn's; None where it is undefined, such as roc_auc of one class."""
    weights = np.ones((1, len(truth))) if weight is None else weight[None].astype(np.float64)
    with np.errstate(all="ignore"):
        value = float(prepare((metric,), truth, prediction)(weights)[metric][0])
    return value if np.isfinite(value) else None


def scores(kind: Kind, truth: np.ndarray, prediction: np.ndarray) -> dict[str, float | None]:
    """Every score that a kind of task has."""
    return {metric: score(metric, truth, prediction) for metric in METRICS[kind]}


def better(metric: str, a: float | None, b: float | None) -> bool:
    """Whether score `a` beats score `b`; an undefined score beats nothing, and any score beats it."""
    if a is None or b is None:
        return a is not None
    return a > b if BETTER_WHEN_HIGHER[metric] else a < b


def gain(metric: str, score: float | None, reference: float | None) -> float | None:
    """How much better a score is than a reference, in the metric's unit; negative where it is worse."""
    if score is None or reference is None:
        return None
    return score - reference if BETTER_WHEN_HIGHER[metric] else reference - score


def intervals(
    metrics: Sequence[str],
    truth: np.ndarray,
    predictions: Mapping[str, np.ndarray],
    resamples: int,
    confidence: float,
    seed: int,
    compare: Sequence[tuple[str, str]] = (),
) -> Intervals:
    """Bootstrap the rows. All models see the same resamples, so the differences in `compare` are paired."""
    random = np.random.default_rng(seed)
    num_rows = len(truth)
    block = max(1, _BLOCK // max(1, num_rows))
    drawn = {model: {metric: np.full(resamples, np.nan) for metric in metrics} for model in predictions}
    with np.errstate(all="ignore"):
        prepared = {model: prepare(metrics, truth, rows) for model, rows in predictions.items()}
        for start in range(0, resamples, block):
            stop = min(start + block, resamples)
            weights = np.empty((stop - start, num_rows))
            for row in weights:
                # Counting drawn rows gives multinomial counts far sooner than `random.multinomial`.
                row[:] = np.bincount(random.integers(max(1, num_rows), size=num_rows), minlength=num_rows)
            for model, found in drawn.items():
                for metric, values in prepared[model](weights).items():
                    found[metric][start:stop] = values
        return Intervals(
            of={
                model: {metric: _interval(found[metric], confidence) for metric in metrics}
                for model, found in drawn.items()
            },
            difference={
                (a, b): {
                    metric: _interval(drawn[a][metric] - drawn[b][metric], confidence) for metric in metrics
                }
                for a, b in compare
            },
        )


def _interval(values: np.ndarray, confidence: float) -> Interval | None:
    defined = values[np.isfinite(values)]
    if not len(defined) or 2 * len(defined) < len(values):
        return None
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def prepare(metrics: Sequence[str], truth: np.ndarray, prediction: np.ndarray) -> Prepared:
    """Do once what no weight changes (sorting, losses per row); the result scores weights (b, n).

    Call it and the result under `np.errstate(all="ignore")`: what is undefined is a division by zero.
    """
    families: dict[Callable[[Sequence[str], np.ndarray, np.ndarray], Prepared], list[str]] = {}
    for metric in metrics:
        families.setdefault(_FAMILIES.get(metric, _mean_losses), []).append(metric)
    parts = [(names, family(names, truth, prediction)) for family, names in families.items()]

    def scored(weights: np.ndarray) -> dict[str, np.ndarray]:
        merged: dict[str, np.ndarray] = {}
        for names, part in parts:
            found = part(weights)
            merged |= {name: found[name] for name in names}
        return merged

    return scored


# Families of metrics


def _mean_losses(metrics: Sequence[str], truth: np.ndarray, prediction: np.ndarray) -> Prepared:
    """Metrics that are a mean over rows: one matrix product for all of them."""
    losses = np.stack([_LOSSES[metric](truth, prediction) for metric in metrics], axis=1)

    def scored(weights: np.ndarray) -> dict[str, np.ndarray]:
        means = weights @ losses / weights.sum(axis=1, keepdims=True)
        return {
            metric: np.sqrt(mean) if metric == "rmse" else mean
            for metric, mean in zip(metrics, means.T, strict=True)
        }

    return scored


def _log_losses(truth: np.ndarray, prediction: np.ndarray) -> np.ndarray:
    # Clipped in the prediction's own precision, as scikit-learn does: in float32 a certain and wrong
    # prediction costs 16, in float64 36.
    smallest = np.finfo(prediction.dtype).eps
    given = prediction[np.arange(len(truth)), truth]
    losses: np.ndarray = -np.log(np.clip(given, smallest, 1 - smallest).astype(np.float64))
    return losses


def _squared_errors(truth: np.ndarray, prediction: np.ndarray) -> np.ndarray:
    errors: np.ndarray = truth.astype(np.float64) - prediction
    return errors**2


_LOSSES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "log_loss": _log_losses,
    "brier_score": lambda truth, prediction: _squared_errors(truth, prediction[:, 1]),
    "accuracy": lambda truth, prediction: (truth == _classes(prediction)).astype(np.float64),
    "rmse": _squared_errors,
    "mae": lambda truth, prediction: np.abs(truth.astype(np.float64) - prediction),
}


def _classes(prediction: np.ndarray) -> np.ndarray:
    binary = prediction.shape[1] == 2
    classes: np.ndarray = prediction[:, 1] >= 0.5 if binary else prediction.argmax(axis=1)
    return classes.astype(np.intp)


def _rankings(_: Sequence[str], truth: np.ndarray, prediction: np.ndarray) -> Prepared:
    ranked = _ranked(truth == 1, prediction[:, 1])

    def scored(weights: np.ndarray) -> dict[str, np.ndarray]:
        area, precision = ranked(weights)
        return {"roc_auc": area, "average_precision": precision}

    return scored


def _rankings_of_classes(_: Sequence[str], truth: np.ndarray, prediction: np.ndarray) -> Prepared:
    """Undefined, as in scikit-learn, when any class has no row: a mean over the others is another score."""
    ranked = [_ranked(truth == code, column) for code, column in enumerate(prediction.T)]

    def scored(weights: np.ndarray) -> dict[str, np.ndarray]:
        return {"roc_auc_ovr": np.mean([of_class(weights)[0] for of_class in ranked], axis=0)}

    return scored


def _ranked(belongs: np.ndarray, value: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Area under the ROC curve and average precision, shape (2, b).

    Rows of equal value form one step of the curve, the highest value first. Each step has two cells,
    its negatives' weight and its positives', so a resample costs one count and sums along the steps.
    """
    steps, step = np.unique(-value, return_inverse=True)
    num_steps = len(steps)
    cell = step + num_steps * belongs

    def scored(weights: np.ndarray) -> np.ndarray:
        result = np.empty((2, len(weights)))
        for at, row in enumerate(weights):
            counts = np.bincount(cell, weights=row, minlength=2 * num_steps)
            negative, positive = counts[:num_steps], counts[num_steps:]
            caught = positive.cumsum()
            flagged = counts.reshape(2, num_steps).sum(axis=0).cumsum()
            total = positive.sum()
            # A pair of equal values counts as half ordered.
            result[0, at] = negative @ (caught - positive / 2) / (total * negative.sum())
            # Before the first weight nothing is flagged, and nothing of `positive` is there either.
            flagged[flagged == 0] = 1
            result[1, at] = positive @ (caught / flagged) / total
        # scikit-learn says 0 where it warns that all rows are one class; here that is undefined.
        result[1][np.isnan(result[0])] = np.nan
        return result

    return scored


def _confusions(_: Sequence[str], truth: np.ndarray, prediction: np.ndarray) -> Prepared:
    num_classes = prediction.shape[1]
    cell = truth * num_classes + _classes(prediction)

    def scored(weights: np.ndarray) -> dict[str, np.ndarray]:
        # (b, k) each: weight of the rows rightly of a class, truly of it, said to be of it.
        hit, actual, said = np.empty((3, len(weights), num_classes))
        for at, row in enumerate(weights):
            counts = np.bincount(cell, weights=row, minlength=num_classes**2)
            table = counts.reshape(num_classes, num_classes)
            hit[at], actual[at], said[at] = table.diagonal(), table.sum(axis=1), table.sum(axis=0)
        present = actual > 0
        recall = np.where(present, hit / actual, 0)
        f1 = 2 * hit / (actual + said)
        f1_macro = np.where(actual + said > 0, f1, 0).mean(axis=1)
        return {
            "balanced_accuracy": recall.sum(axis=1) / present.sum(axis=1),
            "f1": f1[:, 1],
            "f1_macro": np.where(present.any(axis=1), f1_macro, np.nan),
        }

    return scored


def _determination(_: Sequence[str], truth: np.ndarray, prediction: np.ndarray) -> Prepared:
    truth = truth.astype(np.float64)
    errors = _squared_errors(truth, prediction)

    def scored(weights: np.ndarray) -> dict[str, np.ndarray]:
        mean = weights @ truth / weights.sum(axis=1)
        # Two passes: a difference of sums of squares loses its digits where the mean is large.
        spread = np.einsum("bn,bn->b", weights, (truth - mean[:, None]) ** 2)
        # Asked of the values themselves: the spread of a constant may be a rounding error above zero.
        seen = weights > 0
        lowest = np.where(seen, truth, np.inf).min(axis=1, initial=np.inf)
        highest = np.where(seen, truth, -np.inf).max(axis=1, initial=-np.inf)
        return {"r2": np.where(lowest < highest, 1 - weights @ errors / spread, np.nan)}

    return scored


_FAMILIES: dict[str, Callable[[Sequence[str], np.ndarray, np.ndarray], Prepared]] = {
    "roc_auc": _rankings,
    "average_precision": _rankings,
    "roc_auc_ovr": _rankings_of_classes,
    "balanced_accuracy": _confusions,
    "f1": _confusions,
    "f1_macro": _confusions,
    "r2": _determination,
}


def surely_better(metric: str, difference: tuple[float, float] | None) -> bool:
    """Whether an interval of one score minus another is a gain over its whole width."""
    if difference is None:
        return False
    return difference[0] > 0 if BETTER_WHEN_HIGHER[metric] else difference[1] < 0
