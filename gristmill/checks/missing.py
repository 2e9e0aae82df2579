"""GM104, GM114 and GM115: how much each feature misses, by class, and over time or groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ibis
import numpy as np

from gristmill.records import MAX_CASES, Check, judge, unseen
from gristmill.spec.validation import MissingByClassCheck, MissingCheck, MissingOverTimeCheck

CODE, NAME = "GM104", "missing"
MIN_ROWS = 30
"""A class, a group or a stretch of time with fewer rows has no share to compare."""
MOST_GROUPS = 100
STRETCHES = 20
_MASK_BITS = 62
_PATTERNS = 10_000
_TOGETHER = 0.95


def is_missing(column: ibis.Column) -> ibis.Value:
    """Null, or NaN where the column can hold one: both mean that there is no value."""
    return column.isnull() | column.isnan() if column.type().is_floating() else column.isnull()


def check(
    shares: Mapping[str, float], rows: int, limits: MissingCheck, together: Sequence[Sequence[str]] = ()
) -> Check:
    """Judge each feature's share of missing values; a feature without any value always fails.

    `together` are the features that miss their values in the same rows, which the finding names.
    """
    if rows == 0:
        return Check(CODE, NAME, "not verified", 0, "no row to look at")
    over = {
        name: share
        for name, share in shares.items()
        if share > limits.columns.get(name, limits.max_share) or share == 1
    }
    empty = [name for name, share in over.items() if share == 1]
    verdict = "failed" if empty else judge(not over, limits.severity, len(shares))
    worst = max(shares, key=lambda name: shares[name], default="")
    cases = tuple(
        {"column": name, "share": round(share, 6), "limit": limits.columns.get(name, limits.max_share)}
        for name, share in sorted(over.items(), key=lambda item: -item[1])[:MAX_CASES]
    )
    if empty:
        text = f"{empty[0]!r} has no values" + (
            f" and {len(over) - 1} more miss too many" if len(over) > 1 else ""
        )
    elif over:
        text = f"{len(over)} of {len(shares)} features miss too many values: {', '.join(list(over)[:5])}"
    else:
        text = (
            f"{len(shares)} features within their limits; {worst!r} misses most ({shares.get(worst, 0):.1%})"
        )
    if together:
        most = max(together, key=len)
        text += f"; missing together: {', '.join(most[:5])}" + (" ..." if len(most) > 5 else "")
    way_out = "exclude the column, fill it upstream, or set its limit in validation.missing.columns"
    return Check(
        CODE, NAME, verdict, len(shares), text, shares.get(worst, 0.0), limits.max_share, cases, way_out
    )


@dataclass(frozen=True)
class Stretch:
    """Rows that have one class, one group or one stretch of time: what they miss, by feature."""

    label: Any
    rows: int
    missing: dict[str, int]

    def share(self, feature: str) -> float:
        return self.missing.get(feature, 0) / self.rows


def by_value(table: ibis.Table, features: Sequence[str], column: str) -> list[Stretch]:
    """What the rows of each value of a column miss: the MOST_GROUPS most frequent values, in order."""
    key = table[column].cast("string")
    present = table.filter(~is_missing(table[column]))
    found = _counted(present, features, key).order_by([ibis.desc("rows"), "by"]).limit(MOST_GROUPS)
    return [_stretch(row, row["by"], features) for row in found.to_pyarrow().to_pylist()]


def by_place(
    table: ibis.Table, features: Sequence[str], place: ibis.Value, low: int, high: int, labels: Sequence[Any]
) -> list[Stretch]:
    """What the rows miss along a whole number between two bounds, in as many even stretches as `labels`."""
    width = (high - low + 1) / len(labels)
    key = ((place - low) / width).floor().clip(0, len(labels) - 1).cast("int64")
    found = _counted(table.filter(place.notnull()), features, key).order_by("by").to_pyarrow().to_pylist()
    return [_stretch(row, labels[row["by"]], features) for row in found]


def _counted(table: ibis.Table, features: Sequence[str], key: ibis.Value) -> ibis.Table:
    asked = {f"m{place}": is_missing(table[name]).sum() for place, name in enumerate(features)}
    return table.group_by(by=key).aggregate(rows=table.count(), **asked)


def _stretch(row: Mapping[str, Any], label: Any, features: Sequence[str]) -> Stretch:
    return Stretch(label, int(row["rows"]), {name: int(row[f"m{i}"] or 0) for i, name in enumerate(features)})


def by_class(classes: Sequence[Stretch], features: Sequence[str], limits: MissingByClassCheck) -> Check:
    """Judge how far the classes' shares of missing values lie apart, feature by feature."""
    way_out = "find out why one class lacks it: a value that only some answers leave behind tells the answer"
    return _differences(
        "GM114",
        "missing by class",
        classes,
        features,
        "class",
        limits.max_difference,
        limits.severity,
        way_out,
    )


def over_time(
    stretches: Sequence[Stretch], features: Sequence[str], along: str, limits: MissingOverTimeCheck
) -> Check:
    """Judge how far shares of missing values lie apart along `along`: time, the rows' order, or a group."""
    way_out = "find out what changed; keep to the rows after it, or exclude the column"
    return _differences(
        "GM115",
        "missing over time",
        stretches,
        features,
        along,
        limits.max_difference,
        limits.severity,
        way_out,
    )


def _differences(
    code: str,
    name: str,
    stretches: Sequence[Stretch],
    features: Sequence[str],
    along: str,
    limit: float,
    severity: Any,
    way_out: str,
) -> Check:
    if not features:
        return Check(code, name, "passed", 0, "no feature misses a value")
    large = [stretch for stretch in stretches if stretch.rows >= MIN_ROWS]
    rows = sum(stretch.rows for stretch in large)
    if len(large) < 2:
        text = f"not judged: {len(large)} of {len(stretches)} parts by {along} have {MIN_ROWS} rows, 2 are needed"
        return Check(code, name, unseen(severity), 0, text, way_out="give it more rows")
    spans = {}
    for feature in features:
        order = sorted(large, key=lambda stretch: stretch.share(feature))
        spans[feature] = (order[-1].share(feature) - order[0].share(feature), order[0], order[-1])
    worst = sorted(spans, key=lambda feature: (-spans[feature][0], feature))
    over = [feature for feature in worst if spans[feature][0] > limit]
    if over:
        _, least, most = spans[over[0]]
        text = (
            f"{len(over)} of {len(features)} features miss values by {along}: {over[0]} "
            f"{most.share(over[0]):.1%} for {most.label}, {least.share(over[0]):.1%} for {least.label}"
        )
    else:
        text = f"missing shares differ by {spans[worst[0]][0]:.1%} at most by {along} ({worst[0]})"
    cases = tuple(
        {
            "column": feature,
            "most": str(most.label),
            "share": round(most.share(feature), 6),
            "least": str(least.label),
            "least share": round(least.share(feature), 6),
        }
        for feature in over[:MAX_CASES]
        for _, least, most in [spans[feature]]
    )
    value = round(spans[worst[0]][0], 6)
    return Check(code, name, judge(not over, severity, rows), rows, text, value, limit, cases, way_out)


def together(table: ibis.Table, names: Sequence[str]) -> list[list[str]]:
    """Columns, of those named, that miss their values in (nearly) the same rows, largest group first.

    Two belong together when 95 % of the rows that miss either miss both (Jaccard).
    """
    if len(names) < 2:
        return []
    masks = {}
    for start in range(0, len(names), _MASK_BITS):
        bits = [
            is_missing(table[name]).ifelse(1 << place, 0).cast("int64")
            for place, name in enumerate(names[start : start + _MASK_BITS])
        ]
        masks[f"m{start}"] = sum(bits[1:], start=bits[0])
    # Few patterns cover nearly all rows; of many, the rarest are left out.
    counted = table.group_by(**masks).aggregate(rows=table.count())
    found = counted.order_by([ibis.desc("rows"), *masks]).limit(_PATTERNS).to_pyarrow()
    rows = found["rows"].to_numpy().astype(float)
    gone = np.empty((len(names), len(rows)), dtype=bool)
    for place in range(len(names)):
        start = place // _MASK_BITS * _MASK_BITS
        gone[place] = found[f"m{start}"].to_numpy() >> (place - start) & 1
    both = (gone * rows) @ gone.T
    own = np.diagonal(both)
    either = own[:, None] + own[None, :] - both
    alike = (both >= _TOGETHER * either) & (both > 0)
    groups: list[list[str]] = []
    taken: set[int] = set()
    for place in range(len(names)):
        members = [other for other in np.flatnonzero(alike[place]).tolist() if other not in taken]
        if place not in taken and len(members) > 1:
            groups.append([names[other] for other in members])
            taken.update(members)
    return sorted(groups, key=lambda group: (-len(group), group))
