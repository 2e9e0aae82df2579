"""The repository's own pipelines through the command line, DVC and Dagster: one engine, the same bytes."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gristmill import files
from gristmill.workspace import Workspace
from tests import toy

ROOT = Path(__file__).parent.parent.parent


def clone(folder: Path) -> Path:
    """The workspace as a fresh clone has it, edits that are not committed yet included."""
    ran = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, ran.stdout.decode().split("\0")):
        # The package itself is the installed one.
        if (ROOT / name).is_file() and not name.startswith(("gristmill/", "tests/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for command in (
        ["git", "init", "-q"],
        ["git", "add", "-A"],
        ["git", "-c", "user.name=t", "-c", "user.email=t@t.t", "commit", "-qm", "clone"],
    ):
        subprocess.run(command, cwd=folder, check=True)
    return folder


def catalog(folder: Path) -> list[str]:
    code = (
        "import dagster as dg\n"
        "with dg.DagsterInstance.from_config('.') as instance:\n"
        "    made = [k for k in instance.get_asset_keys() if instance.get_latest_materialization_event(k)]\n"
        "    print('\\n'.join(sorted('/'.join(key.path) for key in made)))\n"
    )
    return toy.call(folder, "python", "-c", code).stdout.splitlines()


def outputs(folder: Path) -> dict[str, str]:
    data = folder / "pipelines" / "digits" / "data"
    return {stage.name: files.tree_md5(stage / "output") for stage in sorted(data.iterdir())}


DOORS = {
    "gristmill run": ["gristmill", "run", "digits"],
    "dvc repro": ["dvc", "repro", "pipelines/digits/dvc.yaml"],
    "dagster": ["dg", "launch", "--job", "digits"],
}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A clean clone for each door, and `digits` run through it."""
    folders = {}
    for name, command in DOORS.items():
        folder = clone(tmp_path_factory.mktemp("door") / name.replace(" ", "_"))
        ran = toy.call(folder, *command, HOME=str(folder.parent))
        assert ran.returncode == 0, f"{name}: {ran.stdout[-2000:]} {ran.stderr[-4000:]}"
        folders[name] = folder
    return folders


def test_the_three_doors_write_the_same_lock_byte_for_byte(doors: dict[str, Path]) -> None:
    locks = {name: (folder / "pipelines/digits/dvc.lock").read_bytes() for name, folder in doors.items()}
    assert locks["dvc repro"] == locks["gristmill run"]
    assert locks["dagster"] == locks["gristmill run"]


def test_the_three_doors_make_the_same_bytes(doors: dict[str, Path]) -> None:
    made = {name: outputs(folder) for name, folder in doors.items()}
    assert len(made["gristmill run"]) == 8
    assert made["dvc repro"] == made["gristmill run"]
    assert made["dagster"] == made["gristmill run"]


@pytest.mark.parametrize("door", DOORS)
def test_after_any_door_dvc_is_clean_dagster_knows_and_nothing_is_to_do(
    doors: dict[str, Path], door: str
) -> None:
    folder = doors[door]
    assert (
        toy.call(folder, "dvc", "status", "pipelines/digits/dvc.yaml").stdout.strip().endswith("up to date.")
    )
    assert [key for key in catalog(folder) if key.startswith("digits/")] == [
        f"digits/{stage}"
        for stage in (
            "baseline",
            "evaluation",
            "model",
            "network",
            "preflight",
            "snapshot",
            "split",
            "validation",
        )
    ]
    again = toy.call(folder, "gristmill", "run", "digits")
    assert (again.returncode, "nothing to do: 8 stages are current" in again.stderr) == (0, True)


def test_only_reports_lock_and_nothing_else_changes_in_git(doors: dict[str, Path]) -> None:
    for folder in doors.values():
        changed = toy.call(
            folder, "git", "status", "--porcelain", "--untracked-files=all"
        ).stdout.splitlines()
        names = {line[3:] for line in changed}
        reports = {name for name in names if name.startswith("pipelines/digits/reports/")}
        assert names - reports <= {"pipelines/digits/dvc.lock"}


def test_a_fresh_clone_takes_the_pinned_snapshot_again_and_refuses_another(
    doors: dict[str, Path], tmp_path: Path
) -> None:
    folder = clone(tmp_path / "fresh")
    shutil.copy2(doors["gristmill run"] / "pipelines/digits/dvc.lock", folder / "pipelines/digits/dvc.lock")
    # No cache holds it: it is taken from the source, and equals the pin.
    ran = toy.call(folder, "gristmill", "run", "digits", "--to", "snapshot")
    assert ran.returncode == 0, ran.stderr
    other = clone(tmp_path / "other")
    lock = other / "pipelines/digits/dvc.lock"
    shutil.copy2(doors["gristmill run"] / "pipelines/digits/dvc.lock", lock)
    source = other / "assets" / "examples.py"
    source.write_text(
        source.read_text().replace("bunch.images[:, row, column]", "bunch.images[:, row, column] + 1")
    )
    before = lock.read_bytes()
    for command in (
        ["gristmill", "run", "digits", "--to", "snapshot"],
        ["dvc", "repro", "pipelines/digits/dvc.yaml:snapshot"],
    ):
        ran = toy.call(other, *command)
        assert ran.returncode != 0
        assert (
            "digits/snapshot must equal its pin, however the source now gives other data (pinned"
            in ran.stderr
        )
    assert lock.read_bytes() == before
    assert toy.call(other, "gristmill", "run", "digits", "--to", "snapshot", "--refresh").returncode == 0
    assert lock.read_bytes() != before


def test_k53_a_pinned_snapshot_comes_back_from_the_cache_and_a_damaged_cache_is_told(
    doors: dict[str, Path],
) -> None:
    folder = doors["gristmill run"]
    data = folder / "pipelines" / "digits" / "data" / "snapshot"
    before = files.tree_md5(data / "output")
    shutil.rmtree(data)
    # Were it taken from the source, it would be made; from the cache it is kept.
    ran = toy.call(folder, "gristmill", "run", "digits", "--to", "snapshot")
    assert ran.returncode == 0, ran.stderr
    assert "snapshot       kept" in ran.stderr
    assert files.tree_md5(data / "output") == before
    # A damaged object is noticed by its digest: the source gives the pinned bytes, or nothing does.
    part = next((data / "output").glob("*.parquet"))
    md5 = files.file_md5(part)
    cached = folder / ".dvc" / "cache" / "files" / "md5" / md5[:2] / md5[2:]
    cached.chmod(0o644)
    cached.write_bytes(cached.read_bytes() + b"\0")
    shutil.rmtree(data)
    ran = toy.call(folder, "gristmill", "run", "digits", "--to", "snapshot")
    assert ran.returncode == 0, ran.stderr
    assert "snapshot       kept" not in ran.stderr
    assert files.tree_md5(data / "output") == before
    assert files.file_md5(cached) == md5


def test_the_bundle_of_digits_loads_and_predicts_without_any_orchestrator(doors: dict[str, Path]) -> None:
    folder = doors["dvc repro"]
    code = (
        "import sys, json, gristmill, pandas as pd\n"
        "model = gristmill.load_model('pipelines/digits/data/model')\n"
        "frame = pd.read_parquet(sys.argv[1])\n"
        "right = (model.predict(frame) == frame['digit']).mean()\n"
        "print(json.dumps([float(right), sorted({'dagster', 'dvc', 'duckdb'} & set(sys.modules))]))\n"
    )
    table = Workspace(folder).asset_table("raw/digits")
    ran = toy.call(folder, "python", "-c", code, str(table))
    right, loaded = json.loads(ran.stdout)
    assert right > 0.97
    assert loaded == []
