"""The data checks over the snapshot, and their findings as validation.json."""

from __future__ import annotations

from typing import Any

import ibis
import pyarrow.compute as pc

from gristmill import files, profile, tables
from gristmill.checks import balance, columns, contract, duplicates, missing, target
from gristmill.spec import RegressionTask
from gristmill.tables import ROW_ID, Roles
from gristmill.work import Made, Work

FILE_NAME = "validation.json"
VERSION = 1
"""Of validation.json: it grows with each change that a reader of it would stumble over."""


def make(work: Work) -> Made:
    """Judge the snapshot; every check reports, and what could not be looked at is *not verified*."""
    spec = work.spec
    table = tables.scan(work.snapshot)
    roles = tables.roles(spec, tables.schema_of(work.snapshot))
    work.progress("profiling columns", 0, 0)
    facts, rows = profile.of(table, [name for name in table.columns if name != ROW_ID])
    shares = {name: facts[name]["missing"] / rows for name in roles.features}
    infinite = {name: n for name in roles.numeric if (n := facts[name].get("infinite")) is not None}
    after = contract.known_after(spec.contract, work.workspace.root)
    checks = []
    if spec.contract is not None:
        work.progress("checking the contract", 0, 0)
        checks.append(contract.check(table, spec.contract, work.workspace.root))
    work.progress("checking rows", 0, 0)
    checks += [
        target.check(table, spec.task),
        duplicates.check(tables.row_hashes(work.snapshot, list(facts)), spec.validation.duplicates),
        missing.check(shares, rows, spec.validation.missing),
        balance.check(table, spec.task, spec.validation.balance),
        columns.constant(
            {name: facts[name]["distinct"] for name in roles.features}, spec.validation.constant
        ),
        columns.finite(infinite),
        columns.known(roles.features, after),
        columns.numbers_as_text(_numbers_as_text(table, roles)),
        columns.identifier(
            roles.categorical,
            {name: facts[name]["distinct"] for name in roles.categorical},
            {name: rows - facts[name]["missing"] for name in roles.categorical},
        ),
    ]
    if spec.validation.duplicates.key:
        columns_of_key = spec.validation.duplicates.key
        checks.append(duplicates.key(tables.row_hashes(work.snapshot, columns_of_key), columns_of_key))
    if not isinstance(spec.task, RegressionTask):
        present = tables.read(work.snapshot, [roles.target])[roles.target]
        checks.append(
            duplicates.conflicts(
                tables.row_hashes(work.snapshot, roles.features),
                tables.row_hashes(work.snapshot, [roles.target]),
                pc.invert(pc.is_null(present, nan_is_null=True)).to_numpy(),
                spec.validation.conflicts,
            )
        )
    body = {
        "version": VERSION,
        "rows": rows,
        "columns": {name: of | {"role": _role(name, roles)} for name, of in facts.items()},
    }
    files.write_json(work.output / FILE_NAME, body)
    return Made(tuple(checks), {"rows": rows, "features": len(roles.features)})


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
