"""A Dagster run in this process, for the CLI and for `dvc repro`: it stands in the catalog like any other."""

from __future__ import annotations

import os
import socket
import uuid
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg
from dagster._core.instance.ref import InstanceRef

from gristmill import files
from gristmill.declaration import Declaration
from gristmill.errors import EnvironmentFault, GristmillError, InputError
from gristmill.files import PipelineLock
from gristmill.orchestrate import assets, definitions
from gristmill.orchestrate.engine import DOOR, Door
from gristmill.orchestrate.tables import TableIOManager
from gristmill.plan import Stage
from gristmill.spec import AssetSource
from gristmill.workspace import Workspace

_HOLDER = "gristmill/process"
_NO_CAPTURE = {
    "module": "dagster._core.storage.noop_compute_log_manager",
    "class": "NoOpComputeLogManager",
    "config": {},
}
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def run(workspace: Workspace, declaration: Declaration, stages: Sequence[Stage], door: Door) -> bool:
    """Materialize stages in order, and the source's asset before them when its table is wanted.

    True when every stage passed its checks. Raises what a stage raised.
    """
    warnings.filterwarnings("ignore", category=dg.BetaWarning)
    warnings.filterwarnings("ignore", category=dg.PreviewWarning)
    built = assets.build(workspace, declaration)
    every: list[dg.AssetsDefinition] = list(built.assets or [])  # type: ignore[arg-type]
    selection = [dg.AssetKey([declaration.name, stage.name]) for stage in stages]
    source = declaration.spec.source
    wanted = any(stage.name == "snapshot" for stage in stages)
    if isinstance(source, AssetSource) and wanted and (door.refresh or not _has_table(workspace, source)):
        every += _upstream(workspace, source)
        selection.insert(0, assets.source_key(source))
    # The run's lock is ours from the first stage to the last; the stages show that they belong to it.
    door = replace(door, lock=f"{door.by} {uuid.uuid4().hex[:8]}")
    token = DOOR.set(door)
    # The instance's paths in dagster.yaml are relative to the workspace.
    before = os.getcwd()
    os.chdir(workspace.root)
    try:
        with (
            PipelineLock(workspace.private, declaration.name, str(door.lock)),
            _instance(workspace) as instance,
        ):
            result = dg.materialize(
                every,
                selection=dg.AssetSelection.assets(*selection),
                instance=instance,
                resources={"table": TableIOManager(workspace)},
                run_config=_QUIET,
                tags={"gristmill/pipeline": declaration.name, "gristmill/by": door.by, _HOLDER: _holder()},
                raise_on_error=False,
            )
    finally:
        os.chdir(before)
        DOOR.reset(token)
    if door.caught:
        raise door.caught[0]
    if not result.success and not _refused(result):
        raise _fault(workspace, declaration, result)
    return result.success


def _instance(workspace: Workspace) -> dg.DagsterInstance:
    """The workspace's instance, opened by one process at a time: two that make its tables at once both fail."""
    with files.turn(workspace.private / "locks" / "dagster.lock"):
        # Dagster would read our output through files and other processes, which hold it back until a stage
        # ends and have their own idea of Ctrl-C.
        reference = InstanceRef.from_dir(str(workspace.root), overrides={"compute_logs": _NO_CAPTURE})
        instance = dg.DagsterInstance.from_ref(reference)
        instance.get_asset_keys(limit=1)
        _bury_the_dead(instance)
    return instance


def _bury_the_dead(instance: dg.DagsterInstance) -> None:
    """Fail the runs whose process is gone: a killed process cannot say so, and they would stay started."""
    under_way = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING])
    for run in instance.get_runs(under_way):
        holder = run.tags.get(_HOLDER)
        here = holder is not None and holder.startswith(f"{socket.gethostname()}/")
        if here and holder != _holder(int(str(holder).rsplit("/", 2)[1])):
            instance.report_run_failed(run, f"process disappeared ({holder})")


def _holder(pid: int | None = None) -> str:
    """Host, process and when it started (in clock ticks since boot): a number that is used again is another's."""
    pid = pid or os.getpid()
    try:
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        started = "gone"
    return f"{socket.gethostname()}/{pid}/{started}"


def _has_table(workspace: Workspace, source: AssetSource) -> bool:
    return workspace.asset_table(source.asset).is_file()


def _upstream(workspace: Workspace, source: AssetSource) -> list[dg.AssetsDefinition]:
    """The workspace's own assets, among them the one the pipeline's rows come from."""
    definitions.put_first(workspace.root)
    found = list(definitions.user_assets(workspace).assets or [])
    key = assets.source_key(source)
    known = [k for asset in found if isinstance(asset, dg.AssetsDefinition) for k in asset.keys]
    if key not in known:
        listed = ", ".join(sorted("/".join(k.path) for k in known)) or "none"
        raise InputError(
            f"source.asset must be one of {listed} (in {workspace.root / 'assets'}), got {source.asset!r}"
        )
    return [asset for asset in found if isinstance(asset, dg.AssetsDefinition)]


def _refused(result: dg.ExecuteInProcessResult) -> bool:
    """Whether the run ended because a check said no, which is a result and no fault. A warning says nothing."""
    return any(
        not evaluation.passed and evaluation.severity == dg.AssetCheckSeverity.ERROR
        for evaluation in result.get_asset_check_evaluations()
    )


def _fault(
    workspace: Workspace, declaration: Declaration, result: dg.ExecuteInProcessResult
) -> GristmillError:
    """What nobody foresaw as one line, its traceback in a log that the line names.

    It is the user's where a step of the user's own assets failed, and the machine's where memory ran out.
    """
    for event in result.all_events:
        if event.is_step_failure and event.step_failure_data.error is not None:
            error = event.step_failure_data.error
            while error.cause is not None:
                error = error.cause
            if error.cls_name in ("DagsterExecutionInterruptedError", "Interrupted", "KeyboardInterrupt"):
                raise KeyboardInterrupt
            log = workspace.private / "logs" / f"fault-{result.run_id[:8]}.log"
            files.write_bytes(log, event.step_failure_data.error.to_string().encode())
            step = str(event.step_key)
            told = f"{step} failed: {' '.join(error.message.split())}; the traceback is in {workspace.shown(log)}"
            if error.cls_name == "MemoryError":
                return EnvironmentFault(f"out of memory: {told}")
            is_ours = step.startswith(f"{declaration.name.replace('-', '_')}__")
            return GristmillError(told) if is_ours else InputError(told)
    return GristmillError("the run failed; see its log in Dagster")
