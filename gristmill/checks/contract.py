"""GM101: the table is what its contract says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import ibis
import pandas as pd
import pyarrow as pa
from pandera.errors import SchemaError, SchemaErrors

from gristmill import user_code
from gristmill.checks.missing import is_missing
from gristmill.errors import InputError
from gristmill.records import MAX_CASES, Check
from gristmill.spec import ColumnContract, Contract, InlineContract, SuiteContract
from gristmill.spec.base import ColumnType
from gristmill.tables import ROW_ID

CODE, NAME = "GM101", "contract"
WAY_OUT = "mend the data upstream, or change the contract if the data is right"

Case = dict[str, Any]
"""A broken rule: its column, its name and what was found."""

_IS: dict[ColumnType, Callable[[Any], bool]] = {
    "integer": lambda kind: kind.is_integer(),
    "number": lambda kind: kind.is_numeric() and not kind.is_boolean(),
    "string": lambda kind: kind.is_string(),
    "boolean": lambda kind: kind.is_boolean(),
    "date": lambda kind: kind.is_date(),
    "timestamp": lambda kind: kind.is_timestamp(),
}


def check(table: ibis.Table, contract: Contract, root: Path) -> Check:
    """Judge the whole snapshot; a rule that raises is a broken rule, and every rule is accounted for."""
    rows = int(table.count().execute())
    if isinstance(contract, InlineContract):
        return _inline(table, contract, rows)
    if isinstance(contract, SuiteContract):
        return _suite(table, root / contract.suite, rows)
    return _pandera(table, _schema(contract, root), rows)


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


def _verdict(rows: int, rules: int, broken: list[Case], idle: Collection[str]) -> Check:
    """The check for `rules` rules, some broken, some on columns that hold no value to look at (`idle`)."""
    if rows == 0 or rules == 0:
        text = f"{rules} rules on {rows} rows: nothing to verify"
        return Check(CODE, NAME, "not verified", 0, text, way_out=WAY_OUT)
    if broken:
        names = "; ".join(f"{case['column']}: {case['rule']}" for case in broken[:3])
        text = f"{len(broken)} of {max(rules, len(broken))} rules broken: {names}" + (
            " ..." if len(broken) > 3 else ""
        )
        return Check(CODE, NAME, "failed", rows, text, len(broken), 0, tuple(broken[:MAX_CASES]), WAY_OUT)
    if idle:
        names = ", ".join(sorted(idle)[:5])
        text = f"rules on {len(idle)} of the columns looked at no value, for there is none: {names}"
        cases = tuple({"column": name} for name in sorted(idle)[:MAX_CASES])
        return Check(CODE, NAME, "not verified", 0, text, len(idle), 0, cases, WAY_OUT)
    return Check(CODE, NAME, "passed", rows, f"{rules} rules hold for {rows:,} rows", value=0, limit=0)


def _idle(table: ibis.Table, names: Collection[str]) -> list[str]:
    """The columns, of those named, that hold no value."""
    present = [name for name in names if name in table.columns]
    if not present:
        return []
    counts = {f"{place}": (~is_missing(table[name])).sum() for place, name in enumerate(present)}
    found = table.aggregate(**counts).to_pyarrow().to_pylist()[0]
    return [name for place, name in enumerate(present) if not found[f"{place}"]]


# Inline


def _inline(table: ibis.Table, contract: InlineContract, rows: int) -> Check:
    declared = {name: dict(_rules(column)) for name, column in contract.columns.items()}
    num_rules = sum(1 + len(rules) for rules in declared.values())
    broken: list[Case] = []
    for name, rules in declared.items():
        wanted = contract.columns[name].type
        if name not in table.columns:
            broken.append({"column": name, "rule": "present", "found": "no such column in the data"})
        elif not _IS[wanted](table[name].type()):
            broken.append({"column": name, "rule": f"type {wanted}", "found": str(table[name].type())})
        else:
            broken += _broken(table.select(ROW_ID, value=table[name]), name, rules)
    ruled = [name for name, rules in declared.items() if rules.keys() - {"not nullable"}]
    return _verdict(rows, num_rules, broken, _idle(table, ruled))


Rule = Callable[[ibis.Table], ibis.Table]
"""From a table of row ids and values to its rows that break the rule; missing values break none but one."""


def _rules(column: ColumnContract) -> Iterator[tuple[str, Rule]]:
    if not column.nullable:
        yield "not nullable", lambda t: t.filter(is_missing(t.value))
    if column.min is not None:
        yield f"min {column.min:g}", lambda t: _present(t).filter(lambda t: t.value < column.min)
    if column.max is not None:
        yield f"max {column.max:g}", lambda t: _present(t).filter(lambda t: t.value > column.max)
    if column.allowed is not None:
        allowed = list(column.allowed)
        yield f"allowed {allowed}", lambda t: _present(t).filter(lambda t: ~t.value.isin(allowed))
    if column.pattern is not None:
        start = f"^(?:{column.pattern})"
        yield f"pattern {column.pattern}", lambda t: _present(t).filter(lambda t: ~t.value.re_search(start))
    if column.unique:
        yield (
            "unique",
            lambda t: _present(t).filter(
                lambda t: ibis.row_number().over(group_by=t.value, order_by=t[ROW_ID]) > 0
            ),
        )


def _present(table: ibis.Table) -> ibis.Table:
    return table.filter(~is_missing(table.value))


def _broken(table: ibis.Table, name: str, rules: dict[str, Rule]) -> list[Case]:
    cases: list[Case] = []
    for rule, broken_by in rules.items():
        try:
            breaking = broken_by(table)
            count = int(breaking.count().execute())
            first = breaking.order_by(ROW_ID).limit(3).to_pyarrow().to_pylist() if count else []
        # Whatever a rule raises, it is that rule which does not hold.
        except Exception as error:
            cases.append({"column": name, "rule": rule, "found": f"cannot be evaluated: {_short(error)}"})
            continue
        if count:
            shown = ", ".join(f"{row['value']} in row {row[ROW_ID]}" for row in first)
            cases.append({"column": name, "rule": rule, "found": f"{count:,} rows: {shown}", "rows": count})
    return cases


# pandera


def _schema(entry: str, root: Path) -> Any:
    found = user_code.load(root, entry)
    schema = found.to_schema() if hasattr(found, "to_schema") else found
    if not hasattr(schema, "columns") or not hasattr(schema, "validate"):
        raise InputError(
            f"contract {entry} must be a pandera model or schema, however it is {type(found).__name__}"
        )
    return schema


def _pandera(table: ibis.Table, schema: Any, rows: int) -> Check:
    num_rules = len(schema.checks) + bool(schema.unique)
    num_rules += sum(
        len(column.checks) + (column.dtype is not None) + (not column.nullable) + bool(column.unique)
        for column in schema.columns.values()
    )
    if rows == 0 or num_rules == 0:
        return _verdict(rows, num_rules, [], ())
    on_ibis = type(schema).__module__.startswith("pandera.api.ibis")
    broken: dict[tuple[str, str], Case] = {}
    try:
        schema.validate(table.drop(ROW_ID) if on_ibis else _frame(table), lazy=True)
    except SchemaErrors as errors:
        for error in errors.schema_errors:
            case = _case(error)
            broken.setdefault((case["column"], case["rule"]), case)
    # Whatever a schema raises, it is the contract which does not hold.
    except Exception as error:
        name = getattr(schema, "name", None) or "schema"
        broken["table", name] = {
            "column": "table",
            "rule": name,
            "found": f"cannot be evaluated: {_short(error)}",
        }
    ruled = [name for name, column in schema.columns.items() if column.checks]
    return _verdict(rows, num_rules, list(broken.values()), _idle(table, ruled))


def _frame(table: ibis.Table) -> pd.DataFrame:
    """The rows in their order, as a frame in which no value changes because another is missing.

    Whole numbers and truth values become pandas' nullable types where some are missing; its default,
    floats and objects, loses digits of large ids and turns a missing value into True on the way back.
    """
    columns = {}
    rows = table.order_by(ROW_ID).drop(ROW_ID).to_pyarrow()
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if column.null_count and pa.types.is_boolean(column.type):
            columns[name] = pd.Series(column.to_pylist(), dtype="boolean")
        elif column.null_count and pa.types.is_integer(column.type):
            columns[name] = pd.Series(column.to_pylist(), dtype=_nullable(column.type))
        else:
            columns[name] = column.to_pandas()
    return pd.DataFrame(columns)


def _nullable(kind: pa.DataType) -> str:
    return str(kind).replace("uint", "UInt").replace("int", "Int")


def _case(error: SchemaError) -> Case:
    rule = error.check
    if rule is None:
        rule = error.reason_code
    elif hasattr(rule, "statistics"):
        rule = rule.error or rule.name
    column = error.failure_cases if rule == "column_in_dataframe" else getattr(error.schema, "name", None)
    return {"column": str(column or "table"), "rule": str(rule), "found": _short(error)}


def _short(error: BaseException) -> str:
    # pandera puts the traceback of a rule that raises into its message.
    text = " ".join(str(error).partition("Traceback (most recent call last)")[0].split())
    return (text or type(error).__name__)[:200]


# Great Expectations


def _suite(table: ibis.Table, file: Path, rows: int) -> Check:
    """Run a Great Expectations suite over the table."""
    try:
        body = json.loads(file.read_text())
        rules = [(str(rule["type"]), dict(rule["kwargs"])) for rule in body["expectations"]]
    except FileNotFoundError as error:
        raise InputError(f"contract.suite {file.name} must be there, however {file} is not") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"contract.suite {file.name} must be a suite as Great Expectations writes it: {error}"
        ) from error
    if not rules or rows == 0:
        return _verdict(rows, len(rules), [], ())
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    # Three seconds to import, and only for who declares a suite.
    import great_expectations as gx  # noqa: PLC0415
    from great_expectations.expectations.expectation_configuration import (  # noqa: PLC0415
        ExpectationConfiguration,
    )

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("snapshot").add_dataframe_asset("snapshot")
    frame = _frame(table)
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    broken: list[Case] = []
    idle = []
    # One by one: a suite leaves out what it cannot build, and says so in a log only.
    for kind, kwargs in rules:
        column = str(kwargs.get("column", "table"))
        try:
            found = batch.validate(ExpectationConfiguration(type=kind, kwargs=kwargs).to_domain_obj())
        # Whatever an expectation raises, it is that expectation which does not hold.
        except Exception as error:
            text = f"cannot be evaluated: {_short(error)}"
            broken.append({"column": column, "rule": kind, "found": text})
            continue
        counts = found.result
        if not found.success:
            broken.append({"column": column, "rule": kind, "found": _unexpected(found)})
        elif "missing_count" in counts and counts["missing_count"] == counts["element_count"]:
            idle.append(column)
    return _verdict(rows, len(rules), broken, set(idle))


def _unexpected(found: Any) -> str:
    """What an expectation met: a few values, or what it raised, without the traceback."""
    if "partial_unexpected_list" in found.result:
        return f"{found.result['unexpected_count']:,} rows: {found.result['partial_unexpected_list']}"[:200]
    raised = found.exception_info or {}
    # By metric where several were computed, else flat.
    for info in raised.values() if "exception_message" not in raised else [raised]:
        if isinstance(info, dict) and info.get("exception_message"):
            return f"cannot be evaluated: {' '.join(info['exception_message'].split())}"[:200]
    return (
        f"observed {found.result['observed_value']}"[:200] if "observed_value" in found.result else "not met"
    )
