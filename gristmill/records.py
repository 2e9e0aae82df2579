"""The record beside each output: what was read, by which code, what was made and what the checks said.

A record decides: without it an output does not exist, and a later stage starts only from a record
whose checks passed and whose files still are what it names.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gristmill import files
from gristmill.errors import GateRefused, InputError

VERSION = 1
MAX_CASES = 20
OUTPUT = "output"
FILE_NAME = "record.json"
RUN_FILE_NAME = "run.json"
# In a gate's output: its bytes change only when what the gate looked at changes, so that a moved
# limit does not make the stages behind the gate run again.
PASSED_FILE_NAME = "passed.json"

Verdict = Literal["passed", "warned", "failed", "not verified"]


@dataclass(frozen=True)
class Check:
    """One judgement with a stable code. *Not verified* (nothing could be looked at) is not a pass."""

    code: str
    name: str
    verdict: Verdict
    evaluated: int
    """Rows, columns or models looked at."""
    text: str
    """What was found, in a sentence."""
    value: float | str | None = None
    limit: float | str | None = None
    cases: tuple[dict[str, Any], ...] = ()
    """A few failing cases, at most MAX_CASES."""
    way_out: str = ""
    """What to do when it did not pass."""

    @property
    def passed(self) -> bool:
        return self.verdict in ("passed", "warned")


def judge(ok: bool, severity: Literal["warn", "fail"], evaluated: int) -> Verdict:
    """The verdict of a check that looked at `evaluated` things."""
    if evaluated == 0:
        return "not verified"
    if ok:
        return "passed"
    return "failed" if severity == "fail" else "warned"


def unseen(severity: Literal["warn", "fail"]) -> Verdict:
    """The verdict of a check that there are too few rows for: what may only warn does not bar the way."""
    return "not verified" if severity == "fail" else "warned"


@dataclass(frozen=True)
class Record:
    """What one stage read, did and made; frozen, and equal for equal work in any door."""

    pipeline: str
    stage: str
    inputs: dict[str, str]
    """Digest of each input's output, by stage."""
    declaration: dict[str, Any]
    code: dict[str, str]
    packages: dict[str, str]
    output: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file made, by its path in the output."""
    checks: tuple[Check, ...] = ()
    values: dict[str, float | int | str | None] = field(default_factory=dict)
    """Figures of the stage: rows, scores, epochs."""
    reports: tuple[str, ...] = ()
    """Files of the output that reports/ holds as well."""

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def fingerprint(self) -> str:
        """Digest of everything the result depends on."""
        return files.digest([VERSION, self.stage, self.inputs, self.declaration, self.code, self.packages])

    @property
    def output_digest(self) -> str:
        return files.digest(self.output)

    def with_result(
        self,
        output: dict[str, str],
        checks: tuple[Check, ...],
        values: dict[str, Any],
        reports: tuple[str, ...] = (),
    ) -> Record:
        return replace(self, output=output, checks=checks, values=values, reports=reports)

    def content(self) -> dict[str, Any]:
        body = {"version": VERSION, **asdict(self), "passed": self.passed}
        body["checks"] = [dict(check, cases=list(check["cases"])) for check in body["checks"]]
        return body

    def write(self, folder: Path) -> None:
        body = self.content()
        files.write_json(folder / FILE_NAME, body | {"digest": files.digest(body)})


def read(folder: Path) -> Record | None:
    """The record in a stage's folder, or None where there is none; raises InputError for an edited one."""
    file = folder / FILE_NAME
    try:
        body = json.loads(file.read_bytes())
        stated = body.pop("digest")
        if body["version"] != VERSION:
            raise InputError(
                f"{file} is a record of version {body['version']}, however this gristmill reads version "
                f"{VERSION}; use the gristmill that wrote it, or make the stage again"
            )
        checks = tuple(Check(**(check | {"cases": tuple(check["cases"])})) for check in body["checks"])
        names = Record.__dataclass_fields__.keys() - {"checks", "reports"}
        reports = tuple(body["reports"])
        record = Record(**{name: body[name] for name in names}, checks=checks, reports=reports)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{file} must be a record, however it is not: {error}; make the stage again with --force"
        ) from error
    if stated != files.digest(body):
        raise InputError(
            f"{file}: the record's hash is wrong, it was edited; make the stage again with --force"
        )
    return record


def first_difference(record: Record, folder: Path) -> str | None:
    """The first file of the output that is not what the record says, or None when all are."""
    try:
        present = files.tree_digests(folder / OUTPUT)
    except FileNotFoundError:
        present = {}
    for name in sorted(present.keys() | record.output.keys()):
        if name not in present:
            return f"{name} is missing"
        if name not in record.output:
            return f"{name} was added"
        if present[name] != record.output[name]:
            return f"{name} is not the file in the record"
    return None


@dataclass(frozen=True)
class Input:
    """A finished stage as another stage reads it: its files and its passed record."""

    record: Record
    folder: Path
    """The folder of the stage's output files."""


def demand(folder: Path, pipeline: str, stage: str, *, whole: bool = True) -> Input:
    """The stage's output, which must exist and have passed; raises GateRefused or InputError.

    It must be `whole` as well, every file what the record says, unless only the record is wanted.
    """
    record = read(folder)
    run = f"run `gristmill run {pipeline} --to {stage}`"
    if record is None:
        raise GateRefused(f"{pipeline}/{stage} must have a passed record, however it has none; {run}")
    if not record.passed:
        failed = ", ".join(f"{c.code} {c.name}" for c in record.checks if not c.passed)
        raise GateRefused(
            f"{pipeline}/{stage} must have passed, however it did not ({failed}); see {folder / FILE_NAME}"
        )
    if whole and (difference := first_difference(record, folder)):
        raise InputError(f"{pipeline}/{stage} must be as its record says, however {difference}; {run}")
    return Input(record, folder / OUTPUT)


def first_cause(old: Record, new: Record) -> str | None:
    """Why work recorded as `old` is not what `new` would do: the first difference, or None."""
    for name in sorted(old.inputs.keys() | new.inputs.keys()):
        if old.inputs.get(name) != new.inputs.get(name):
            return f"its input {name} changed"
    if old.declaration != new.declaration:
        return f"the declaration changed: {_first_path(old.declaration, new.declaration)}"
    if old.code != new.code:
        return f"code changed: {_first_path(old.code, new.code)}"
    if old.packages != new.packages:
        name = _first_path(old.packages, new.packages)
        return f"the environment changed: {name}"
    return None


def _first_path(old: Any, new: Any, path: str = "") -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                return _first_path(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
    if isinstance(old, str) and len(old) == 64:
        return path
    return f"{path}: {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
