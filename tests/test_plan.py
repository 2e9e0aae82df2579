import json
from pathlib import Path

import pytest

from gristmill import files, plan, records
from gristmill.declaration import Declaration
from gristmill.errors import Busy, DataError, GateRefused, InputError
from gristmill.plan import Outcome, perform, standing
from gristmill.workspace import Workspace
from tests import toy


def made(workspace: Workspace, *stages: str, **more: object) -> list[Outcome]:
    declaration = workspace.pipeline("toy")
    return [perform(workspace, declaration, plan.stage(s), "run", **more) for s in stages]  # type: ignore[arg-type]


def states(workspace: Workspace) -> dict[str, str]:
    return {found.stage: found.state for found in standing(workspace, workspace.pipeline("toy"))}


def why(workspace: Workspace, stage: str) -> str:
    found = standing(workspace, workspace.pipeline("toy"))
    return next(s.why for s in found if s.stage == stage)


def test_the_chain_is_in_order_and_each_stage_needs_only_earlier_ones() -> None:
    names = [stage.name for stage in plan.STAGES]
    assert names == [
        "snapshot",
        "validation",
        "split",
        "baseline",
        "preflight",
        "network",
        "evaluation",
        "model",
    ]
    for place, stage in enumerate(plan.STAGES):
        assert set(stage.upstream) <= set(names[:place])


def test_every_section_of_the_declaration_is_read_by_a_stage() -> None:
    # A section that no stage depends on could be edited without anything being made again.
    from gristmill.spec import PipelineSpec

    read = {section.partition(".")[0] for stage in plan.STAGES for section in stage.sections}
    assert set(PipelineSpec.model_fields) - read == {"version", "owners", "retrain"}


def test_a_stage_through_takes_only_what_it_needs() -> None:
    assert [s.name for s in plan.through("baseline")] == ["snapshot", "validation", "split", "baseline"]
    with pytest.raises(InputError, match=r"stage must be one of snapshot, validation, .*got 'train'"):
        plan.through("train")


def test_a_stage_leaves_output_record_and_run_facts(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    (outcome,) = made(workspace, "snapshot", by="a test")
    folder = workspace.stage_folder("toy", "snapshot")
    assert sorted(path.name for path in folder.iterdir()) == ["output", "record.json", "run.json"]
    assert outcome.record.values == {"rows": 400, "columns": 4}
    assert outcome.record == records.read(folder)
    assert outcome.record.output == files.tree_digests(folder / "output")
    assert '"by": "a test"' in (folder / "run.json").read_text()
    assert not (workspace.private / "work" / "toy" / "snapshot").exists()


def test_nothing_that_changes_from_run_to_run_is_in_a_record(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    made(workspace, "snapshot", "validation")
    first = (workspace.stage_folder("toy", "validation") / "record.json").read_bytes()
    made(workspace, "snapshot", "validation", force=True)
    assert (workspace.stage_folder("toy", "validation") / "record.json").read_bytes() == first


def test_a_finished_stage_is_reused_and_force_makes_it_again(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    assert not made(workspace, "snapshot")[0].reused
    assert made(workspace, "snapshot")[0].reused
    assert not made(workspace, "snapshot", force=True)[0].reused


def test_states_say_what_is_to_be_made_and_why(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    assert states(workspace)["snapshot"] == "missing"
    assert states(workspace)["model"] == "waits"
    made(workspace, "snapshot", "validation", "split")
    assert states(workspace)["split"] == "current"
    toy.declare(tmp_path, split=toy.DECLARED["split"] | {"seed": 2})
    assert (states(workspace)["validation"], states(workspace)["split"]) == ("current", "stale")
    assert why(workspace, "split") == "the declaration changed: split.seed: 1 -> 2"


def test_k52_comments_and_order_do_not_matter_and_every_change_of_meaning_does(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    made(workspace, "snapshot", "validation", "split")
    file = toy.declare(tmp_path, split=dict(reversed(toy.DECLARED["split"].items())))
    file.write_text("# a comment\n" + file.read_text() + "# and another\n")
    assert states(workspace)["split"] == "current"
    # A default that is written out is no change either.
    toy.declare(tmp_path, features={"categorical": []})
    assert states(workspace)["split"] == "current"
    removed = {key: value for key, value in toy.DECLARED["split"].items() if key != "stratify_on"}
    toy.declare(tmp_path, split=removed)
    assert why(workspace, "split") == "the declaration changed: split.stratify_on: bought -> none"


def test_a_moved_limit_asks_the_gate_again_and_leaves_what_is_behind_it(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    made(workspace, "snapshot", "validation", "split")
    toy.declare(tmp_path, validation={"missing": {"max_share": 0.5}})
    assert states(workspace)["validation"] == "stale"
    made(workspace, "validation")
    assert states(workspace)["split"] == "current"


def test_a_snapshot_stays_pinned_until_its_source_is_edited_or_it_is_asked_for(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    (first,) = made(workspace, "snapshot")
    (tmp_path / "data" / "toy.csv").write_text(toy.rows(500))
    assert made(workspace, "snapshot")[0].reused
    (second,) = made(workspace, "snapshot", refresh=True)
    assert (first.record.values["rows"], second.record.values["rows"]) == (400, 500)
    toy.declare(tmp_path, source={"path": "data/*.csv"})
    assert why(workspace, "snapshot").startswith("the declaration changed: source.path")


def test_a_snapshot_taken_again_must_equal_its_pin(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    made(workspace, "snapshot")
    folder = workspace.stage_folder("toy", "snapshot")
    pin = files.tree_md5(folder / "output")
    made(workspace, "snapshot", pin=pin, force=True)
    (tmp_path / "data" / "toy.csv").write_text(toy.rows(500))
    with pytest.raises(InputError, match=rf"pinned {pin}, got [0-9a-f]{{32}}.dir\).*--refresh"):
        made(workspace, "snapshot", pin=pin, force=True)
    assert files.tree_md5(folder / "output") == pin


def test_k57_no_passed_record_for_the_exact_input_means_refusal(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path, validation={"balance": {"min_share": 0.5}})
    with pytest.raises(GateRefused, match="toy/snapshot must have a passed record, however it has none"):
        made(workspace, "split")
    made(workspace, "snapshot", "validation")
    with pytest.raises(
        GateRefused, match=r"toy/validation must have passed, however it did not \(GM105 balance\)"
    ):
        made(workspace, "split")
    assert states(workspace) == {
        "snapshot": "current",
        "validation": "failed",
        "split": "waits",
        "baseline": "waits",
        "preflight": "waits",
        "network": "waits",
        "evaluation": "waits",
        "model": "waits",
    }
    # Other data has to pass anew, although a passed record for the old data lies there.
    toy.declare(tmp_path, validation=None)
    made(workspace, "validation", "split")
    (tmp_path / "data" / "toy.csv").write_text(toy.rows(500))
    made(workspace, "snapshot", refresh=True)
    assert states(workspace)["validation"] == "stale"
    assert states(workspace)["split"] == "stale"


def test_a_failed_stage_is_kept_to_be_looked_at_and_not_tried_again(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path, validation={"balance": {"min_share": 0.5}})
    made(workspace, "snapshot", "validation")
    (again,) = made(workspace, "validation")
    assert again.reused
    assert not again.record.passed
    with pytest.raises(GateRefused, match="toy/validation: GM105 balance failed: 2 classes, the rarest"):
        plan.refuse_failed(again.record)


def test_k53_an_input_that_is_not_its_record_any_more_is_never_used(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    made(workspace, "snapshot")
    part = workspace.stage_folder("toy", "snapshot") / "output" / "part-00000.parquet"
    part.write_bytes(part.read_bytes() + b"\0")
    with pytest.raises(InputError, match=r"part-00000.parquet is not the file in the record"):
        made(workspace, "validation")
    assert why(workspace, "snapshot") == "part-00000.parquet is not the file in the record"


def test_f21_k51_what_changes_during_the_work_fails_it(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    (tmp_path / "rules_that_change.py").write_text(
        "import pathlib\n"
        "import pandera.pandas as pa\n"
        "RULES = pa.DataFrameSchema({'age': pa.Column(checks=pa.Check.gt(0))})\n"
        "file = pathlib.Path(__file__)\n"
        "file.write_text(file.read_text() + '# edited\\n')\n"
    )
    toy.declare(tmp_path, contract="rules_that_change:RULES")
    made(workspace, "snapshot")
    with pytest.raises(
        InputError, match=r"input changed during the run: code changed: rules_that_change\.py"
    ):
        made(workspace, "validation")
    assert records.read(workspace.stage_folder("toy", "validation")) is None


def test_an_edited_record_is_refused(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    made(workspace, "snapshot")
    file = workspace.stage_folder("toy", "snapshot") / "record.json"
    file.write_text(file.read_text().replace('"rows": 400', '"rows": 401'))
    with pytest.raises(InputError, match=r"the record's hash is wrong, it was edited; make .* with --force"):
        made(workspace, "validation")
    made(workspace, "snapshot", force=True)
    made(workspace, "validation")


def test_a_failing_stage_leaves_the_published_one_and_no_partial_folder(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    made(workspace, "snapshot")
    (tmp_path / "data" / "toy.csv").write_text("customer,age\n1,2\n")
    with pytest.raises(DataError, match=r"task\.target: no column 'bought' in the data"):
        made(workspace, "snapshot", refresh=True)
    assert states(workspace)["snapshot"] == "current"


def test_k54_one_writer_a_stage(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    with (
        files.stage_lock(workspace.private, "toy", "snapshot"),
        pytest.raises(Busy, match="toy/snapshot is being made by another process"),
    ):
        made(workspace, "snapshot")


def test_a_declaration_may_be_named_only_once_in_the_workspace(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    declaration: Declaration = workspace.pipeline("toy")
    assert (declaration.name, declaration.folder) == ("toy", tmp_path / "pipelines" / "toy")
    with pytest.raises(InputError, match="pipeline must be one of toy, got 'nope'"):
        workspace.pipeline("nope")


def test_k57_stages_that_do_not_belong_together_are_refused_however_whole_and_passed_each_is(
    tmp_path: Path,
) -> None:
    workspace = toy.workspace(tmp_path)
    made(workspace, *(stage.name for stage in plan.through("evaluation")))
    toy.declare(tmp_path, split=toy.DECLARED["split"] | {"seed": 2})
    made(workspace, "split")
    # Baseline and network were fitted on rows that the new split tests with.
    with pytest.raises(GateRefused, match="however baseline is stale: its input split changed"):
        made(workspace, "evaluation")
    # An edited section is a mixture too, before its stage is made again.
    toy.declare(tmp_path, split=toy.DECLARED["split"] | {"seed": 3})
    with pytest.raises(
        GateRefused, match=r"however split is stale: the declaration changed: split\.seed: 2 -> 3"
    ):
        made(workspace, "baseline")


def test_rows_that_nobody_validated_train_nothing(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    made(workspace, *(stage.name for stage in plan.through("baseline")))
    lines = toy.rows().splitlines()
    (tmp_path / "data" / "toy.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    made(workspace, "snapshot", refresh=True)
    with pytest.raises(GateRefused, match="however validation is stale: its input snapshot changed"):
        made(workspace, "baseline")


# Great Expectations imports what Python deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_edited_suite_is_an_edited_contract(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    suite = tmp_path / "checks" / "people.json"

    def write(oldest: int) -> None:
        rule = {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "age", "min_value": 0, "max_value": oldest},
        }
        suite.write_text(json.dumps({"name": "people", "expectations": [rule]}))

    write(100)
    toy.declare(tmp_path, contract={"suite": "checks/people.json"})
    assert made(workspace, "snapshot", "validation")[1].record.passed
    write(20)
    assert why(workspace, "validation") == "code changed: checks/people.json"
    assert not made(workspace, "validation")[0].record.passed


def test_a_kill_between_the_two_renames_of_publishing_loses_nothing(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    made(workspace, "snapshot")
    staging = workspace.work("toy", "snapshot") / "staging"
    staging.parent.mkdir(parents=True)
    workspace.stage_folder("toy", "snapshot").rename(staging)
    assert made(workspace, "snapshot")[0].reused


def test_the_code_of_every_model_counts_where_models_are_loaded_by_name(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    made(workspace, *(stage.name for stage in plan.through("evaluation")))
    record = records.read(workspace.stage_folder("toy", "evaluation"))
    assert record is not None
    assert {
        f"gristmill:models/{name}.py" for name in ("dummy", "linear", "mlp", "xgboost")
    } <= record.code.keys()
