"""The stages in order, and how one of them is performed, skipped or refused, whoever asks for it.

Stages load when they run: `gristmill check` and a run with nothing to do never pay for torch.
"""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gristmill import files, fingerprint, records
from gristmill.declaration import Declaration
from gristmill.errors import GateRefused, InputError
from gristmill.records import Input, Record
from gristmill.work import Made, Progress, Work, silent
from gristmill.workspace import Workspace

_TASK = ("task.kind", "task.target", "task.positive", "task.target_missing", "task.metric")


@dataclass(frozen=True)
class Stage:
    """One link of the chain: a Dagster asset, a DVC stage and a step of `gristmill run` alike."""

    name: str
    description: str
    entry: str
    """The function that does it, `module:name`."""
    reads: tuple[str, ...] = ()
    """Stages whose files it reads."""
    gates: tuple[str, ...] = ()
    """Stages that must have passed for the same data before it starts."""
    sections: tuple[str, ...] = ()
    """The parts of the declaration it depends on."""
    packages: tuple[str, ...] = ()
    """The packages whose versions it depends on."""
    kinds: tuple[str, ...] = ()
    """What Dagster shows it is made of."""
    checks: tuple[tuple[str, str], ...] = ()
    """Code and name of each check it may report."""

    @property
    def upstream(self) -> tuple[str, ...]:
        return (*self.reads, *self.gates)

    @property
    def is_gate(self) -> bool:
        return any(self.name in stage.gates for stage in STAGES)


STAGES = (
    Stage(
        "snapshot",
        "The source's rows as Parquet, in a stable order, pinned by DVC.",
        "gristmill.snapshot:make",
        sections=("source",),
        packages=("duckdb", "pyarrow"),
        kinds=("parquet", "duckdb", "dvc"),
        checks=(("GM001", "readable"),),
    ),
    Stage(
        "validation",
        "Is the data what it should be? Contract, target, duplicates, missing values, balance, columns.",
        "gristmill.validation:make",
        reads=("snapshot",),
        sections=(
            *_TASK,
            "features",
            "contract",
            "validation",
            "split.test",
            "split.validation",
            "split.time_on",
            "split.group_on",
        ),
        packages=(
            "cleanlab",
            "duckdb",
            "great-expectations",
            "ibis-framework",
            "numpy",
            "pandas",
            "pandera",
            "pyarrow",
            "scikit-learn",
            "scipy",
        ),
        kinds=("pandera", "duckdb"),
        checks=(
            ("GM101", "contract"),
            ("GM102", "target"),
            ("GM103", "duplicates"),
            ("GM104", "missing"),
            ("GM105", "balance"),
            ("GM106", "constant"),
            ("GM107", "finite"),
            ("GM108", "known in time"),
            ("GM109", "numbers as text"),
            ("GM110", "identifiers"),
            ("GM111", "key"),
            ("GM112", "conflicting labels"),
            ("GM114", "missing by class"),
            ("GM115", "missing over time"),
            ("GM116", "target shape"),
            ("GM117", "effective rows"),
            ("GM118", "label quality"),
            ("GM123", "single feature"),
            ("GM124", "row order"),
            ("GM125", "one class only"),
            ("GM126", "time gaps"),
        ),
    ),
    Stage(
        "split",
        "Which row trains, which selects, which tests, and the proofs that none leaks into another.",
        "gristmill.split:make",
        reads=("snapshot",),
        gates=("validation",),
        sections=(*_TASK, "features", "split"),
        packages=("duckdb", "numpy", "pyarrow", "scipy"),
        kinds=("parquet",),
        checks=(
            ("GM201", "sizes"),
            ("GM202", "equal rows"),
            ("GM203", "groups"),
            ("GM204", "time order"),
            ("GM205", "classes"),
        ),
    ),
    Stage(
        "baseline",
        "The plain models to beat: a dummy, a linear model and boosted trees.",
        "gristmill.baseline:make",
        reads=("snapshot", "split"),
        sections=(*_TASK, "features", "split.time_on", "split.group_on", "baseline", "evaluation"),
        packages=("numpy", "pandas", "pyarrow", "scikit-learn", "scipy", "xgboost"),
        kinds=("xgboost", "scikitlearn"),
        checks=(("GM301", "beats the dummy"),),
    ),
    Stage(
        "preflight",
        "Does the network learn one batch, and does its loss start where theory says?",
        "gristmill.network:try_out",
        reads=("snapshot", "split"),
        sections=(*_TASK, "features", "split.time_on", "split.group_on", "network", "training"),
        packages=("numpy", "pandas", "pyarrow", "torch"),
        kinds=("pytorch",),
        checks=(("GM302", "one batch is learned"), ("GM303", "first loss")),
    ),
    Stage(
        "network",
        "The deep network with the weights of its best epoch.",
        "gristmill.network:make",
        reads=("snapshot", "split"),
        gates=("preflight",),
        sections=(*_TASK, "features", "split.time_on", "split.group_on", "network", "training"),
        packages=("numpy", "pandas", "pyarrow", "safetensors", "torch"),
        kinds=("pytorch",),
        checks=(("GM401", "finite, best restored"),),
    ),
    Stage(
        "evaluation",
        "The test rows, opened once: scores with intervals, and the verdict of the gate.",
        "gristmill.evaluation:make",
        reads=("snapshot", "split", "baseline", "network"),
        sections=("task", "features", "split.time_on", "split.group_on", "evaluation"),
        packages=("matplotlib", "numpy", "pandas", "pyarrow", "scikit-learn", "torch", "xgboost"),
        kinds=("matplotlib",),
        checks=(("GM501", "acceptance"), ("GM502", "above baseline")),
    ),
    Stage(
        "model",
        "The accepted champion as files that load without any orchestrator, with card and lineage.",
        "gristmill.model:make",
        reads=("snapshot", "split", "baseline", "network", "evaluation"),
        sections=("description", "source.na_values", "task", "features", "split", "evaluation.confidence"),
        packages=("numpy", "pandas", "pyarrow", "safetensors", "torch", "xgboost"),
        kinds=("pytorch", "xgboost", "dvc"),
        checks=(("GM601", "parity"),),
    ),
)


def stage(name: str) -> Stage:
    """The stage of a name; raises InputError for a name there is none of."""
    for found in STAGES:
        if found.name == name:
            return found
    raise InputError(f"stage must be one of {', '.join(s.name for s in STAGES)}, got {name!r}")


def through(last: str) -> tuple[Stage, ...]:
    """The stages up to and with `last`, in order, and only those it needs."""
    needed = {stage(last).name}
    for candidate in reversed(STAGES):
        if candidate.name in needed:
            needed.update(candidate.upstream)
    return tuple(candidate for candidate in STAGES if candidate.name in needed)


@dataclass(frozen=True)
class Outcome:
    """What became of a stage: its record, and whether it was there already."""

    record: Record
    reused: bool
    seconds: float


def perform(
    workspace: Workspace,
    declaration: Declaration,
    stage: Stage,
    run_id: str,
    *,
    force: bool = False,
    refresh: bool = False,
    pin: str | None = None,
    by: str = "gristmill",
    progress: Progress = silent,
) -> Outcome:
    """Make a stage's output, or reuse the one that is there when nothing it depends on changed.

    `force` makes it again all the same; `refresh` takes a new snapshot where the pinned one would be
    kept; `pin` is the digest (as DVC writes it) that a snapshot taken again must have. The stage works
    in a private folder that is published by rename, its record written last.
    """
    name = declaration.name
    folder = workspace.stage_folder(name, stage.name)
    with files.stage_lock(workspace.private, name, stage.name):
        began = time.perf_counter()
        inputs = {
            upstream: records.demand(workspace.stage_folder(name, upstream), name, upstream)
            for upstream in stage.upstream
        }
        _refuse_mixture(workspace, declaration, stage)
        planned = plan_record(workspace, declaration, stage, inputs)
        home = workspace.work(name, stage.name)
        staging, scratch = home / "staging", home / planned.fingerprint[:16]
        _finish_publishing(staging, folder)
        present = None if force or refresh else records.read(folder)
        if present is not None and why_not(stage, present, planned, folder) is None:
            _keep_reports(workspace, present)
            return Outcome(present, True, time.perf_counter() - began)

        started = time.time()
        with files.disk_faults(home):
            shutil.rmtree(staging, ignore_errors=True)
            (staging / records.OUTPUT).mkdir(parents=True)
            scratch.mkdir(exist_ok=True)
            work = Work(workspace, declaration, inputs, staging / records.OUTPUT, scratch, run_id, progress)
            made = _function(stage)(work)
        passed = all(check.passed for check in made.checks)
        if stage.is_gate and passed:
            token = {"stage": stage.name, "inputs": planned.inputs}
            files.write_json(work.output / records.PASSED_FILE_NAME, token)
        _refuse_changes(workspace, declaration, stage, inputs, planned)
        if pin is not None and (found := files.tree_md5(work.output)) != pin:
            raise InputError(
                f"{name}/snapshot must equal its pin, however the source now gives other data (pinned {pin}, "
                f"got {found}); restore the pinned data with `dvc pull`, or take the new with "
                f"`gristmill run {name} --refresh`"
            )
        record = planned.with_result(files.tree_digests(work.output), made.checks, made.values, made.reports)
        for file, content in made.beside.items():
            files.write_json(staging / file, content)
        seconds = time.perf_counter() - began
        run = {
            "run": run_id,
            "by": by,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started)),
            "seconds": round(seconds, 3),
        }
        files.write_json(staging / records.RUN_FILE_NAME, run)
        record.write(staging)
        files.publish(staging, folder)
        _keep_reports(workspace, record)
        shutil.rmtree(home, ignore_errors=True)
        return Outcome(record, False, seconds)


def plan_record(
    workspace: Workspace, declaration: Declaration, stage: Stage, inputs: dict[str, Input]
) -> Record:
    """The record the stage would have now, without its result."""
    digests = _digests(stage, inputs)
    code = fingerprint.code(stage.entry.partition(":")[0], workspace.root, user_code(declaration, stage))
    return Record(
        declaration.name,
        stage.name,
        digests,
        fingerprint.section(declaration.spec, stage.sections),
        code
        | {
            name: files.file_digest(workspace.root / name)
            for name in user_files(workspace, declaration, stage)
        },
        fingerprint.packages(stage.packages),
    )


def _digests(stage: Stage, inputs: dict[str, Input]) -> dict[str, str]:
    """What a stage's record says of its inputs: the output it reads, or the words of a gate that passed."""
    digests = {upstream: inputs[upstream].record.output_digest for upstream in stage.reads}
    gates = {gate: inputs[gate].record.output.get(records.PASSED_FILE_NAME, "none") for gate in stage.gates}
    return digests | gates


def user_code(declaration: Declaration, stage: Stage) -> list[str]:
    """The user's own `module:name` entries that a stage runs."""
    contract = declaration.spec.contract
    return [contract] if stage.name == "validation" and isinstance(contract, str) else []


def user_files(workspace: Workspace, declaration: Declaration, stage: Stage) -> list[str]:
    """The user's own files beside code that a stage reads, as paths from the root: a contract's suite."""
    suite = getattr(declaration.spec.contract, "suite", None) if stage.name == "validation" else None
    return [suite] if suite is not None and (workspace.root / suite).is_file() else []


def why_not(stage: Stage, present: Record, planned: Record, folder: Path) -> str | None:
    """Why the stage's output cannot be reused, or None when it can.

    A snapshot is pinned: only an edited source or an explicit refresh takes a new one, other code or
    packages do not. Its bytes are what every later stage and every reproduction refers to.
    """
    if stage.name == "snapshot":
        changed = present.declaration != planned.declaration
        cause = records.first_cause(present, planned) if changed else None
    else:
        cause = records.first_cause(present, planned)
    return cause or records.first_difference(present, folder)


State = Literal["current", "failed", "stale", "missing", "waits"]


@dataclass(frozen=True)
class Standing:
    """How a stage stands, without performing anything."""

    stage: str
    state: State
    why: str
    record: Record | None


def standing(
    workspace: Workspace, declaration: Declaration, stages: tuple[Stage, ...] = STAGES
) -> list[Standing]:
    """How each stage stands and why it would be made, kept or held up."""
    found: list[Standing] = []
    states: dict[str, State] = {}
    for candidate in stages:
        folder = workspace.stage_folder(declaration.name, candidate.name)
        record = records.read(folder)
        blocker = next((up for up in candidate.upstream if states.get(up, "current") != "current"), None)
        state: State
        if blocker is not None:
            state = "waits" if record is None or states[blocker] == "failed" else "stale"
            why = f"{blocker} failed" if states[blocker] == "failed" else f"{blocker} is to be made"
        elif record is None:
            state, why = "missing", "never made"
        else:
            inputs = {
                up: records.demand(workspace.stage_folder(declaration.name, up), declaration.name, up)
                for up in candidate.upstream
            }
            planned = plan_record(workspace, declaration, candidate, inputs)
            cause = why_not(candidate, record, planned, folder)
            if cause is not None:
                state, why = "stale", cause
            elif not record.passed:
                failed = [f"{check.code} {check.name}" for check in record.checks if not check.passed]
                state, why = "failed", ", ".join(failed)
            else:
                pinned = "pinned; --refresh takes what the source holds now"
                state, why = (
                    "current",
                    pinned if candidate.name == "snapshot" else "nothing it depends on changed",
                )
        states[candidate.name] = state
        found.append(Standing(candidate.name, state, why, record))
    return found


def reports_are_kept(workspace: Workspace, record: Record) -> bool:
    """Whether reports/ holds what the record's stage puts there."""
    folder = workspace.reports(record.pipeline)
    return all(
        (folder / name).is_file() and files.file_digest(folder / name) == record.output[name]
        for name in record.reports
    )


def _keep_reports(workspace: Workspace, record: Record) -> None:
    """Put into reports/ what is not there, or is of another run: a kill may have come between."""
    if reports_are_kept(workspace, record):
        return
    output = workspace.stage_folder(record.pipeline, record.stage) / records.OUTPUT
    for name in record.reports:
        files.write_bytes(workspace.reports(record.pipeline) / name, (output / name).read_bytes())


def _finish_publishing(staging: Path, folder: Path) -> None:
    """A folder with a record is finished work; a kill between publishing's two renames must not lose it."""
    if not folder.exists() and (staging / records.FILE_NAME).is_file():
        files.publish(staging, folder)


def _refuse_mixture(workspace: Workspace, declaration: Declaration, stage: Stage) -> None:
    """Every stage before this one must have passed, for the declaration and for the inputs of now.

    Each of two inputs may be whole and passed and yet belong to other splits: rows that trained one
    would test it. Other code or packages do not make a mixture; `status` tells of them.
    """
    name = declaration.name
    for earlier in through(stage.name)[:-1]:
        inputs = {
            up: records.demand(workspace.stage_folder(name, up), name, up, whole=False)
            for up in earlier.upstream
        }
        record = records.demand(
            workspace.stage_folder(name, earlier.name), name, earlier.name, whole=False
        ).record
        made_of = replace(record, inputs=_digests(earlier, inputs))
        wanted = replace(made_of, declaration=fingerprint.section(declaration.spec, earlier.sections))
        if cause := records.first_cause(record, wanted):
            raise GateRefused(
                f"{name}/{stage.name} must be made of what belongs together, however {earlier.name} is stale: {cause}; "
                f"run `gristmill run {name} --to {stage.name}`"
            )


def refuse_failed(record: Record) -> None:
    """Raise GateRefused for a record whose checks did not pass, naming the first of them."""
    for check in record.checks:
        if not check.passed:
            raise GateRefused(
                f"{record.pipeline}/{record.stage}: {check.code} {check.name} {check.verdict}: {check.text}"
                + (f"; {check.way_out}" if check.way_out else "")
            )


def _function(stage: Stage) -> Callable[[Work], Made]:
    module, _, name = stage.entry.partition(":")
    found: Callable[[Work], Made] = getattr(importlib.import_module(module), name)
    return found


def _refuse_changes(
    workspace: Workspace, declaration: Declaration, stage: Stage, inputs: dict[str, Input], planned: Record
) -> None:
    """What the stage read must be what it was when the stage began: a record never tells of other inputs."""
    for name, found in inputs.items():
        if difference := records.first_difference(found.record, found.folder.parent):
            raise InputError(
                f"{declaration.name}/{stage.name}: input changed during the run: {name}: {difference}"
            )
    now: Any = plan_record(workspace, workspace.pipeline(declaration.name), stage, inputs)
    if cause := records.first_cause(planned, now):
        raise InputError(
            f"{declaration.name}/{stage.name}: input changed during the run: {cause}; run it again"
        )
