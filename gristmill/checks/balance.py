"""GM105: no class is too rare; a regression target takes more than one value."""

from __future__ import annotations

import ibis

from gristmill.checks.missing import is_missing
from gristmill.records import MAX_CASES, Check, judge
from gristmill.spec import RegressionTask, Task
from gristmill.spec.validation import BalanceCheck

CODE, NAME = "GM105", "balance"


def check(table: ibis.Table, task: Task, limits: BalanceCheck) -> Check:
    """Judge the shares of the classes among the rows that have a target."""
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
    shares = {
        str(value): int(count) / rows
        for value, count in zip(counted[task.target], counted["rows"], strict=True)
    }
    # The rarest first, and by name where two are as rare: the database gives them in any order.
    shares = dict(sorted(shares.items(), key=lambda item: (item[1], item[0])))
    rarest = next(iter(shares))
    if len(shares) == 1:
        return Check(CODE, NAME, "failed", rows, f"only class {rarest!r} present", 1, 2, (), "see the source")
    verdict = judge(shares[rarest] >= limits.min_share, limits.severity, rows)
    cases = tuple(
        {"class": name, "share": round(share, 6)}
        for name, share in shares.items()
        if share < limits.min_share
    )[:MAX_CASES]
    text = f"{len(shares)} classes, the rarest {rarest!r} with {shares[rarest]:.1%} of {rows:,} rows"
    way_out = "collect more of it, merge or drop the class, or lower validation.balance.min_share"
    return Check(CODE, NAME, verdict, rows, text, shares[rarest], limits.min_share, cases, way_out)
