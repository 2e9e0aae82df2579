"""GM105, GM116 and GM117: the classes' shares, the shape of a number to predict, and what groups leave of the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ibis
import numpy as np

from gristmill.checks.missing import is_missing
from gristmill.records import MAX_CASES, Check, judge, unseen
from gristmill.spec import RegressionTask, Task
from gristmill.spec.validation import BalanceCheck, EffectiveRowsCheck, TargetShapeCheck

CODE, NAME = "GM105", "balance"
_PARTS = 3
_FENCE = 3


def check(table: ibis.Table, task: Task, limits: BalanceCheck, parts: Sequence[float]) -> Check:
    """Judge the shares of the classes among the rows that have a target.

    `parts` are the shares of the split's parts: a class that cannot stand in each of the three parts fails,
    and one of which the smallest part expects less than one row warns.
    """
    present = table.filter(~is_missing(table[task.target]))
    rows = int(present.count().execute())
    if rows == 0:
        return Check(CODE, NAME, "not verified", 0, "no row has a target")
    if isinstance(task, RegressionTask):
        distinct = int(present[task.target].nunique().execute())
        verdict = judge(distinct > 1, "fail", rows)
        text = f"{task.target!r} takes {distinct:,} values in {rows:,} rows"
        return Check(
            CODE, NAME, verdict, rows, text, distinct, 2, (), "there is nothing to learn from one value"
        )
    counted = present.group_by(task.target).aggregate(rows=present.count()).execute()
    counts = {
        str(value): int(count) for value, count in zip(counted[task.target], counted["rows"], strict=True)
    }
    # The rarest first, and by name where two are as rare: the database gives them in any order.
    counts = dict(sorted(counts.items(), key=lambda item: (item[1], item[0])))
    rarest = next(iter(counts))
    if len(counts) == 1:
        return Check(CODE, NAME, "failed", rows, f"only class {rarest!r} present", 1, 2, (), "see the source")
    share, needed = counts[rarest] / rows, math.ceil(1 / min(parts))
    text = f"{len(counts)} classes, the rarest {rarest!r} with {share:.1%} of {rows:,} rows"
    verdict = judge(share >= limits.min_share, limits.severity, rows)
    if counts[rarest] < _PARTS:
        verdict = "failed"
        text += f"; {counts[rarest]} rows cannot stand in {_PARTS} parts"
    elif counts[rarest] < needed:
        verdict = "failed" if verdict == "failed" else "warned"
        text += f"; {counts[rarest]} rows are fewer than the {needed} of which a part of {min(parts):g} expects one"
    cases = tuple(
        {"class": name, "share": round(count / rows, 6), "rows": count}
        for name, count in counts.items()
        if count / rows < limits.min_share or count < needed
    )[:MAX_CASES]
    way_out = "collect more of it, merge or drop the class, or lower validation.balance.min_share"
    return Check(CODE, NAME, verdict, rows, text, share, limits.min_share, cases, way_out)


def target_shape(table: ibis.Table, target: str, limits: TargetShapeCheck) -> Check:
    """Judge the mass at a number's most frequent value, and its outliers by Tukey's far fences (1977)."""
    code, name = "GM116", "target shape"
    column = table[target]
    valid = ibis.ifelse(column.isinf(), None, column + 0.0) if column.type().is_floating() else column
    values = table.select(value=valid.cast("float64")).filter(lambda t: ~is_missing(t.value))
    first = values.group_by("value").aggregate(rows=values.count())
    top = first.order_by([ibis.desc("rows"), "value"]).limit(1).to_pyarrow().to_pylist()
    if not top:
        return Check(code, name, "not verified", 0, f"{target!r} has no number", way_out="see the source")
    asked = {"low": values.value.min(), "high": values.value.max(), "rows": values.count()}
    asked |= {f"q{q}": values.value.quantile(q / 4) for q in (1, 3)}
    found = values.aggregate(**asked).to_pyarrow().to_pylist()[0]
    rows, spread = int(found["rows"]), found["q3"] - found["q1"]
    mass = top[0]["rows"] / rows
    text = f"{mass:.1%} of {rows:,} rows are {top[0]['value']:g}"
    share = 0.0
    cases: tuple[dict[str, Any], ...] = ()
    if spread > 0:
        fences = (found["q1"] - _FENCE * spread, found["q3"] + _FENCE * spread)
        far = table.select("_row", value=valid.cast("float64")).filter(
            lambda t: (t.value < fences[0]) | (t.value > fences[1])
        )
        share = int(far.count().execute()) / rows
        tails = (found["q1"] - found["low"]) / spread, (found["high"] - found["q3"]) / spread
        text += (
            f"; {share:.2%} lie more than {_FENCE} interquartile ranges outside the quartiles, which are "
            f"{found['q1']:g} and {found['q3']:g} (tails of {tails[0]:.1f} and {tails[1]:.1f} ranges)"
        )
        if share > limits.max_outlier_share:
            worst = far.order_by([ibis.desc((far.value - found["q1"]).abs()), "_row"]).limit(MAX_CASES)
            cases = tuple(
                {"row": row["_row"], target: row["value"]} for row in worst.to_pyarrow().to_pylist()
            )
    else:
        text += f"; the quartiles are both {found['q1']:g}, which leaves no range to measure outliers by"
    heavy, far_out = mass > limits.max_mass, share > limits.max_outlier_share
    value, limit = (share, limits.max_outlier_share) if far_out and not heavy else (mass, limits.max_mass)
    way_out = (
        "model the mass apart, transform the target, or cap what was measured wrong; else raise the limit"
    )
    verdict = judge(not heavy and not far_out, limits.severity, rows)
    return Check(code, name, verdict, rows, text, round(value, 6), limit, cases, way_out)


def effective_rows(table: ibis.Table, task: Task, group: str, limits: EffectiveRowsCheck) -> Check:
    """How many independent rows the groups' rows are worth: N / (1 + (m - 1) ICC), Kish's design effect (1965).

    ICC is the intraclass correlation of the target by one-way analysis of variance (for classes summed over
    their indicators), m the size of the group that an average row is in.
    """
    code, name = "GM117", "effective rows"
    present = table.filter(~is_missing(table[task.target]) & ~is_missing(table[group]))
    sizes, between, within = _variances(present, task, group)
    rows, groups = int(sizes.sum()), len(sizes)
    if groups < 2:
        text = f"not judged: {rows:,} rows in {groups:,} groups of {group}, 2 groups are needed"
        return Check(code, name, unseen(limits.severity), 0, text, way_out="see split.group_on")
    size = float((sizes.astype(float) ** 2).sum()) / rows
    correlation = 0.0
    if rows > groups:
        mean_between, mean_within = between / (groups - 1), within / (rows - groups)
        total = mean_between + ((rows - size) / (groups - 1) - 1) * mean_within
        correlation = min(max((mean_between - mean_within) / total, 0.0), 1.0) if total > 0 else 0.0
    effective = float(f"{rows / (1 + (size - 1) * correlation):.6g}")
    text = (
        f"{rows:,} rows in {groups:,} groups of {group} are worth {effective:,.0f} independent ones "
        f"(intraclass correlation {correlation:.2f})"
    )
    ok = limits.min_rows is None or effective >= limits.min_rows
    way_out = "collect more groups: more rows of the same groups add little"
    return Check(
        code, name, judge(ok, limits.severity, rows), rows, text, effective, limits.min_rows, (), way_out
    )


def _variances(present: ibis.Table, task: Task, group: str) -> tuple[np.ndarray, float, float]:
    """Rows of each group, and the sums of squares between and within the groups."""
    target = present[task.target]
    if isinstance(task, RegressionTask):
        # Squares about the mean, for those about 0 lose the digits that tell two groups apart.
        mean = float(
            present.aggregate(mean=target.cast("float64").mean()).to_pyarrow()["mean"][0].as_py() or 0
        )
        values = present.select(by=present[group], value=target.cast("float64") - mean)
        asked: dict[str, Any] = {"rows": values.count(), "sum": values.value.sum()}
        found = values.group_by("by").aggregate(**asked, squares=(values.value**2).sum()).to_pyarrow()
        sizes, sums = found["rows"].to_numpy(), found["sum"].to_numpy()
        explained = float((sums**2 / np.maximum(sizes, 1)).sum())
        overall = float(sums.sum()) ** 2 / max(int(sizes.sum()), 1)
        return sizes, explained - overall, float(found["squares"].to_numpy().sum()) - explained
    counted = present.group_by(by=present[group], of=target).aggregate(rows=present.count()).to_pyarrow()
    counts = counted["rows"].to_numpy().astype(float)
    by = counted["by"].combine_chunks().dictionary_encode().indices.to_numpy()
    of = counted["of"].combine_chunks().dictionary_encode().indices.to_numpy()
    sizes, classes = np.bincount(by, weights=counts), np.bincount(of, weights=counts)
    explained = float((counts**2 / sizes[by]).sum()) if len(counts) else 0.0
    rows = sizes.sum()
    return sizes, explained - float((classes**2).sum()) / max(rows, 1), float(rows) - explained
