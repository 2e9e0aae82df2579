"""GM106 to GM110: features vary, are finite, known in time, of the type they look, and no identifiers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gristmill.records import MAX_CASES, Check, judge
from gristmill.spec.validation import ConstantCheck


def constant(distinct: Mapping[str, int], top: Mapping[str, float], limits: ConstantCheck) -> Check:
    """Features that hold one value only, or nearly so, tell a model nothing.

    `top` is the share of rows with the most frequent value, for the features of which it is known.
    """
    alone = sorted(name for name, count in distinct.items() if count <= 1)
    nearly = sorted(name for name in distinct if name not in alone and top.get(name, 0) > limits.max_share)
    verdict = judge(not alone and not nearly, limits.severity, len(distinct))
    text = f"{len(alone)} of {len(distinct)} features hold one value only" + (
        f": {', '.join(alone[:5])}" if alone else ""
    )
    if nearly:
        text += f"; nearly so: {', '.join(f'{name} ({top[name]:.3%})' for name in nearly[:5])}"
    cases: list[dict[str, Any]] = [{"column": name} for name in alone]
    cases += [{"column": name, "share": round(top[name], 6)} for name in nearly]
    return Check(
        "GM106",
        "constant",
        verdict,
        len(distinct),
        text,
        len(alone) + len(nearly),
        0,
        tuple(cases[:MAX_CASES]),
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


NUMBERS_SHARE = 0.9
IDENTIFIER_SHARE = 0.95
IDENTIFIER_ROWS = 100


def numbers_as_text(found: Mapping[str, tuple[int, int, str]]) -> Check:
    """A column of numbers that a few other texts turn into thousands of categories.

    `found` holds, by feature of text: values, those of them that are numbers, and the first that is none.
    """
    odd = {
        name: (values, numbers, other)
        for name, (values, numbers, other) in found.items()
        if values and NUMBERS_SHARE <= numbers / values < 1
    }
    if odd:
        name, (values, numbers, other) = next(iter(odd.items()))
        text = f"{name!r} is text, though {numbers:,} of {values:,} values are numbers; one that is none: {other!r}"
        text += f" (and {len(odd) - 1} more columns)" if len(odd) > 1 else ""
    else:
        text = f"none of {len(found)} features of text holds mostly numbers"
    cases = tuple(
        {"column": name, "numbers": numbers, "values": values, "other": other}
        for name, (values, numbers, other) in list(odd.items())[:MAX_CASES]
    )
    verdict = "passed" if not found else judge(not odd, "warn", len(found))
    way_out = "name such texts in source.na_values, or declare source.types to find the rows; else exclude the column"
    return Check("GM109", "numbers as text", verdict, len(found), text, len(odd), 0, cases, way_out)


def identifier(
    categorical: Collection[str], distinct: Mapping[str, int], present: Mapping[str, int]
) -> Check:
    """A category that nearly every row has to itself is a name, and says nothing of rows to come."""
    names = {
        name: distinct[name]
        for name in categorical
        if present[name] >= IDENTIFIER_ROWS and distinct[name] >= IDENTIFIER_SHARE * present[name]
    }
    text = (
        f"{', '.join(names)}: nearly as many values as rows"
        if names
        else (f"none of {len(categorical)} categories is an identifier")
    )
    cases = tuple({"column": name, "distinct": count} for name, count in list(names.items())[:MAX_CASES])
    verdict = "passed" if not categorical else judge(not names, "warn", len(categorical))
    return Check(
        "GM110",
        "identifiers",
        verdict,
        len(categorical),
        text,
        len(names),
        0,
        cases,
        "add them to features.exclude",
    )
