"""The table's columns in the report: a line each, and behind it the column's own page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gristmill.records import Check

# More than these are one click away, and more than the second number in validation.json only.
_SHOWN, _AT_MOST = 20, 300
_ROLES = ("target", "numeric feature", "categorical feature", "left out")
WIDTH, HEIGHT = 420, 96
_ROOM = 14
"""Above the bars, for the greatest number of rows."""


def view(profile: Mapping[str, Any], checks: Iterable[Check]) -> dict[str, Any] | None:
    """What the template shows: the target first, then in each role the columns that miss most."""
    if not profile:
        return None
    rows = profile["rows"]
    said = _said(checks)
    found = [
        {"name": name, "share": facts["missing"] / rows if rows else 0.0, "page": _page(facts, rows)}
        | facts
        | {"said": said.get(name, []), "worst": _worst(said.get(name, []))}
        for name, facts in profile["columns"].items()
    ]
    found.sort(key=lambda column: (_ROLES.index(column["role"]), -column["share"]))
    kept = found[:_AT_MOST]
    return {
        "first": kept[:_SHOWN],
        "more": kept[_SHOWN:],
        "left_out": len(found) - len(kept),
        "num": len(found),
        "rows": rows,
    }


def _said(checks: Iterable[Check]) -> dict[str, list[dict[str, Any]]]:
    """What the checks that did not plainly pass found in each column."""
    said: dict[str, list[dict[str, Any]]] = {}
    for check in checks:
        if check.verdict == "passed":
            continue
        for case in check.cases:
            if isinstance(name := case.get("column"), str):
                facts = {key: value for key, value in case.items() if key != "column"}
                line = {"code": check.code, "name": check.name, "verdict": check.verdict, "facts": facts}
                said.setdefault(name, []).append(line)
    return said


def _worst(said: list[dict[str, Any]]) -> str | None:
    verdicts = {line["verdict"] for line in said}
    return next((verdict for verdict in ("failed", "not verified", "warned") if verdict in verdicts), None)


def _page(facts: Mapping[str, Any], rows: int) -> dict[str, Any]:
    page: dict[str, Any] = {}
    if top := facts.get("top"):
        most = max(count for _, count in top) or 1
        page["top"] = [
            {"value": value, "rows": count, "share": count / rows, "width": round(100 * count / most, 1)}
            for value, count in top
        ]
        page["others"] = facts["distinct"] - len(top)
    histogram = facts.get("histogram")
    if histogram and histogram["rows"]:
        page["histogram"] = histogram | {"bars": _bars(histogram["rows"]), "most": max(histogram["rows"])}
    if stretches := facts.get("missing_over_time"):
        shares = [stretch["share"] for stretch in stretches]
        page["missing_over_time"] = {
            "bars": _bars(shares, 1.0 if max(shares) > 0.5 else max(shares)),
            "most": max(shares),
            "from": stretches[0]["from"],
            "to": stretches[-1]["from"],
        }
    if drift := facts.get("drift"):
        page["drift"] = drift
    return page


def _bars(values: list[float], most: float | None = None) -> list[dict[str, float]]:
    """Left edge, upper edge, width and height of each bar, in the SVG's units; what is not 0 can be seen."""
    top = most or max(values) or 1
    step = WIDTH / len(values)
    bars = []
    for place, value in enumerate(values):
        height = max((HEIGHT - _ROOM) * min(value / top, 1), 1.0 if value else 0.0)
        bars.append(
            {
                "x": round(step * place, 1),
                "y": round(HEIGHT - height, 1),
                "width": round(step - 1.5, 1),
                "height": round(height, 1),
                "value": value,
            }
        )
    return bars
