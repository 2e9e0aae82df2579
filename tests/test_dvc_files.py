import contextlib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gristmill import dvc_files, pins, plan
from gristmill.errors import InputError
from tests import toy


def stages(folder: Path) -> dict[str, dict[str, list[object]]]:
    return YAML(typ="safe").load(folder / "pipelines" / "toy" / "dvc.yaml")["stages"]


def test_every_stage_is_there_with_a_command_that_never_changes(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    found = stages(tmp_path)
    assert list(found) == [stage.name for stage in plan.STAGES]
    assert found["split"]["cmd"] == "gristmill materialize toy/split"


def test_a_stage_depends_on_outputs_it_reads_and_on_the_words_of_its_gates(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    assert stages(tmp_path)["split"]["deps"] == [
        "data/snapshot/output",
        "data/validation/output/passed.json",
    ]
    assert stages(tmp_path)["split"]["outs"] == ["data/split/output", "data/split/record.json"]


def test_only_keys_that_the_file_gives_are_tracked(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    (tracked,) = stages(tmp_path)["split"]["params"]
    assert tracked == {
        "defs.yaml": [
            "attributes.task.kind",
            "attributes.task.target",
            "attributes.task.positive",
            "attributes.task.metric",
            "attributes.split",
        ]
    }
    toy.declare(tmp_path, features={"exclude": ["customer"]})
    (tracked,) = stages(tmp_path)["split"]["params"]
    assert "attributes.features" in tracked["defs.yaml"]  # type: ignore[index]


def test_the_users_code_is_a_dependency_with_what_it_imports(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    (tmp_path / "checks" / "limits.py").write_text("OLDEST = 120\n")
    (tmp_path / "checks" / "people.py").write_text("from checks.limits import OLDEST\nPEOPLE = OLDEST\n")
    toy.declare(tmp_path, contract="checks.people:PEOPLE")
    deps = stages(tmp_path)["validation"]["deps"]
    assert deps[-3:] == ["../../checks/__init__.py", "../../checks/limits.py", "../../checks/people.py"]


def test_a_file_that_does_not_follow_from_the_declaration_is_refused(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    declaration = workspace.pipeline("toy")
    dvc_files.refuse_stale(workspace, declaration)
    file = tmp_path / "pipelines" / "toy" / "dvc.yaml"
    file.write_text(file.read_text() + "# edited\n")
    with pytest.raises(InputError, match=r"pipelines/toy/dvc.yaml must follow from defs.yaml.*check --fix"):
        dvc_files.refuse_stale(workspace, declaration)


def test_a_lock_with_conflict_markers_is_named(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    (tmp_path / "pipelines" / "toy" / "dvc.lock").write_text(
        "<<<<<<< HEAD\nstages:\n=======\n>>>>>>> other\n"
    )
    with pytest.raises(InputError, match=r"dvc.lock must be DVC's lock file.*resolve its conflicts"):
        dvc_files.pinned(workspace.pipeline("toy"))


def test_a_removed_key_is_noticed_for_dvc_does_not(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    for stage in ("snapshot", "validation", "split"):
        plan.perform(workspace, workspace.pipeline("toy"), plan.stage(stage), "run")
        with contextlib.chdir(tmp_path):
            pins.commit(workspace, workspace.pipeline("toy"), stage, reused=False)
    lock = tmp_path / "pipelines" / "toy" / "dvc.lock"
    before = lock.read_text()
    toy.declare(tmp_path, split={"test": 0.25, "validation": 0.2})
    assert lock.read_text() == before
    changed = toy.DECLARED["task"].copy()
    toy.declare(tmp_path, features={"exclude": ["customer"]}, task=changed)
    for stage in ("validation", "split"):
        plan.perform(workspace, workspace.pipeline("toy"), plan.stage(stage), "run")
        with contextlib.chdir(tmp_path):
            pins.commit(workspace, workspace.pipeline("toy"), stage, reused=False)
    toy.declare(tmp_path)
    named = YAML(typ="safe").load(lock)["stages"]
    assert list(named) == ["snapshot"]
    assert dvc_files.pinned(workspace.pipeline("toy")) is not None
    assert "validation:" in toy.call(tmp_path, "dvc", "status").stdout


def test_a_default_that_is_written_out_moves_no_pin(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    plan.perform(workspace, workspace.pipeline("toy"), plan.stage("snapshot"), "run")
    with contextlib.chdir(tmp_path):
        pins.commit(workspace, workspace.pipeline("toy"), "snapshot", reused=False)
    pin = dvc_files.pinned(workspace.pipeline("toy"))
    assert pin is not None
    toy.declare(tmp_path, source={"path": "data/toy.csv", "encoding": "utf-8"})
    declaration = workspace.pipeline("toy")
    assert dvc_files.pinned(declaration) == pin
    # DVC sees another text, so the lock is to be written again; then it is clean.
    assert not dvc_files.is_locked(workspace, declaration, plan.stage("snapshot"))
    with contextlib.chdir(tmp_path):
        pins.commit(workspace, declaration, "snapshot", reused=True)
    assert dvc_files.is_locked(workspace, declaration, plan.stage("snapshot"))
    assert "up to date" in toy.call(tmp_path, "dvc", "status", "pipelines/toy/dvc.yaml:snapshot").stdout
