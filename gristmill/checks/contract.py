"""GM101: the table is what its contract says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import ibis
import pandera.ibis as pandera_ibis
from pandera.errors import SchemaErrors

from gristmill import user_code
from gristmill.errors import InputError
from gristmill.records import MAX_CASES, Check
from gristmill.spec import ColumnContract, Contract, InlineContract, SuiteContract

CODE, NAME = "GM101", "contract"
WAY_OUT = "mend the data upstream, or change the contract if the data is right"
_DTYPES = {
    "integer": "int64",
    "number": "float64",
    "string": "string",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
}


def check(table: ibis.Table, contract: Contract, root: Path) -> Check:
    """Validate the whole table; a rule that raises is a failed rule, and every rule is reported."""
    rows = int(table.count().execute())
    if isinstance(contract, SuiteContract):
        return _suite(table, root / contract.suite, rows)
    schema = _schema(contract, root)
    rules = sum(
        len(column.checks) + (column.dtype is not None) + (not column.nullable) + bool(column.unique)
        for column in schema.columns.values()
    ) + len(schema.checks)
    if rules == 0 or rows == 0:
        return Check(
            CODE, NAME, "not verified", 0, f"{rules} rules on {rows} rows: nothing to verify", way_out=WAY_OUT
        )
    failures: list[dict[str, Any]] = []
    on_ibis = type(schema).__module__.startswith("pandera.api.ibis")
    try:
        schema.validate(table if on_ibis else table.to_pandas(), lazy=True)
    except SchemaErrors as error:
        failures = _failures(error)
    if not failures:
        text = f"{rules} rules on {len(schema.columns)} columns hold for {rows:,} rows"
        return Check(CODE, NAME, "passed", rows, text, value=0, limit=0)
    broken = sorted({f"{case['column']}: {case['rule']}" for case in failures})
    text = f"{len(broken)} of {rules} rules broken: {'; '.join(broken[:3])}" + (
        " ..." if len(broken) > 3 else ""
    )
    cases = tuple(failures[:MAX_CASES])
    return Check(CODE, NAME, "failed", rows, text, len(broken), 0, cases, WAY_OUT)


def known_after(contract: Contract | None, root: Path) -> frozenset[str]:
    """The columns that a contract marks as known only after the prediction is needed.

    Inline columns say `known: after`; a pandera column says so in its metadata: {"known": "after"}.
    """
    if contract is None or isinstance(contract, SuiteContract):
        return frozenset()
    if isinstance(contract, InlineContract):
        return frozenset(name for name, column in contract.columns.items() if column.known == "after")
    columns = _schema(contract, root).columns.items()
    return frozenset(name for name, column in columns if (column.metadata or {}).get("known") == "after")


def _schema(contract: Contract, root: Path) -> Any:
    if isinstance(contract, InlineContract):
        columns = {name: _column(column) for name, column in contract.columns.items()}
        return pandera_ibis.DataFrameSchema(columns)
    assert isinstance(contract, str)
    found = user_code.load(root, contract)
    schema = found.to_schema() if hasattr(found, "to_schema") else found
    if not hasattr(schema, "columns") or not hasattr(schema, "validate"):
        raise InputError(
            f"contract {contract} must be a pandera model or schema, however it is {type(found).__name__}"
        )
    return schema


def _column(column: ColumnContract) -> pandera_ibis.Column:
    rules = []
    if column.min is not None:
        rules.append(pandera_ibis.Check.ge(column.min))
    if column.max is not None:
        rules.append(pandera_ibis.Check.le(column.max))
    if column.allowed is not None:
        rules.append(pandera_ibis.Check.isin(list(column.allowed)))
    if column.pattern is not None:
        rules.append(pandera_ibis.Check.str_matches(column.pattern))
    return pandera_ibis.Column(
        _DTYPES[column.type],
        rules,
        nullable=column.nullable,
        unique=column.unique,
        description=column.description,
    )


def _failures(error: SchemaErrors) -> list[dict[str, Any]]:
    cases = []
    for found in error.schema_errors:
        column = getattr(found.schema, "name", None) or "table"
        rule = str(found.check if found.check is not None else found.reason_code)
        cases.append({"column": str(column), "rule": rule, "found": str(found).splitlines()[0][:200]})
    return cases


def _suite(table: ibis.Table, file: Path, rows: int) -> Check:
    """Run a Great Expectations suite over the table."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    # Three seconds to import, and only for who declares a suite.
    import great_expectations as gx  # noqa: PLC0415

    try:
        body = json.loads(file.read_text())
        rules = body["expectations"]
    except FileNotFoundError as error:
        raise InputError(f"contract.suite {file.name} must be there, however {file} is not") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"contract.suite {file.name} must be a suite as Great Expectations writes it: {error}"
        ) from error
    if not rules or rows == 0:
        return Check(
            CODE,
            NAME,
            "not verified",
            0,
            f"{len(rules)} rules on {rows} rows: nothing to verify",
            way_out=WAY_OUT,
        )
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    suite = gx.ExpectationSuite(
        name=body.get("name", file.stem),
        expectations=[{key: rule[key] for key in ("type", "kwargs")} for rule in rules],
    )
    asset = context.data_sources.add_pandas("snapshot").add_dataframe_asset("snapshot")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": table.to_pandas()})
    found = batch.validate(suite)
    if len(found.results) != len(rules):
        text = f"{len(rules)} rules declared, {len(found.results)} reported by Great Expectations"
        return Check(CODE, NAME, "failed", rows, text, way_out=WAY_OUT)
    cases = []
    for result in found.results:
        if not result.success:
            kwargs = result.expectation_config.kwargs
            cases.append(
                {
                    "column": str(kwargs.get("column", "table")),
                    "rule": result.expectation_config.type,
                    "found": str(result.result.get("partial_unexpected_list", result.exception_info))[:200],
                }
            )
    if not cases:
        return Check(CODE, NAME, "passed", rows, f"{len(rules)} expectations hold for {rows:,} rows", 0, 0)
    names = "; ".join(f"{case['column']}: {case['rule']}" for case in cases[:3])
    text = f"{len(cases)} of {len(rules)} expectations broken: {names}"
    return Check(CODE, NAME, "failed", rows, text, len(cases), 0, tuple(cases[:MAX_CASES]), WAY_OUT)
