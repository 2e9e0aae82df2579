"""GM104: no feature misses more of its values than declared."""

from __future__ import annotations

from collections.abc import Mapping

import ibis

from gristmill.records import MAX_CASES, Check, judge
from gristmill.spec.validation import MissingCheck

CODE, NAME = "GM104", "missing"


def is_missing(column: ibis.Column) -> ibis.Value:
    """Null, or NaN where the column can hold one: both mean that there is no value."""
    return column.isnull() | column.isnan() if column.type().is_floating() else column.isnull()


def check(shares: Mapping[str, float], rows: int, limits: MissingCheck) -> Check:
    """Judge each feature's share of missing values; a feature without any value always fails."""
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
    way_out = "exclude the column, fill it upstream, or set its limit in validation.missing.columns"
    return Check(
        CODE, NAME, verdict, len(shares), text, shares.get(worst, 0.0), limits.max_share, cases, way_out
    )
