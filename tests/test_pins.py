import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gristmill import dvc_files, files, pins, plan
from gristmill.errors import InputError
from gristmill.workspace import Workspace
from tests import toy


@pytest.fixture(autouse=True)
def _in_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # DVC takes paths as seen from the working directory, which is in the workspace for every door.
    monkeypatch.chdir(tmp_path)


def made(folder: Path) -> Workspace:
    """A toy workspace whose snapshot is made and named in dvc.lock."""
    workspace = toy.workspace(folder)
    declaration = workspace.pipeline("toy")
    plan.perform(workspace, declaration, plan.stage("snapshot"), "run")
    pins.commit(workspace, declaration, "snapshot", reused=False)
    return workspace


def lock(folder: Path) -> dict[str, dict[str, list[dict[str, object]]]]:
    return YAML(typ="safe").load(folder / "pipelines" / "toy" / "dvc.lock")["stages"]


def test_the_lock_names_output_and_record_by_dvcs_digests(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    folder = workspace.stage_folder("toy", "snapshot")
    named = {out["path"]: out["md5"] for out in lock(tmp_path)["snapshot"]["outs"]}
    assert named == {
        "data/snapshot/output": files.tree_md5(folder / "output"),
        "data/snapshot/record.json": files.file_md5(folder / "record.json"),
    }
    status = toy.call(tmp_path, "dvc", "status", "pipelines/toy/dvc.yaml:snapshot")
    assert "up to date" in status.stdout


def test_the_pin_is_the_locks_while_the_source_is_the_same(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    output = workspace.stage_folder("toy", "snapshot") / "output"
    assert dvc_files.pinned(workspace.pipeline("toy")) == files.tree_md5(output)
    toy.declare(tmp_path, source={"path": "data/*.csv"})
    assert dvc_files.pinned(workspace.pipeline("toy")) is None


def test_a_pinned_snapshot_comes_back_from_a_remote(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("store")
    workspace = made(tmp_path)
    declaration = workspace.pipeline("toy")
    pin = dvc_files.pinned(declaration)
    assert pin is not None
    for command in (
        ("remote", "add", "-d", "store", str(store)),
        ("push", "pipelines/toy/dvc.yaml:snapshot"),
    ):
        assert toy.call(workspace.root, "dvc", *command).returncode == 0
    folder = workspace.stage_folder("toy", "snapshot")
    subprocess.run(["rm", "-rf", str(folder), str(workspace.root / ".dvc" / "cache")], check=True)
    assert pins.restore_snapshot(workspace, declaration, pin)
    assert files.tree_md5(folder / "output") == pin
    # With an empty remote and no cache there is nothing to bring back.
    subprocess.run(
        ["rm", "-rf", str(folder), str(workspace.root / ".dvc" / "cache"), str(store)],
        check=True,
    )
    store.mkdir()
    assert not pins.restore_snapshot(workspace, declaration, pin)


def test_a_workspace_without_dvc_is_told_what_to_run(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    subprocess.run(["rm", "-rf", str(tmp_path / ".dvc")], check=True)
    with pytest.raises(
        InputError, match=r"must be a DVC repository, however it has no \.dvc; run `gristmill init`"
    ):
        pins.commit(workspace, workspace.pipeline("toy"), "snapshot", reused=False)


def test_dvc_is_known_to_call_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DVC_STAGE", raising=False)
    assert not pins.dvc_is_calling()
    monkeypatch.setenv("DVC_STAGE", "snapshot")
    assert pins.dvc_is_calling()


def test_f13_two_pipelines_run_side_by_side_and_lose_nothing(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    toy.declare(tmp_path, "other", split=toy.DECLARED["split"] | {"seed": 5})
    running = [
        subprocess.Popen(
            ["gristmill", "run", name],
            cwd=tmp_path,
            env=toy.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("toy", "other")
    ]
    for process in running:
        _, error = process.communicate(timeout=200)
        assert process.returncode == 0, error
    assert "up to date" in toy.call(tmp_path, "dvc", "status").stdout
