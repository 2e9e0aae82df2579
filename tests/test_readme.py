"""The README's blocks do what they show: declarations are read, commands run, Python executes."""

import re
from pathlib import Path

import pytest

from gristmill import declaration
from gristmill.spec import METRICS
from tests import toy
from tests.workspace.test_three_doors import clone

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_declarations_shown_are_right(tmp_path: Path) -> None:
    shown, own = blocks("yaml")
    file = tmp_path / "churn" / "defs.yaml"
    file.parent.mkdir()
    file.write_text(own)
    assert declaration.read(file).spec.features.exclude == ("customer_id", "closed_at")
    assert shown == (ROOT / "pipelines" / "digits" / "defs.yaml").read_text()
    assert declaration.read(ROOT / "pipelines" / "digits" / "defs.yaml").spec.task.target == "digit"


def test_the_commands_that_set_up_are_targets_of_the_makefile() -> None:
    (shown,) = blocks("console")
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {line.removeprefix("$ make ") for line in shown.splitlines()} <= targets


def test_commands_and_python_run_as_they_stand(tmp_path: Path) -> None:
    folder = clone(tmp_path / "workspace")
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    assert len(lines) == 11
    for line in lines:
        ran = toy.call(folder, "bash", "-c", line, HOME=str(tmp_path))
        assert ran.returncode == 0, f"{line}: {ran.stderr[-3000:]}"
    assert (folder / "answers.csv").read_text().startswith("digit,probability_0,")
    (python,) = blocks("python")
    ran = toy.call(folder, "python", "-c", python)
    assert ran.returncode == 0, ran.stderr


def test_what_the_readme_shows_is_there() -> None:
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (ROOT / picture).is_file()


def test_the_metrics_listed_are_the_metrics() -> None:
    for kind, names in METRICS.items():
        assert f"| {kind} | {', '.join(names)} |" in README


@pytest.mark.parametrize("command", ["check", "run", "status", "render", "predict", "init", "ui"])
def test_every_command_named_is_a_command(command: str) -> None:
    assert f"gristmill {command}" in README
    ran = toy.call(ROOT, "gristmill", command, "--help")
    assert ran.returncode == 0
