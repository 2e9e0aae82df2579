from pathlib import Path

import pytest

from gristmill import consistency
from tests import toy


def problems(folder: Path) -> list[str]:
    found, _ = consistency.check(toy.Workspace(folder), fix=False)
    return [str(problem) for problem in found]


def test_a_workspace_as_init_writes_it_is_right(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    assert problems(tmp_path) == []


def test_every_declaration_is_read_and_every_problem_told(tmp_path: Path) -> None:
    # `dg check yaml` looks at the last file of a component's type only.
    toy.workspace(tmp_path)
    for name in ("first", "second"):
        toy.declare(tmp_path, name, training={"epochz": 3})
    assert problems(tmp_path) == [
        f"pipelines/{name}/defs.yaml:27: training.epochz: unknown key 'epochz'; did you mean 'epochs'?"
        for name in ("first", "second")
    ]


def test_generated_files_are_compared_and_written(tmp_path: Path) -> None:
    workspace = toy.workspace(tmp_path)
    file = tmp_path / "pipelines" / "toy" / "dvc.yaml"
    wanted = file.read_text()
    file.write_text(wanted.replace("cmd: gristmill", "cmd: /bin/gristmill", 1))
    (tmp_path / "pipelines" / "schema.json").unlink()
    assert problems(tmp_path) == [
        "pipelines/schema.json:1: is not there; `gristmill check --fix` writes it",
        "pipelines/toy/dvc.yaml:1: differs from line 7 on; `gristmill check --fix` writes it",
    ]
    found, written = consistency.check(workspace, fix=True)
    assert (found, [str(path) for path in written]) == (
        [],
        ["pipelines/schema.json", "pipelines/toy/dvc.yaml"],
    )
    assert file.read_text() == wanted


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"contract": "checks.nope:X"}, "contract: module 'checks.nope' must lie in the workspace"),
        ({"contract": {"suite": "checks/nope.json"}}, "contract.suite: checks/nope.json must be there"),
        ({"source": {"path": "data/nope.csv"}}, "source.path: data/nope.csv must be there"),
    ],
)
def test_what_a_declaration_names_must_be_there(
    tmp_path: Path, changed: dict[str, object], words: str
) -> None:
    toy.workspace(tmp_path)
    toy.declare(tmp_path, **changed)
    (found,) = problems(tmp_path)
    assert words in found
    assert found.startswith("pipelines/toy/defs.yaml:")


def test_the_contracts_name_must_stand_in_its_module(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    (tmp_path / "checks" / "people.py").write_text("PEOPLE = 1\n")
    toy.declare(tmp_path, contract="checks.people:Customers")
    assert "checks/people.py must define 'Customers'" in problems(tmp_path)[0]


def test_the_workspaces_packages_must_be_packages(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    (tmp_path / "checks" / "__init__.py").unlink()
    assert "checks/ must have an __init__.py" in problems(tmp_path)[0]
