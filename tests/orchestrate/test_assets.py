from pathlib import Path

import dagster as dg
import pytest

from gristmill import plan
from gristmill.orchestrate import assets, launch
from gristmill.orchestrate.engine import Door
from gristmill.records import Check
from gristmill.workspace import Workspace
from tests import toy


def built(workspace: Workspace) -> dg.Definitions:
    return assets.build(workspace, workspace.pipeline("toy"))


def specs(workspace: Workspace) -> dict[str, dg.AssetSpec]:
    found = built(workspace).resolve_asset_graph().get_all_asset_keys()
    definitions = built(workspace)
    return {key.path[-1]: definitions.resolve_assets_def(key).get_asset_spec(key) for key in found}


def test_each_stage_is_an_asset_of_the_pipelines_group(tmp_path: Path) -> None:
    found = specs(toy.workspace(tmp_path))
    assert set(found) == {stage.name for stage in plan.STAGES}
    for stage in plan.STAGES:
        spec = found[stage.name]
        assert spec.key == dg.AssetKey(["toy", stage.name])
        assert (spec.group_name, list(spec.owners)) == ("toy", ["team:toys"])
        assert spec.description == stage.description
        assert spec.kinds == set(stage.kinds)
        assert {dep.asset_key.path[-1] for dep in spec.deps} == set(stage.upstream)


def test_a_code_version_changes_with_the_stages_own_part_of_the_declaration(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    before = {name: spec.code_version for name, spec in specs(workspace).items()}
    toy.declare(tmp_path, training=toy.DECLARED["training"] | {"epochs": 5})
    after = {name: spec.code_version for name, spec in specs(workspace).items()}
    assert {name for name in before if before[name] != after[name]} == {"preflight", "network"}


def test_checks_are_blocking_and_run_inside_their_asset(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    for stage in plan.STAGES:
        definition = built(workspace).resolve_assets_def(dg.AssetKey(["toy", stage.name]))
        checks = list(definition.check_specs)
        expected = assets.expected_checks(stage, workspace.pipeline("toy").spec)
        assert [check.name for check in checks] == [assets.check_name(*check) for check in expected]
        assert all(check.blocking for check in checks)


@pytest.mark.parametrize(
    ("changed", "present", "absent"),
    [
        ({"split": {"test": 0.2, "validation": 0.2, "group_on": "shop"}}, {"GM203"}, {"GM204", "GM101"}),
        ({"contract": {"columns": {"age": {"type": "integer"}}}}, {"GM101", "GM205"}, {"GM203"}),
        (
            {"task": {"kind": "regression", "target": "age", "metric": "mae", "accept": {"at_most": 99}}},
            {"GM501"},
            {"GM205", "GM502"},
        ),
    ],
)
def test_only_checks_that_a_declaration_asks_for_are_promised(
    tmp_path: Path, changed: dict[str, object], present: set[str], absent: set[str]
) -> None:
    workspace = toy.workspace(tmp_path)
    toy.declare(tmp_path, **changed)
    if "task" in changed:
        toy.declare(tmp_path, **changed, split={"test": 0.2, "validation": 0.2})
    spec = workspace.pipeline("toy").spec
    promised = {code for stage in plan.STAGES for code, _ in assets.expected_checks(stage, spec)}
    assert present <= promised
    assert not absent & promised


def test_a_job_and_a_schedule_per_pipeline(tmp_path: Path) -> None:
    definitions = built(toy.workspace(tmp_path))
    (schedule,) = definitions.schedules or []
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert (schedule.name, schedule.cron_schedule) == ("toy_retrain", "0 3 * * 1")
    assert schedule.execution_timezone == "Europe/Berlin"
    # What is declared is wanted: nobody has to switch it on.
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    job = definitions.resolve_job_def("toy")
    assert {key.path[-1] for key in job.asset_layer.executable_asset_keys} == {s.name for s in plan.STAGES}


def test_a_pipeline_with_a_dash_has_names_that_dagster_takes(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    toy.declare(tmp_path, "toy-two")
    definitions = assets.build(workspace, workspace.pipeline("toy-two"))
    assert definitions.resolve_job_def("toy_two").name == "toy_two"
    key = dg.AssetKey(["toy-two", "split"])
    assert definitions.resolve_assets_def(key).get_asset_spec(key).group_name == "toy_two"


def test_a_run_leaves_versions_numbers_and_judgements_in_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace = toy.workspace(tmp_path, validation={"constant": {"severity": "warn"}})
    (tmp_path / "data" / "toy.csv").write_text(
        "\n".join(
            line + (",kind" if number == 0 else ",same")
            for number, line in enumerate(toy.rows().splitlines())
        )
        + "\n"
    )
    stages = plan.through("split")
    passed = launch.run(workspace, workspace.pipeline("toy"), stages, Door("a test", False))
    assert passed
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey(["toy", "snapshot"]))
        assert event is not None
        assert event.asset_materialization is not None
        metadata = event.asset_materialization.metadata
        assert metadata["dagster/row_count"].value == 400
        (run,) = instance.get_runs()
        assert run.tags["gristmill/by"] == "a test"
        records = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(dg.AssetKey(["toy", "validation"]), "gm106_constant"), limit=1
        )
        assert records[0].event is not None
        evaluation = records[0].event.dagster_event.asset_check_evaluation_data  # type: ignore[union-attr]
        # A warning is yellow and lets pass.
        assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
        assert evaluation.metadata["cases"].records[0].data == {"column": "kind"}
        version = event.asset_materialization.tags["dagster/data_version"]
    record = plan.records.read(workspace.stage_folder("toy", "snapshot"))
    assert record is not None
    assert version == record.output_digest[:32]


def test_k57_a_failed_check_stops_the_run_and_what_failed_is_materialized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace = toy.workspace(tmp_path, validation={"balance": {"min_share": 0.5}})
    passed = launch.run(workspace, workspace.pipeline("toy"), plan.through("split"), Door("a test", False))
    assert not passed
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        made = {
            key.path[-1]
            for key in instance.get_asset_keys()
            if instance.get_latest_materialization_event(key) is not None
        }
        (run,) = instance.get_runs()
        assert run.status == dg.DagsterRunStatus.FAILURE
    assert made == {"snapshot", "validation"}


def test_a_check_that_was_promised_and_not_made_did_not_pass() -> None:
    (result,) = assets._results([("GM502", "above baseline")], (Check("GM501", "a", "passed", 1, ""),))
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert result.metadata["verdict"].value == "not verified"
