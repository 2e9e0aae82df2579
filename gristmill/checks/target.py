"""GM102: every row has a target, and it is a number that is finite or one of the task's classes."""

from __future__ import annotations

import ibis

from gristmill.checks.missing import is_missing
from gristmill.records import MAX_CASES, Check
from gristmill.spec import BinaryTask, RegressionTask, Task
from gristmill.tables import ROW_ID

CODE, NAME = "GM102", "target"


def check(table: ibis.Table, task: Task) -> Check:
    """Count missing, infinite and foreign targets; missing ones pass only where the task drops them."""
    column = table[task.target]
    rows = int(table.count().execute())
    missing = table.filter(is_missing(column))
    absent = int(missing.count().execute())
    if rows == absent:
        return Check(
            CODE, NAME, "not verified", 0, f"target {task.target!r} has no value", way_out="see the source"
        )
    if absent and task.target_missing == "refuse":
        cases = tuple(
            {"row": int(row)} for row in missing.order_by(ROW_ID).limit(MAX_CASES)[ROW_ID].execute()
        )
        return Check(
            CODE,
            NAME,
            "failed",
            rows,
            f"target {task.target!r} is missing in {absent:,} rows (first: {cases[0]['row']})",
            absent,
            0,
            cases,
            "mend the rows, or declare task.target_missing: drop to leave them out, counted",
        )
    dropped = f"; {absent:,} rows without a target are left out" if absent else ""
    if isinstance(task, RegressionTask):
        return _number(table, task, rows, absent, dropped)
    kind = column.type()
    if not (kind.is_string() or kind.is_integer() or kind.is_boolean() or kind.is_floating()):
        text = f"a class is text, a whole number or a truth value; {task.target!r} is {kind}"
        return Check(CODE, NAME, "failed", rows, text, way_out="turn the target into text upstream")
    classes = table.filter(~is_missing(column))[task.target].nunique().execute()
    if isinstance(task, BinaryTask):
        comparable = _comparable(column, task)
        positive = int(table.filter(column == task.positive).count().execute()) if comparable else 0
        if classes != 2 or not positive:
            values = table.filter(~is_missing(column))[task.target].value_counts(name="rows")
            found = values.order_by([ibis.desc("rows"), task.target]).limit(5).execute()[task.target]
            shown = ", ".join(sorted(map(str, found)))
            text = f"a binary target has 2 classes, {task.positive!r} among them; {task.target!r} has {classes}: {shown}"
            return Check(
                CODE,
                NAME,
                "failed",
                rows,
                text,
                int(classes),
                2,
                (),
                "set task.positive and task.kind to what the data holds",
            )
    text = f"{rows - absent:,} rows have one of {classes} classes{dropped}"
    return Check(CODE, NAME, "passed", rows, text, absent)


def _comparable(column: ibis.Column, task: BinaryTask) -> bool:
    kind = column.type()
    if isinstance(task.positive, bool):
        return bool(kind.is_boolean())
    return bool(kind.is_numeric()) if isinstance(task.positive, int) else bool(kind.is_string())


def _number(table: ibis.Table, task: RegressionTask, rows: int, absent: int, dropped: str) -> Check:
    column = table[task.target]
    if not column.type().is_numeric():
        text = f"a regression target is a number; {task.target!r} is {column.type()}"
        return Check(CODE, NAME, "failed", rows, text, way_out="declare source.types or another task.kind")
    infinite = int(table.filter(column.isinf()).count().execute()) if column.type().is_floating() else 0
    if infinite:
        text = f"target {task.target!r} is infinite in {infinite:,} rows"
        return Check(CODE, NAME, "failed", rows, text, infinite, 0, (), "mend the rows upstream")
    return Check(CODE, NAME, "passed", rows, f"{rows - absent:,} rows have a finite number{dropped}", absent)
