"""The pictures of an evaluation, as PNG files of equal bytes for equal numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.metrics import confusion_matrix, precision_recall_curve, roc_curve

from gristmill import models

_BLUE, _GREY, _ORANGE = "#2f6690", "#9aa5b1", "#d1791f"
_MAX_POINTS = 4000


def draw(
    folder: Path, truth: np.ndarray, predicted: np.ndarray, classes: Sequence[Any] | None, champion: str
) -> list[str]:
    """Draw what fits the task into `folder` and return the files' names.

    Shape: truth (n,) codes or numbers; predicted (n, k) probabilities or (n,) numbers.
    """
    if classes is None:
        return [
            _predicted(folder, truth, predicted, champion),
            _residuals(folder, truth, predicted, champion),
        ]
    drawn = [_confusion(folder, truth, predicted, classes, champion)]
    if len(classes) == 2 and len(np.unique(truth)) == 2:
        drawn += [
            _roc(folder, truth, predicted[:, 1], champion),
            _precision_recall(folder, truth, predicted[:, 1], champion),
        ]
    drawn.append(_calibration(folder, truth, predicted, champion))
    return drawn


def _figure(title: str, across: str, up: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(4.6, 3.8), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Figure, folder: Path, name: str) -> str:
    # No date and no version in the file: the picture is its numbers.
    figure.savefig(folder / name, metadata={"Software": None})
    return name


def _roc(folder: Path, truth: np.ndarray, score: np.ndarray, champion: str) -> str:
    false_positive, true_positive, _ = roc_curve(truth, score)
    keep = _thin(len(false_positive))
    figure, axes = _figure(f"ROC, {champion}, test rows", "false positive rate", "true positive rate")
    axes.plot([0, 1], [0, 1], color=_GREY, linewidth=1, linestyle="--")
    axes.plot(false_positive[keep], true_positive[keep], color=_BLUE)
    return _save(figure, folder, "roc.png")


def _precision_recall(folder: Path, truth: np.ndarray, score: np.ndarray, champion: str) -> str:
    precision, recall, _ = precision_recall_curve(truth, score)
    keep = _thin(len(recall))
    figure, axes = _figure(f"Precision and recall, {champion}, test rows", "recall", "precision")
    axes.axhline(float(truth.mean()), color=_GREY, linewidth=1, linestyle="--")
    axes.plot(recall[keep], precision[keep], color=_BLUE)
    axes.set_ylim(0, 1.02)
    return _save(figure, folder, "precision_recall.png")


def _confusion(
    folder: Path, truth: np.ndarray, predicted: np.ndarray, classes: Sequence[Any], champion: str
) -> str:
    codes = np.arange(len(classes))
    counts = confusion_matrix(truth, models.decide(predicted), labels=codes)
    figure, axes = _figure(f"Confusion, {champion}, test rows", "predicted", "true")
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    labels = [str(name)[:12] for name in classes]
    # A name with dollar signs is a name and no formula.
    axes.set_xticks(codes, labels, rotation=0 if len(classes) <= 10 else 90, fontsize=8, parse_math=False)
    axes.set_yticks(codes, labels, fontsize=8, parse_math=False)
    if len(classes) <= 12:
        for row in codes:
            for column in codes:
                color = "white" if shares[row, column] > 0.5 else "#333333"
                axes.text(
                    column, row, f"{counts[row, column]}", ha="center", va="center", fontsize=8, color=color
                )
    return _save(figure, folder, "confusion.png")


def _calibration(folder: Path, truth: np.ndarray, predicted: np.ndarray, champion: str) -> str:
    """How often the class is right beside how sure the model was, in ten bins of equally many rows.

    Two classes: of the positive one. More: of the class predicted.
    """
    if predicted.shape[1] == 2:
        sure, right = predicted[:, 1], truth == 1
        across = "predicted probability of the positive class"
    else:
        sure, right = predicted.max(axis=1), predicted.argmax(axis=1) == truth
        across = "probability of the predicted class"
    order = np.argsort(sure, kind="stable")
    bins = [rows for rows in np.array_split(order, 10) if len(rows)]
    figure, axes = _figure(f"Calibration, {champion}, test rows", across, "share that is right")
    axes.plot([0, 1], [0, 1], color=_GREY, linewidth=1, linestyle="--")
    axes.plot(
        [sure[rows].mean() for rows in bins],
        [right[rows].mean() for rows in bins],
        "o-",
        color=_BLUE,
        markersize=4,
    )
    return _save(figure, folder, "calibration.png")


def _predicted(folder: Path, truth: np.ndarray, predicted: np.ndarray, champion: str) -> str:
    keep = _thin(len(truth))
    figure, axes = _figure(f"Predicted and true, {champion}, test rows", "true", "predicted")
    ends = [float(min(truth.min(), predicted.min())), float(max(truth.max(), predicted.max()))]
    axes.plot(ends, ends, color=_GREY, linewidth=1, linestyle="--")
    axes.scatter(truth[keep], predicted[keep], s=9, alpha=0.6, color=_BLUE, linewidths=0)
    return _save(figure, folder, "predicted.png")


def _residuals(folder: Path, truth: np.ndarray, predicted: np.ndarray, champion: str) -> str:
    figure, axes = _figure(f"Errors, {champion}, test rows", "predicted minus true", "rows")
    axes.hist(predicted - truth, bins=40, color=_BLUE)
    axes.axvline(0, color=_ORANGE, linewidth=1)
    return _save(figure, folder, "residuals.png")


def _thin(points: int) -> np.ndarray:
    """Evenly spaced places, the ends among them; a picture shows no more than a few thousand points."""
    return np.unique(np.linspace(0, points - 1, min(points, _MAX_POINTS)).astype(int))
