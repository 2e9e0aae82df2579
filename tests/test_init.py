import subprocess
from pathlib import Path

import pytest
import yaml

from gristmill import init
from gristmill.errors import InputError
from gristmill.workspace import Workspace
from tests import toy

ROOT = Path(__file__).parent.parent


def test_an_empty_folder_becomes_a_workspace(tmp_path: Path) -> None:
    written = init.write(tmp_path)
    assert Workspace.find(tmp_path).root == tmp_path
    assert {"pyproject.toml", "dagster.yaml", "dvc.yaml", ".gitignore", ".git", ".dvc"} <= set(
        map(str, written)
    )
    assert (tmp_path / "pipelines" / "__init__.py").is_file()
    status = toy.call(tmp_path, "dvc", "status")
    assert (status.returncode, status.stderr) == (0, "")


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    written = init.write(tmp_path)
    assert Path("pyproject.toml") not in written
    assert (tmp_path / "pyproject.toml").read_text() == "[project]\n"
    assert init.write(tmp_path) == []


def test_a_folder_within_a_repository_gets_its_own_dvc(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    folder = tmp_path / "models"
    folder.mkdir()
    init.write(folder)
    assert not (folder / ".git").exists()
    assert (folder / ".dvc" / "config").is_file()


@pytest.mark.parametrize("name", ["dagster.yaml", "dvc.yaml", ".dvc/config", ".env"])
def test_this_repository_has_the_settings_that_init_writes(tmp_path: Path, name: str) -> None:
    init.write(tmp_path)
    assert (ROOT / name).read_text() == (tmp_path / name).read_text()


def test_no_telemetry_is_declared_for_the_instance_and_for_the_uploader() -> None:
    assert yaml.safe_load(init.DAGSTER_YAML)["telemetry"] == {"enabled": False}
    assert "DAGSTER_DISABLE_TELEMETRY=1" in init.ENVIRONMENT
    assert "analytics = false" in init.DVC_CONFIG


def test_no_workspace_is_put_into_another(tmp_path: Path) -> None:
    init.write(tmp_path)
    with pytest.raises(InputError, match=f"must lie outside of any workspace, however {tmp_path} is one"):
        init.write(tmp_path / "pipelines" / "toy")
