"""GM106 to GM108: features vary, are finite, and are known when a prediction is needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gristmill.records import MAX_CASES, Check, judge
from gristmill.spec import ConstantCheck


def constant(distinct: Mapping[str, int], limits: ConstantCheck) -> Check:
    """Features that hold one value only tell a model nothing."""
    found = sorted(name for name, count in distinct.items() if count <= 1)
    verdict = judge(not found, limits.severity, len(distinct))
    text = f"{len(found)} of {len(distinct)} features hold one value only" + (
        f": {', '.join(found[:5])}" if found else ""
    )
    cases = tuple({"column": name} for name in found[:MAX_CASES])
    return Check(
        "GM106",
        "constant",
        verdict,
        len(distinct),
        text,
        len(found),
        0,
        cases,
        "add them to features.exclude",
    )


def finite(infinite: Mapping[str, int]) -> Check:
    """An infinite value has no place on any scale; `infinite` counts them by feature of numbers."""
    found = {name: count for name, count in infinite.items() if count}
    if not infinite:
        return Check("GM107", "finite", "passed", 0, "no feature can hold an infinite value")
    verdict = judge(not found, "fail", len(infinite))
    shown = ", ".join(f"{name} in {count:,} rows" for name, count in list(found.items())[:5])
    text = f"inf in {shown}" if found else f"{len(infinite)} features hold finite numbers"
    cases = tuple({"column": name, "rows": count} for name, count in list(found.items())[:MAX_CASES])
    return Check(
        "GM107", "finite", verdict, len(infinite), text, len(found), 0, cases, "mend the values upstream"
    )


def known(features: Collection[str], after: Collection[str]) -> Check:
    """A feature that is known only afterwards leaks the answer, whatever the score says."""
    found = sorted(set(features) & set(after))
    if found:
        text = f"{', '.join(found)}: known only after the prediction is needed"
    else:
        text = f"none of {len(features)} features is among the {len(after)} columns known only afterwards"
    verdict = judge(not found, "fail", len(features))
    cases = tuple({"column": name} for name in found[:MAX_CASES])
    return Check(
        "GM108",
        "known in time",
        verdict,
        len(features),
        text,
        len(found),
        0,
        cases,
        "add them to features.exclude",
    )
