"""A pipeline as Dagster's assets, job and schedule: one asset a stage, its checks inside it."""

# No `from __future__ import annotations` here: Dagster looks at the type behind `context`.
import base64
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dagster as dg

from gristmill import files, fingerprint, interrupts, plan, records
from gristmill.declaration import Declaration
from gristmill.errors import GristmillError
from gristmill.orchestrate import engine
from gristmill.orchestrate.engine import DOOR, Door
from gristmill.plan import Outcome, Stage
from gristmill.records import Check
from gristmill.spec import AssetSource, PipelineSpec, RegressionTask
from gristmill.work import Progress
from gristmill.workspace import Workspace

_LOG_EVERY = 20


def build(workspace: Workspace, declaration: Declaration) -> dg.Definitions:
    """Assets, job and schedule of one pipeline."""
    assets = [_asset(workspace, declaration, stage) for stage in plan.STAGES]
    keys = [dg.AssetKey([declaration.name, stage.name]) for stage in plan.STAGES]
    source = declaration.spec.source
    if isinstance(source, AssetSource):
        # A retraining begins with fresh rows.
        keys.insert(0, source_key(source))
    job = dg.define_asset_job(
        name_of(declaration),
        dg.AssetSelection.assets(*keys),
        description=declaration.spec.description or None,
        tags={"gristmill/pipeline": declaration.name},
    )
    retrain = declaration.spec.retrain
    schedules = []
    if retrain is not None:
        schedules.append(
            dg.ScheduleDefinition(
                name=f"{name_of(declaration)}_retrain",
                job=job,
                cron_schedule=retrain.cron,
                execution_timezone=retrain.timezone,
                tags={"gristmill/why": "schedule"},
                # Declared is wanted; a schedule can be stopped in the UI.
                default_status=dg.DefaultScheduleStatus.RUNNING,
            )
        )
    return dg.Definitions(assets=assets, jobs=[job], schedules=schedules)


def broken(name: str, file: Path, error: str) -> dg.Definitions:
    """What stands in the graph for a pipeline whose declaration does not load: its error, for all to see."""
    return dg.Definitions(
        assets=[
            dg.AssetSpec(
                [name, "declaration"],
                group_name=group_of(name),
                description=f"This pipeline does not load.\n\n```\n{error}\n```\n\nMend {file} and reload.",
                tags={"gristmill/broken": "true"},
            )
        ]
    )


def name_of(declaration: Declaration) -> str:
    """Dagster's names of jobs and groups have no dashes."""
    return group_of(declaration.name)


def group_of(pipeline: str) -> str:
    return pipeline.replace("-", "_")


def source_key(source: AssetSource) -> dg.AssetKey:
    return dg.AssetKey(source.asset.split("/"))


def check_name(code: str, name: str) -> str:
    return f"{code}_{name}".replace(" ", "_").replace(",", "").lower()


def expected_checks(stage: Stage, spec: PipelineSpec) -> list[tuple[str, str]]:
    """Code and name of the checks that a stage reports for a declaration."""
    regression = isinstance(spec.task, RegressionTask)
    absent = {
        "GM101": spec.contract is None,
        "GM111": not spec.validation.duplicates.key,
        "GM112": regression,
        "GM114": regression,
        "GM116": not regression,
        "GM117": spec.split.group_on is None,
        "GM118": spec.validation.labels is None,
        "GM124": spec.split.time_on is not None,
        "GM125": regression,
        "GM126": spec.split.time_on is None,
        "GM203": spec.split.group_on is None,
        "GM204": spec.split.time_on is None,
        "GM205": regression,
        "GM502": spec.task.accept.above_baseline is None,
    }
    return [(code, name) for code, name in stage.checks if not absent.get(code, False)]


def _asset(workspace: Workspace, declaration: Declaration, stage: Stage) -> dg.AssetsDefinition:
    spec = declaration.spec
    name = declaration.name
    deps = [dg.AssetKey([name, upstream]) for upstream in stage.upstream]
    if stage.name == "snapshot" and isinstance(spec.source, AssetSource):
        deps.append(source_key(spec.source))
    checks = expected_checks(stage, spec)

    @dg.asset(
        key=dg.AssetKey([name, stage.name]),
        deps=deps,
        group_name=name_of(declaration),
        description=stage.description,
        kinds=set(stage.kinds),
        owners=list(spec.owners),
        code_version=_code_version(workspace, declaration, stage),
        check_specs=[
            dg.AssetCheckSpec(check_name(*check), asset=dg.AssetKey([name, stage.name]), blocking=True)
            for check in checks
        ],
    )
    def body(context: dg.AssetExecutionContext):  # type: ignore[no-untyped-def]  # Dagster reads the annotation
        door = DOOR.get() or Door()
        progress = door.progress or _log(context)
        try:
            with interrupts.ours() if door.in_process else nullcontext():
                outcome = engine.materialize(
                    workspace, workspace.pipeline(name), stage, context.run.run_id, door, progress
                )
        except GristmillError as error:
            door.caught.append(error)
            raise dg.Failure(str(error), allow_retries=False) from error
        if door.finished is not None:
            door.finished(stage, outcome)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(outcome.record.output_digest[:32]),
            metadata=_metadata(workspace, declaration, stage, outcome),
            check_results=list(_results(checks, outcome.record.checks)),
        )

    return body


def _code_version(workspace: Workspace, declaration: Declaration, stage: Stage) -> str:
    """Changes with the stage's part of the declaration, its code and its packages."""
    code = fingerprint.code(stage.entry.partition(":")[0], workspace.root, plan.user_code(declaration, stage))
    section = fingerprint.section(declaration.spec, stage.sections)
    return files.digest([section, code, fingerprint.packages(stage.packages)])[:16]


def _results(expected: list[tuple[str, str]], found: tuple[Check, ...]) -> Iterator[dg.AssetCheckResult]:
    """A result for each check that was promised; one that could not be made did not pass."""
    by_code = {check.code: check for check in found}
    for code, name in expected:
        check = by_code.get(code) or Check(code, name, "not verified", 0, "there was nothing to judge it by")
        metadata: dict[str, Any] = {
            "verdict": check.verdict,
            "found": check.text,
            "evaluated": check.evaluated,
        }
        if check.value is not None:
            metadata["value"] = check.value
        if check.limit is not None:
            metadata["limit"] = check.limit
        if check.cases:
            rows = [dg.TableRecord({key: str(value) for key, value in case.items()}) for case in check.cases]
            metadata["cases"] = dg.MetadataValue.table(rows)
        if check.way_out and check.verdict != "passed":
            metadata["what to do"] = check.way_out
        yield dg.AssetCheckResult(
            passed=check.verdict == "passed",
            check_name=check_name(code, name),
            severity=dg.AssetCheckSeverity.WARN if check.passed else dg.AssetCheckSeverity.ERROR,
            description=check.text,
            metadata=metadata,
        )


def _metadata(
    workspace: Workspace, declaration: Declaration, stage: Stage, outcome: Outcome
) -> dict[str, Any]:
    record = outcome.record
    metadata: dict[str, Any] = {name: value for name, value in record.values.items() if value is not None}
    if "rows" in metadata:
        metadata["dagster/row_count"] = metadata.pop("rows")
    metadata["seconds"] = round(outcome.seconds, 3)
    metadata["reused"] = outcome.reused
    metadata["fingerprint"] = record.fingerprint[:16]
    folder = workspace.stage_folder(declaration.name, stage.name)
    metadata["output"] = dg.MetadataValue.path(folder / records.OUTPUT)
    if stage.name in ("evaluation", "model"):
        report = workspace.reports(declaration.name) / "report.html"
        metadata["report"] = dg.MetadataValue.path(report)
    pictures = sorted((folder / records.OUTPUT).glob("*.png"))
    if pictures:
        metadata["pictures"] = dg.MetadataValue.md(" ".join(_picture(file) for file in pictures))
    return metadata


def _picture(file: Path) -> str:
    return f"![{file.stem}](data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()})"


def _log(context: dg.AssetExecutionContext) -> Progress:
    """Progress as log lines, bounded in number however many steps there are."""
    last: dict[str, int] = {}

    def tell(text: str, done: int, total: int) -> None:
        key = text.partition(" ")[0]
        tenth = done * _LOG_EVERY // total if total else -1
        if last.get(key) != tenth:
            last[key] = tenth
            context.log.info(f"{text} ({done} of {total})" if total else text)

    return tell
