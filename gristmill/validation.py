"""The data checks over the snapshot, and their findings as validation.json."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill import files, profile, tables
from gristmill.checks import balance, columns, contract, duplicates, labels, leaks, missing, target, times
from gristmill.records import Check
from gristmill.spec import RegressionTask
from gristmill.tables import ROW_ID, Roles
from gristmill.work import Made, Work

FILE_NAME = "validation.json"
VERSION = 1
"""Of validation.json: it grows with each change that a reader of it would stumble over."""


@dataclass(frozen=True)
class _Data:
    """The snapshot as the checks see it."""

    work: Work
    table: ibis.Table
    roles: Roles
    facts: dict[str, profile.Facts]
    """By column, as in validation.json."""
    rows: int

    @property
    def is_regression(self) -> bool:
        return isinstance(self.work.spec.task, RegressionTask)

    def missing(self, name: str) -> int:
        return int(self.facts[name]["missing"])


def make(work: Work) -> Made:
    """Judge the snapshot; every check reports, and what could not be looked at is *not verified*."""
    table = tables.scan(work.snapshot)
    roles = tables.roles(work.spec, tables.schema_of(work.snapshot))
    work.progress("profiling columns", 0, 0)
    facts, rows = profile.of(table, [name for name in table.columns if name != ROW_ID])
    data = _Data(work, table, roles, facts, rows)
    checks: list[Check] = []
    if work.spec.contract is not None:
        work.progress("checking the contract", 0, 0)
        checks.append(contract.check(table, work.spec.contract, work.workspace.root))
    work.progress("checking rows", 0, 0)
    checks += [*_of_target(data), *_of_columns(data), *_of_rows(data), *_of_missing(data)]
    work.progress("looking for columns that tell too much", 0, 0)
    checks += _of_leaks(data)
    task = work.spec.task
    if work.spec.validation.labels is not None and not isinstance(task, RegressionTask):
        work.progress("looking for suspect labels", 0, 0)
        group = work.spec.split.group_on
        checks.append(labels.check(work.snapshot, roles, task, work.spec.validation.labels, group))
    body = {
        "version": VERSION,
        "rows": rows,
        "columns": {name: of | {"role": _role(name, roles)} for name, of in facts.items()},
    }
    files.write_json(work.output / FILE_NAME, body)
    checks.sort(key=lambda check: check.code)
    return Made(tuple(checks), {"rows": rows, "features": len(roles.features)})


def _of_target(data: _Data) -> Iterator[Check]:
    spec = data.work.spec
    judged = target.check(data.table, spec.task)
    yield judged
    yield balance.check(
        data.table, spec.task, spec.validation.balance, (spec.split.test, spec.split.validation)
    )
    # What is no number has no shape, and GM102 has said so.
    if data.is_regression and judged.passed:
        yield balance.target_shape(data.table, data.roles.target, spec.validation.target_shape)
    if spec.split.group_on is not None and judged.passed:
        yield balance.effective_rows(
            data.table, spec.task, spec.split.group_on, spec.validation.effective_rows
        )


def _of_columns(data: _Data) -> Iterator[Check]:
    spec, roles, facts = data.work.spec, data.roles, data.facts
    distinct = {name: facts[name]["distinct"] for name in roles.features}
    shares = {name: profile.top_share(facts[name], data.rows) for name in roles.features}
    top = {name: share for name, share in shares.items() if share is not None}
    yield columns.constant(distinct, top, spec.validation.constant)
    yield columns.finite(
        {name: n for name in roles.numeric if (n := facts[name].get("infinite")) is not None}
    )
    yield columns.known(roles.features, contract.known_after(spec.contract, data.work.workspace.root))
    yield columns.numbers_as_text(_numbers_as_text(data.table, roles))
    present = {name: data.rows - data.missing(name) for name in roles.categorical}
    yield columns.identifier(roles.categorical, distinct, present)


def _of_rows(data: _Data) -> Iterator[Check]:
    snapshot, limits, roles = data.work.snapshot, data.work.spec.validation, data.roles
    yield duplicates.check(tables.row_hashes(snapshot, list(data.facts)), limits.duplicates)
    if limits.duplicates.key:
        yield duplicates.key(tables.row_hashes(snapshot, limits.duplicates.key), limits.duplicates.key)
    if not data.is_regression:
        present = tables.read(snapshot, [roles.target])[roles.target]
        yield duplicates.conflicts(
            tables.row_hashes(snapshot, roles.features),
            tables.row_hashes(snapshot, [roles.target]),
            pc.invert(pc.is_null(present, nan_is_null=True)).to_numpy(),
            limits.conflicts,
        )


def _of_missing(data: _Data) -> Iterator[Check]:
    spec, roles, table = data.work.spec, data.roles, data.table
    limits = spec.validation
    names = [name for name in roles.features if data.missing(name)]
    together = missing.together(table, [name for name in names if data.missing(name) < data.rows])
    for group in together:
        for name in group:
            data.facts[name]["missing_with"] = [other for other in group if other != name]
    shares = {name: data.missing(name) / data.rows for name in roles.features}
    yield missing.check(shares, data.rows, limits.missing, together)
    if not data.is_regression:
        classes = missing.by_value(table, names, roles.target)
        yield missing.by_class(classes, names, limits.missing_by_class)
        yield leaks.one_class_only(classes, roles.features, limits.one_class_only)
    found = []
    if names:
        stretches = _stretches(data, names)
        along = spec.split.time_on or "place in the source"
        found.append(missing.over_time(stretches, names, along, limits.missing_over_time))
        for name in names:
            data.facts[name]["missing_over_time"] = [
                {"from": stretch.label, "share": round(stretch.share(name), 6)} for stretch in stretches
            ]
        if spec.split.group_on is not None:
            groups = missing.by_value(table, names, spec.split.group_on)
            found.append(missing.over_time(groups, names, spec.split.group_on, limits.missing_over_time))
    # One result for time and groups: of two that were judged, the one with the greater difference.
    yield max(found, key=lambda check: (check.evaluated > 0, check.value or 0), default=None) or (
        missing.over_time((), (), "", limits.missing_over_time)
    )


def _stretches(data: _Data, names: list[str]) -> list[missing.Stretch]:
    """What the features miss along the time, or along the rows of the source."""
    along = data.work.spec.split.time_on
    places = range(max(min(missing.STRETCHES, data.rows // missing.MIN_ROWS), 1))
    if along is None:
        low, high = 0, data.rows - 1
        rows = [data.rows * place // len(places) for place in places]
        return missing.by_place(data.table, names, data.table[ROW_ID], low, high, rows)
    bounds = data.facts[along]["min"], data.facts[along]["max"]
    if None in bounds:
        return []
    low, high = (_epoch_seconds(moment) for moment in bounds)
    starts = [low + (high - low + 1) * place // len(places) for place in places]
    moments = [datetime.datetime.fromtimestamp(start, datetime.UTC) for start in starts]
    labels = [moment.strftime("%Y-%m-%dT%H:%M") for moment in moments]
    seconds = data.table[along].cast("timestamp").epoch_seconds()
    return missing.by_place(data.table, names, seconds, low, high, labels)


def _epoch_seconds(moment: str) -> int:
    found = datetime.datetime.fromisoformat(moment)
    return int((found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp() // 1)


def _of_leaks(data: _Data) -> Iterator[Check]:
    limits, spec = data.work.spec.validation, data.work.spec
    skills, rows, labelled = _skills(data)
    in_order = skills.pop(ROW_ID, 0.0)
    yield leaks.single_feature(skills, rows, labelled, limits.single_feature)
    if spec.split.time_on is None:
        yield leaks.row_order(in_order, rows, limits.row_order)
    else:
        moments = data.table[[spec.split.time_on]].drop_null().distinct().to_pyarrow()[0]
        kind = pa.timestamp("us", tz=getattr(moments.type, "tz", None))
        found = np.sort(moments.cast(kind).to_numpy().astype("datetime64[us]"))
        yield times.gaps(found, spec.split.time_on, limits.time_gaps)


def _skills(data: _Data) -> tuple[dict[str, float], int, int]:
    """How much each feature and the row's place tell of the target, the rows looked at, and of how many."""
    limits, name = data.work.spec.validation.single_feature, data.roles.target
    ids: np.ndarray | int = data.rows
    if data.missing(name):
        present = data.table.filter(~missing.is_missing(data.table[name]))
        ids = np.sort(present[[ROW_ID]].to_pyarrow()[ROW_ID].to_numpy())
    rows = tables.draw(ids, limits.rows, limits.seed)
    labelled = ids if isinstance(ids, int) else len(ids)
    if len(rows) < leaks.MIN_ROWS or (data.is_regression and not data.table[name].type().is_numeric()):
        return {}, len(rows), labelled
    sample = tables.read_sample(data.work.snapshot, [name, ROW_ID, *data.roles.features], rows)
    answers = leaks.Answers.of(sample[name], are_classes=not data.is_regression)
    fit, held_out = leaks.halves(len(rows), limits.seed)
    features = (ROW_ID, *data.roles.features)
    skills = {feature: leaks.skill(sample[feature], answers, fit, held_out) for feature in features}
    return skills, len(rows), labelled


def _numbers_as_text(table: ibis.Table, roles: Roles) -> dict[str, tuple[int, int, str]]:
    """For each feature of text: its values, how many of them are numbers, and the first that is none."""
    names = [name for name in roles.categorical if table[name].type().is_string()]
    if not names:
        return {}
    asked: dict[str, Any] = {}
    for place, name in enumerate(names):
        number = table[name].try_cast("float64")
        asked[f"values.{place}"] = table[name].count()
        asked[f"numbers.{place}"] = number.count()
        asked[f"other.{place}"] = ibis.ifelse(number.isnull(), table[name], None).min()
    found = table.aggregate(**asked).to_pyarrow().to_pylist()[0]
    return {
        name: (found[f"values.{place}"], found[f"numbers.{place}"], str(found[f"other.{place}"]))
        for place, name in enumerate(names)
    }


def _role(name: str, roles: Roles) -> str:
    if name == roles.target:
        return "target"
    if name in roles.numeric:
        return "numeric feature"
    return "categorical feature" if name in roles.categorical else "left out"
