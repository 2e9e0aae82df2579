import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import toy


def dg(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return toy.call(folder, "dg", *arguments, HOME=str(folder / "home"))


def listed(folder: Path) -> dict[str, list[dict[str, Any]]]:
    ran = dg(folder, "list", "defs", "--json")
    assert ran.returncode == 0, ran.stderr
    body: dict[str, list[dict[str, Any]]] = json.loads(ran.stdout[ran.stdout.index("{") :])
    return body


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.workspace(tmp_path)
    return tmp_path


def test_dg_lists_assets_checks_job_and_schedule(folder: Path) -> None:
    found = listed(folder)
    assert {asset["asset_key"] for asset in found["assets"]} == {
        f"toy/{stage}"
        for stage in (
            "snapshot",
            "validation",
            "split",
            "baseline",
            "preflight",
            "network",
            "evaluation",
            "model",
        )
    }
    assert [job["name"] for job in found["jobs"]] == ["toy"]
    assert [schedule["name"] for schedule in found["schedules"]] == ["toy_retrain"]
    assert "toy/validation:gm103_duplicates" in {check["key"] for check in found["asset_checks"]}


def test_dg_checks_a_right_workspace(folder: Path) -> None:
    assert dg(folder, "check", "yaml").returncode == 0
    assert dg(folder, "check", "defs").returncode == 0


def test_one_broken_declaration_leaves_the_others_loaded_shows_its_error_and_fails_the_check(
    folder: Path,
) -> None:
    toy.declare(folder, "broken", training={"epochz": 3})
    found = listed(folder)
    by_key = {asset["asset_key"]: asset for asset in found["assets"]}
    assert "toy/model" in by_key
    shown = by_key["broken/declaration"]
    assert "unknown key 'epochz'; did you mean 'epochs'?" in shown["description"]
    assert "pipelines/broken/defs.yaml" in shown["description"]
    assert shown["group_name"] == "broken"
    ran = dg(folder, "check", "defs", "--no-check-yaml")
    assert ran.returncode == 1
    assert "unknown key 'epochz'" in ran.stdout + ran.stderr


def test_a_source_asset_that_nobody_defines_is_told_and_the_others_load(folder: Path) -> None:
    toy.declare(folder, "orphan", source={"asset": "raw/nothing"})
    by_key = {asset["asset_key"]: asset for asset in listed(folder)["assets"]}
    assert (
        "source.asset: must be one of none, got 'raw/nothing'" in by_key["orphan/declaration"]["description"]
    )
    assert "toy/model" in by_key


def test_the_users_assets_are_there_and_a_pipeline_may_begin_with_one(folder: Path) -> None:
    (folder / "assets" / "mine.py").write_text(
        "import dagster as dg\nimport pyarrow as pa\n"
        "@dg.asset(key=['raw', 'mine'], io_manager_key='table')\n"
        "def mine() -> pa.Table:\n    return pa.table({'a': [1, 2]})\n"
    )
    toy.declare(folder, "after", source={"asset": "raw/mine"})
    by_key = {asset["asset_key"]: asset for asset in listed(folder)["assets"]}
    assert by_key["after/snapshot"]["dependency_keys"] == ["raw/mine"]


def test_pipelines_of_another_place_are_refused(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "pipelines").mkdir()
    (elsewhere / "pipelines" / "__init__.py").touch()
    (folder / "pipelines" / "__init__.py").unlink()
    code = "from gristmill.orchestrate import definitions; definitions.defs()"
    ran = toy.call(folder, "python", "-c", code, PYTHONPATH=str(elsewhere))
    assert ran.returncode != 0
    assert f"package 'pipelines' must be {folder / 'pipelines'}, however Python found" in ran.stderr


def test_loading_the_workspace_loads_no_torch(folder: Path) -> None:
    code = (
        "import sys\nfrom gristmill.orchestrate import definitions\n"
        "definitions.defs().get_repository_def() if hasattr(definitions.defs, 'get_repository_def') else definitions.defs()\n"
        "heavy = {'torch', 'xgboost', 'sklearn', 'pandera', 'great_expectations'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    ran = toy.call(folder, "python", "-c", code)
    assert ran.returncode == 0, ran.stderr


def test_f24_string_selections_work_beside_dvc(folder: Path) -> None:
    module = "gristmill.orchestrate.definitions"
    ran = toy.call(folder, "dagster", "asset", "materialize", "-m", module, "--select", 'key:"toy/snapshot"')
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert (folder / "pipelines" / "toy" / "data" / "snapshot" / "record.json").is_file()
    # DVC's own use of the same parser: an experiment with a changed key of the declaration.
    assert toy.call(folder, "git", "add", "-A").returncode == 0
    identity = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    assert toy.call(folder, "git", "commit", "-qm", "all", **identity).returncode == 0
    setting = "pipelines/toy/defs.yaml:attributes.split.seed=77"
    target = "pipelines/toy/dvc.yaml:snapshot"
    ran = toy.call(folder, "dvc", "exp", "run", "-S", setting, target, **identity)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "seed: 77" in (folder / "pipelines" / "toy" / "defs.yaml").read_text()
