"""GM123 to GM125: columns that tell too much of the target: a feature alone, the order of the rows, a class' own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.checks.missing import Stretch
from gristmill.records import MAX_CASES, Check, judge, unseen
from gristmill.spec.validation import OneClassOnlyCheck, RowOrderCheck, SingleFeatureCheck

MIN_ROWS = 50
"""Of fewer rows a share of explained errors says nothing."""
_BINS = 256
_ROWS_A_BIN = 20
_CHANCE = 0.001


@dataclass(frozen=True)
class Answers:
    """The target as skill is measured on it: class codes (n,) int64, or numbers (n,) float64."""

    values: np.ndarray
    are_classes: bool

    @classmethod
    def of(cls, column: pa.ChunkedArray, *, are_classes: bool) -> Answers:
        """From a column without missing values."""
        if not are_classes:
            return cls(column.cast(pa.float64()).to_numpy(), False)
        return cls(_codes(column), True)


def skill(feature: pa.ChunkedArray, answers: Answers, fit: np.ndarray, held_out: np.ndarray) -> float:
    """The share of the errors of a constant prediction that the feature alone does away with, at most 1.

    Learnt on the rows `fit` and measured on `held_out`: for classes the wrong answers of the most frequent
    class of each value or quantile bin; for numbers the squared errors of each bin's mean or of a straight
    line, of the target itself or of its rank, whichever is best.
    """
    bins = _bins(feature, fit)
    if answers.are_classes:
        return _skill_of_classes(bins, answers.values, fit, held_out)
    ranks = np.searchsorted(np.sort(answers.values[fit]), answers.values).astype(float)
    found = [_skill_of_means(bins, values, fit, held_out) for values in (answers.values, ranks)]
    if pa.types.is_integer(feature.type) or pa.types.is_floating(feature.type):
        found.append(_skill_of_line(_numbers(feature), answers.values, fit, held_out))
    return max(found)


def halves(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two halves of the places 0 to rows - 1, drawn at random."""
    order = np.random.default_rng(seed).permutation(rows)
    return order[: rows // 2], order[rows // 2 :]


def single_feature(skills: Mapping[str, float], rows: int, of_rows: int, limits: SingleFeatureCheck) -> Check:
    """Judge how much of the target each feature tells by itself; `rows` of `of_rows` were looked at."""
    code, name = "GM123", "single feature"
    if rows < MIN_ROWS or not skills:
        text = f"not judged: {rows} rows have a target, {MIN_ROWS} are needed"
        return Check(code, name, unseen(limits.severity), 0, text, way_out="give it more rows")
    order = sorted(skills, key=lambda feature: (-skills[feature], feature))
    over = [feature for feature in order if skills[feature] > limits.max_skill]
    sample = f" (a sample of {rows:,} of {of_rows:,} rows)" if rows < of_rows else ""
    if over:
        shown = ", ".join(f"{feature} ({skills[feature]:.1%})" for feature in over[:3])
        text = f"{len(over)} of {len(skills)} features alone tell the target: {shown}{sample}"
    else:
        text = f"no feature alone tells the target; {order[0]} tells most ({max(skills[order[0]], 0):.1%}){sample}"
    cases = tuple({"column": feature, "skill": round(skills[feature], 6)} for feature in over[:MAX_CASES])
    way_out = "exclude what is known only with the answer; if it is known before, no network is needed"
    verdict = judge(not over, limits.severity, rows)
    return Check(
        code, name, verdict, rows, text, round(skills[order[0]], 6), limits.max_skill, cases, way_out
    )


def row_order(found: float, rows: int, limits: RowOrderCheck) -> Check:
    """Judge how much of the target a row's place in the source tells."""
    code, name = "GM124", "row order"
    if rows < MIN_ROWS:
        text = f"not judged: {rows} rows have a target, {MIN_ROWS} are needed"
        return Check(code, name, unseen(limits.severity), 0, text, way_out="give it more rows")
    text = f"a row's place in the source tells {max(found, 0):.1%} of the target"
    way_out = "use no feature that follows the order, such as an index; or tell the time by split.time_on"
    verdict = judge(found <= limits.max_skill, limits.severity, rows)
    return Check(code, name, verdict, rows, text, round(found, 6), limits.max_skill, (), way_out)


def one_class_only(classes: Sequence[Stretch], features: Sequence[str], limits: OneClassOnlyCheck) -> Check:
    """Judge that no feature is filled for one class and for no other, by the classes' missing values.

    So few values that they may be of one class by chance (p 0.001) are no finding.
    """
    code, name = "GM125", "one class only"
    rows = sum(part.rows for part in classes)
    found = {}
    for feature in features:
        present = [(part.rows - part.missing.get(feature, 0), part) for part in classes]
        filled = [(count, part) for count, part in present if count]
        if len(filled) == 1 < len(classes):
            count, part = filled[0]
            if (part.rows / rows) ** count < _CHANCE:
                found[feature] = (part.label, count)
    shown = ", ".join(f"{feature} for {label}" for feature, (label, _) in list(found.items())[:3])
    text = (
        f"{len(found)} of {len(features)} features are filled for one class only: {shown}"
        if found
        else f"none of {len(features)} features is filled for one class only"
    )
    cases = tuple(
        {"column": feature, "class": label, "values": count}
        for feature, (label, count) in list(found.items())[:MAX_CASES]
    )
    verdict = judge(not found, limits.severity, rows)
    way_out = "exclude it: it was written down after the answer was known"
    return Check(code, name, verdict, rows, text, len(found), 0, cases, way_out)


def _bins(feature: pa.ChunkedArray, fit: np.ndarray) -> np.ndarray:
    """A whole number a row: its value where there are few, else its quantile bin; missing has its own."""
    numeric = pa.types.is_integer(feature.type) or pa.types.is_floating(feature.type)
    codes = _codes(feature)
    most = max(min(_BINS, len(fit) // _ROWS_A_BIN), 2)
    if not numeric or codes.max(initial=0) < most:
        return codes
    values = _numbers(feature)
    present = values[fit][~np.isnan(values[fit])]
    edges = np.quantile(present, np.linspace(0, 1, most + 1)[1:-1]) if len(present) else present
    return np.where(np.isnan(values), most + 1, np.searchsorted(np.unique(edges), values, side="right"))


def _skill_of_classes(bins: np.ndarray, codes: np.ndarray, fit: np.ndarray, held_out: np.ndarray) -> float:
    num_classes, num_bins = int(codes.max()) + 1, int(bins.max()) + 1
    most_frequent = int(np.bincount(codes[fit], minlength=num_classes).argmax())
    # Sorted pairs of bin and class instead of a matrix: a name column has as many bins as rows.
    pairs, counts = np.unique(bins[fit] * num_classes + codes[fit], return_counts=True)
    order = np.lexsort((-pairs, counts))
    answer = np.full(num_bins, most_frequent)
    answer[pairs[order] // num_classes] = pairs[order] % num_classes
    wrong = np.count_nonzero(answer[bins[held_out]] != codes[held_out])
    constant = np.count_nonzero(codes[held_out] != most_frequent)
    return float(1 - wrong / constant) if constant else 0.0


def _skill_of_means(bins: np.ndarray, values: np.ndarray, fit: np.ndarray, held_out: np.ndarray) -> float:
    num_bins = int(bins.max()) + 1
    counts = np.bincount(bins[fit], minlength=num_bins)
    sums = np.bincount(bins[fit], weights=values[fit], minlength=num_bins)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), values[fit].mean())
    return _explained(means[bins[held_out]], values[held_out], values[fit].mean())


def _skill_of_line(numbers: np.ndarray, values: np.ndarray, fit: np.ndarray, held_out: np.ndarray) -> float:
    known = np.isfinite(numbers)
    learnt, measured = fit[known[fit]], held_out[known[held_out]]
    # A line says nothing of rows without the feature; on half of all rows it does not tell the target.
    if len(measured) < len(held_out) / 2 or len(learnt) < _ROWS_A_BIN:
        return 0.0
    x = numbers[learnt] - numbers[learnt].mean()
    spread = float(x @ x)
    if not np.isfinite(spread) or spread == 0:
        return 0.0
    mean = values[learnt].mean()
    slope = float(x @ (values[learnt] - mean)) / spread
    guess = np.full(len(values), values[fit].mean())
    guess[measured] = mean + slope * (numbers[measured] - numbers[learnt].mean())
    return _explained(guess[held_out], values[held_out], values[fit].mean())


def _explained(guess: np.ndarray, values: np.ndarray, constant: float) -> float:
    total = float(((values - constant) ** 2).sum())
    return 1 - float(((values - guess) ** 2).sum()) / total if total > 0 else 0.0


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    numbers = column.cast(pa.float64(), safe=False).to_numpy()
    return np.where(np.isinf(numbers), np.nan, numbers)


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """Whole numbers from 0, one a value; missing values share the last."""
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, pc.add(column, 0.0))
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy().astype(np.int64)
