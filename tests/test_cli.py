import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gristmill import records
from gristmill.workspace import Workspace
from tests import toy


def gristmill(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return toy.call(folder, "gristmill", *arguments, **more)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy workspace whose pipeline has run through."""
    folder = tmp_path_factory.mktemp("finished")
    toy.workspace(folder)
    ran = gristmill(folder, "run", "toy")
    assert ran.returncode == 0, ran.stderr
    return folder


def test_a_run_ends_with_a_table_the_verdict_and_where_things_lie(finished: Path) -> None:
    again = gristmill(finished, "run", "toy")
    assert again.returncode == 0
    assert "nothing to do: 8 stages are current" in again.stderr
    for model in ("dummy", "linear", "xgboost", "network"):
        assert model in again.stdout
    assert "gate     accepted (wanted >= 0.6" in again.stdout
    assert "pipelines/toy/reports/report.html" in again.stdout
    assert "gristmill ui" in again.stdout
    assert max(len(line) for line in again.stdout.splitlines()) <= 80
    assert (finished / "pipelines" / "toy" / "reports" / "report.html").is_file()


def test_a_run_with_nothing_to_do_loads_no_engine(finished: Path) -> None:
    code = (
        "import sys, os; from gristmill import cli; os._exit = lambda code: None\n"
        "sys.argv = ['gristmill', 'run', 'toy']; cli.main()\n"
        "heavy = {'torch', 'dagster', 'dvc', 'pandas', 'sklearn', 'duckdb'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    assert toy.call(finished, "python", "-c", code).returncode == 0


@pytest.mark.parametrize("arguments", [["--help"], ["check"]])
def test_light_commands_load_no_engine(finished: Path, arguments: list[str]) -> None:
    code = (
        "import sys, os; from gristmill import cli; os._exit = lambda code: None\n"
        f"sys.argv = ['gristmill', *{arguments!r}]; cli.main()\n"
        "heavy = {'torch', 'dagster', 'dvc', 'pandas', 'sklearn', 'duckdb', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    ran = toy.call(finished, "python", "-c", code)
    assert ran.returncode == 0, ran.stderr


def test_json_says_how_each_stage_stands_and_what_was_found(finished: Path) -> None:
    ran = gristmill(finished, "run", "toy", "--json")
    body = json.loads(ran.stdout)
    assert [stage["state"] for stage in body["stages"]] == ["current"] * 8
    assert body["evaluation"]["accepted"] is True
    assert ran.stderr == ""


def test_status_says_why(finished: Path) -> None:
    ran = gristmill(finished, "status", "toy", "--why")
    assert ran.stdout.count("nothing it depends on changed") == 7
    assert "pinned; --refresh takes what the source holds now" in ran.stdout
    body = json.loads(gristmill(finished, "status", "--json").stdout)
    assert body["toy"][0]["stage"] == "snapshot"


def test_every_door_sees_a_run_of_the_command_line(finished: Path) -> None:
    assert "up to date" in toy.call(finished, "dvc", "status").stdout
    code = (
        "import dagster as dg\n"
        "with dg.DagsterInstance.from_config('.') as instance:\n"
        "    keys = instance.get_asset_keys()\n"
        "    print(sorted('/'.join(key.path) for key in keys))\n"
    )
    assert eval(toy.call(finished, "python", "-c", code).stdout) == [
        f"toy/{stage}"
        for stage in sorted(
            ["snapshot", "validation", "split", "baseline", "preflight", "network", "evaluation", "model"]
        )
    ]


def test_predictions_come_from_the_accepted_model(finished: Path) -> None:
    ran = gristmill(finished, "predict", "toy", "data/toy.csv", "-o", "answer.csv")
    assert ran.stdout == "predicted 400 rows into answer.csv\n"
    lines = (finished / "answer.csv").read_text().splitlines()
    assert lines[0] == "bought,probability_False,probability_True"
    assert len(lines) == 401


def test_an_older_model_answers_and_says_so(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    toy.declare(folder, task=toy.DECLARED["task"] | {"accept": {"at_least": 0.99}})
    assert gristmill(folder, "run", "toy").returncode == 1
    ran = gristmill(folder, "predict", "toy", "data/toy.csv", "-o", "answer.csv")
    assert ran.returncode == 0
    assert "answers, which is not what toy declares now (evaluation failed)" in ran.stderr


def test_progress_is_shown_while_a_stage_works(finished: Path, tmp_path: Path) -> None:
    # In a terminal of its own, as a user has one.
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    toy.declare(folder, training={"epochs": 400, "batch_size": 8, "early_stopping": {"patience": 400}})
    shown = toy.call(
        folder, "script", "-qec", "gristmill run toy --to network", "/dev/null", TERM="xterm"
    ).stdout
    assert len(set(re.findall(r"epoch (\d+):", shown))) > 5


def test_what_a_kill_kept_from_lock_and_reports_is_put_right(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    lock = folder / "pipelines" / "toy" / "dvc.lock"
    reports = folder / "pipelines" / "toy" / "reports"
    whole, metrics = lock.read_text(), (reports / "metrics.json").read_bytes()
    lock.write_text(whole[: whole.index("\n  evaluation:\n") + 1])
    (reports / "metrics.json").unlink()
    ran = gristmill(folder, "run", "toy")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count(" kept") == 8
    assert lock.read_text() == whole
    assert (reports / "metrics.json").read_bytes() == metrics
    assert "up to date" in toy.call(folder, "dvc", "status").stdout


def test_a_model_that_failed_its_parity_answers_nothing(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    home = Workspace(folder).stage_folder("toy", "model")
    record = records.read(home)
    assert record is not None
    failed = replace(record.checks[0], verdict="failed")
    record.with_result(record.output, (failed,), record.values, record.reports).write(home)
    ran = gristmill(folder, "predict", "toy", "data/toy.csv", "-o", "refused.csv")
    assert ran.returncode == 2
    assert "must have passed its checks, however it did not" in ran.stderr
    assert not (folder / "refused.csv").exists()


def test_faults_of_the_users_own_code_are_the_users(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    (tmp_path / "assets" / "mine.py").write_text(
        "import dagster as dg\n"
        "@dg.asset(key=['raw', 'mine'], io_manager_key='table')\n"
        "def mine():\n    raise ValueError('boom')\n"
    )
    toy.declare(tmp_path, source={"asset": "raw/mine"})
    ran = gristmill(tmp_path, "run", "toy")
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
    assert "raw__mine failed: ValueError: boom; the traceback is in .gristmill/logs/" in ran.stderr
    (tmp_path / "checks" / "people.py").write_text("PEOPLE = 1 / 0\n")
    toy.declare(tmp_path, contract="checks.people:PEOPLE")
    ran = gristmill(tmp_path, "run", "toy")
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == (
        "gristmill: checks.people:PEOPLE: checks.people must load, however it raises "
        "ZeroDivisionError: division by zero"
    )


def test_render_prints_every_default(finished: Path) -> None:
    printed = gristmill(finished, "render", "toy").stdout
    assert "max_share: 0.3" in printed
    assert "patience: 8" in printed


def test_schema_is_the_file_in_the_workspace(finished: Path) -> None:
    assert gristmill(finished, "schema").stdout == (finished / "pipelines" / "schema.json").read_text()


def test_lineage_tells_what_the_model_was_made_of(finished: Path) -> None:
    folder = Workspace(finished).stage_folder("toy", "model")
    lineage = json.loads((folder / "lineage.json").read_text())
    record = records.read(Workspace(finished).stage_folder("toy", "snapshot"))
    assert record is not None
    assert lineage["snapshot"] == record.output_digest
    assert lineage["declaration"]["split"]["seed"] == 1
    assert lineage["seeds"] == {"split": 1, "baseline": 0, "training": 0, "evaluation": 0}
    assert lineage["environment"]["packages"]["torch"].startswith("2.")
    assert lineage["stages"]["network"]["run"]["seconds"] > 0
    # The tree is dirty, so a commit of it was made, with the declaration in it.
    commit = lineage["code"]["commit"]
    shown = toy.call(finished, "git", "show", f"{commit}:pipelines/toy/defs.yaml")
    assert shown.stdout == (finished / "pipelines" / "toy" / "defs.yaml").read_text()


# What goes wrong


def test_a_wrong_declaration_is_exit_2_with_all_problems_before_anything_is_read(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    toy.declare(tmp_path, task=toy.DECLARED["task"] | {"metric": "rmse"}, training={"epochs": 0})
    ran = gristmill(tmp_path, "run", "toy")
    assert ran.returncode == 2
    assert ran.stdout == ""
    lines = ran.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("gristmill: pipelines/toy/defs.yaml:")
    assert "training.epochs: must be at least 1, got 0" in lines[1]
    assert not (tmp_path / "pipelines" / "toy" / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nope"], "pipeline must be one of toy, got 'nope'"),
        (["run", "toy", "--to", "train"], "stage must be one of snapshot"),
        (["materialize", "toy"], "must be PIPELINE/STAGE"),
        (["predict", "toy", "data/toy.csv"], "must be a model's folder"),
    ],
)
def test_a_wrong_argument_is_exit_2_and_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    toy.workspace(tmp_path)
    ran = gristmill(tmp_path, *arguments)
    assert ran.returncode == 2
    assert words in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_outside_of_a_workspace_it_says_so(tmp_path: Path) -> None:
    ran = gristmill(tmp_path, "run", "toy")
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
    assert "must lie in a workspace" in ran.stderr


def test_a_gate_that_says_no_is_exit_1_now_and_when_asked_again(tmp_path: Path) -> None:
    toy.workspace(tmp_path, validation={"balance": {"min_share": 0.5}})
    for _ in range(2):
        ran = gristmill(tmp_path, "run", "toy")
        assert ran.returncode == 1
        assert ran.stderr.splitlines()[-1].startswith(
            "gristmill: toy/validation: GM105 balance failed: 2 classes"
        )
    # What failed is there to be looked at, and no lock names it.
    assert (tmp_path / "pipelines" / "toy" / "data" / "validation" / "record.json").is_file()
    assert "\n  validation:\n" not in (tmp_path / "pipelines" / "toy" / "dvc.lock").read_text()
    assert gristmill(tmp_path, "materialize", "toy/split").returncode == 1


def test_a_fault_behind_a_warning_is_a_fault(tmp_path: Path) -> None:
    # The constant column is a warning; the contract's own code then fails in a way nobody foresaw.
    toy.workspace(tmp_path, features={"include": ["age", "shop", "kind"]})
    lines = toy.rows().splitlines()
    text = "\n".join([f"{lines[0]},kind", *(f"{line},same" for line in lines[1:])])
    (tmp_path / "data" / "toy.csv").write_text(text + "\n")
    broken = (
        "import gristmill.split as split\n"
        "def make(work):\n    raise ZeroDivisionError('unforeseen')\n"
        "split.make = make\n"
        "from gristmill import cli\ncli.main()\n"
    )
    ran = toy.call(tmp_path, "python", "-c", f"import sys; sys.argv = ['gristmill', 'run', 'toy']\n{broken}")
    assert ran.returncode == 5
    assert "GM106 constant warned" in ran.stderr
    line = ran.stderr.splitlines()[-1]
    assert line.startswith(
        "gristmill: toy__split failed: ZeroDivisionError: unforeseen; the traceback is in "
    )
    assert "in make" in (tmp_path / line.rpartition(" ")[2]).read_text()
    assert ran.stdout == ""


def test_a_stale_dvc_file_is_refused(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    (tmp_path / "pipelines" / "toy" / "dvc.yaml").unlink()
    ran = gristmill(tmp_path, "run", "toy")
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
    assert "run `gristmill check --fix`" in ran.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_k49_an_interrupt_is_no_success_and_publishes_nothing(tmp_path: Path, number: int, code: int) -> None:
    toy.workspace(tmp_path, training={"epochs": 5000, "early_stopping": {"patience": 5000}, "batch_size": 32})
    with subprocess.Popen(
        ["gristmill", "run", "toy"],
        cwd=tmp_path,
        env=toy.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    ) as process:
        work = tmp_path / ".gristmill" / "work" / "toy" / "network"
        _wait(lambda: len(published(work)) > 0)
        # A second run finds the pipeline held, by whom and since when.
        busy = gristmill(tmp_path, "run", "toy")
        assert busy.returncode == 3
        assert "toy is busy: run " in busy.stderr
        assert f"pid {process.pid} on" in busy.stderr
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (code, "")
    assert (
        err.splitlines()[-1] == "gristmill: interrupted; what was finished is kept, run it again to continue"
    )
    workspace = Workspace(tmp_path)
    assert records.read(workspace.stage_folder("toy", "network")) is None
    assert "\n  network:\n" not in (tmp_path / "pipelines" / "toy" / "dvc.lock").read_text()
    # The epochs that were done are there for the next attempt.
    assert published(work)


def test_f01_k56_a_kill_loses_nothing_and_the_next_run_goes_on(tmp_path: Path) -> None:
    toy.workspace(tmp_path, training={"epochs": 60, "early_stopping": {"patience": 60}, "batch_size": 2})
    process = subprocess.Popen(
        ["gristmill", "run", "toy"], cwd=tmp_path, env=toy.environment(), stderr=subprocess.DEVNULL
    )
    work = tmp_path / ".gristmill" / "work" / "toy" / "network"
    _wait(lambda: len(published(work)) > 0)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert statuses(tmp_path) == ["STARTED"]
    ran = gristmill(tmp_path, "run", "toy")
    assert ran.returncode == 0, ran.stderr
    # K56: the run whose process is gone is not shown as going on.
    assert statuses(tmp_path) == ["SUCCESS", "FAILURE"]
    assert [line.split()[1:3] for line in ran.stderr.splitlines() if " kept" in line][:2] == [
        ["snapshot", "kept"],
        ["validation", "kept"],
    ]
    resumed = Workspace(tmp_path).stage_folder("toy", "network")
    assert json.loads((resumed / "speed.json").read_text())["resumed_from"] > 0
    # The same, never interrupted, makes the same bytes.
    first = records.read(resumed)
    assert gristmill(tmp_path, "run", "toy", "--force").returncode == 0
    assert records.read(resumed) == first


def statuses(folder: Path) -> list[str]:
    """How Dagster's runs stand, the latest first."""
    code = (
        "import dagster as dg\n"
        "with dg.DagsterInstance.from_config('.') as instance:\n"
        "    print(' '.join(run.status.value for run in instance.get_runs()))\n"
    )
    return toy.call(folder, "python", "-c", code).stdout.split()


def published(work: Path) -> list[Path]:
    """The checkpoints that are complete: their names, for what is still being written goes away meanwhile."""
    return list(work.glob("*/checkpoints/epoch-*/manifest.json"))


def _wait(condition: object, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
