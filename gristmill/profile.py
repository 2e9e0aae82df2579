"""Facts of every column, in few scans: how much is missing, extremes, mean, frequent values, histogram."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from typing import Any

import ibis

from gristmill.checks.missing import is_missing
from gristmill.tables import GROUP_ROWS, ROW_ID

Facts = dict[str, Any]

FEW = 10_000
"""A column of at most so many values has them counted one by one; of others the number is an estimate."""
TOP = 10
"""Most frequent values that are kept of such a column."""
BINS = 20
_DISTINCT_TABLES_AT_ONCE = 200
"""Columns whose values are estimated in one scan: each takes a sketch a thread."""


def of(table: ibis.Table, names: Iterable[str]) -> tuple[dict[str, Facts], int]:
    """The facts of the named columns and the number of rows; the same rows give the same bytes.

    `distinct` counts values without the missing, exactly up to about FEW and by HyperLogLog beyond
    (then `distinct_is_estimate` says so). `top` holds the most frequent values with their rows, ties in the
    values' order; `histogram` the rows in BINS stretches of equal width between the finite extremes.
    """
    names = list(names)
    sums, rows = _sums(table, names)
    distinct = _distinct(table, names)
    profile: dict[str, Facts] = {}
    for name in names:
        facts: Facts = {"type": str(table[name].type()), "missing": sums[name].pop("missing")}
        few = distinct[name] <= FEW
        if few:
            facts |= _frequencies(table, name)
        else:
            facts |= {"distinct": min(distinct[name], rows - facts["missing"]), "distinct_is_estimate": True}
        facts |= sums[name]
        bounds = (facts.get("min"), facts.get("max"))
        if (not few or facts["distinct"] > TOP) and None not in bounds:
            facts["histogram"] = _histogram(table, name, *bounds)
        profile[name] = facts
    return profile, rows


def _sums(table: ibis.Table, names: list[str]) -> tuple[dict[str, Facts], int]:
    """Missing and infinite values, extremes and mean, all in one scan."""
    # A sum of floats depends on its order. Each of these groups is a row group of the Parquet files, which
    # one thread adds as its rows stand; adding the groups' sums is then exact.
    asked: dict[str, Any] = {"rows": table.count()}
    for place, name in enumerate(names):
        column = table[name]
        kind = column.type()
        missing = is_missing(column)
        asked[f"missing.{place}"] = missing.sum()
        if kind.is_floating():
            asked[f"infinite.{place}"] = column.isinf().sum()
        if kind.is_boolean() or not (kind.is_numeric() or kind.is_temporal()):
            continue
        # With 0.0 added, -0.0 is no other value than 0.0.
        valid = ibis.ifelse(missing, None, column + 0.0) if kind.is_floating() else column
        asked[f"min.{place}"], asked[f"max.{place}"] = valid.min(), valid.max()
        if kind.is_numeric():
            asked[f"mean.{place}"] = valid.mean()
    grouped = table.group_by(group=table[ROW_ID] // GROUP_ROWS).aggregate(**asked)
    found = grouped.order_by("group").to_pyarrow()
    rows = sum(found["rows"].to_pylist())
    profile: dict[str, Facts] = {}
    for place, name in enumerate(names):
        facts: Facts = {}
        missing_rows = found[f"missing.{place}"].to_pylist()
        facts["missing"] = int(sum(count or 0 for count in missing_rows))
        for key, reduced in (("infinite", sum), ("min", min), ("max", max)):
            if (label := f"{key}.{place}") in asked:
                values = [value for value in found[label].to_pylist() if value is not None]
                facts[key] = _plain(reduced(values)) if values else (0 if key == "infinite" else None)
        if f"mean.{place}" in asked:
            present = [
                total - int(gone or 0)
                for total, gone in zip(found["rows"].to_pylist(), missing_rows, strict=True)
            ]
            facts["mean"] = _mean(found[f"mean.{place}"].to_pylist(), present)
        profile[name] = facts
    return profile, rows


def _mean(means: list[Any], counts: list[int]) -> float | None:
    terms = [
        float(mean) * count for mean, count in zip(means, counts, strict=True) if mean is not None and count
    ]
    if not terms or not all(map(math.isfinite, terms)):
        return None
    return math.fsum(terms) / sum(counts)


def _distinct(table: ibis.Table, names: list[str]) -> dict[str, int]:
    """About how many values each column has, from sketches that do not depend on the rows' order."""
    found: dict[str, int] = {}
    for start in range(0, len(names), _DISTINCT_TABLES_AT_ONCE):
        some = names[start : start + _DISTINCT_TABLES_AT_ONCE]
        asked = {f"{place}": _value(table, name).approx_nunique() for place, name in enumerate(some)}
        row = table.aggregate(**asked).to_pyarrow().to_pylist()[0]
        found |= {name: int(row[f"{place}"] or 0) for place, name in enumerate(some)}
    return found


def _frequencies(table: ibis.Table, name: str) -> Facts:
    """The number of values and the most frequent of them."""
    valued = table.select(value=_value(table, name)).filter(lambda t: t.value.notnull())
    counted = valued.group_by("value").aggregate(rows=valued.count()).to_pyarrow()
    first = counted.sort_by([("rows", "descending"), ("value", "ascending")]).slice(0, TOP).to_pylist()
    return {"distinct": len(counted), "top": [[_shown(row["value"]), int(row["rows"])] for row in first]}


def _histogram(table: ibis.Table, name: str, low: Any, high: Any) -> Facts:
    column = _value(table, name)
    if isinstance(low, str):
        moments = [datetime.datetime.fromisoformat(moment) for moment in (low, high)]
        start, end = (_epoch(moment) for moment in moments)
        column = column.cast("timestamp").epoch_seconds()
    else:
        start, end = float(low), float(high)
    width = (end - start) / BINS
    if width == 0 or not math.isfinite(width):
        return {"from": low, "to": high, "rows": []}
    place = ((column.cast("float64") - start) / width).floor().clip(0, BINS - 1)
    binned = table.select(place=place, value=column).filter(lambda t: t.value.notnull())
    counted = binned.group_by("place").aggregate(rows=binned.count()).to_pyarrow().to_pylist()
    rows = [0] * BINS
    for row in counted:
        rows[int(row["place"])] += int(row["rows"])
    return {"from": low, "to": high, "rows": rows}


def _epoch(moment: datetime.datetime) -> float:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    return math.floor(aware.timestamp())


def _value(table: ibis.Table, name: str) -> Any:
    """The column with NaN as null and -0.0 as 0.0."""
    column = table[name]
    return ibis.ifelse(column.isnan(), None, column + 0.0) if column.type().is_floating() else column


def _plain(value: Any) -> Any:
    """The value as JSON holds it: infinity as null, a moment in ISO 8601."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, datetime.date):
        return value.isoformat()
    number = float(value)
    return number if math.isfinite(number) else None


def _shown(value: Any) -> Any:
    plain = _plain(value)
    return str(value) if plain is None else plain


def top_share(facts: Mapping[str, Any], rows: int) -> float | None:
    """The share of rows that a column's most frequent value has; None where it is not known."""
    return facts["top"][0][1] / rows if rows and facts.get("top") else None
