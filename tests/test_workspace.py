from pathlib import Path

import pytest

from gristmill.errors import DeclarationError, InputError
from gristmill.workspace import Workspace
from tests.conftest import Declare

GOOD = {
    "source": {"path": "data/x.csv"},
    "task": {"kind": "regression", "target": "delay", "metric": "rmse", "accept": {"at_most": 9}},
    "split": {"test": 0.2, "validation": 0.1},
}


def test_a_workspace_is_found_from_any_folder_in_it(declare: Declare, tmp_path: Path) -> None:
    file = declare(GOOD)
    assert Workspace.find(tmp_path) == Workspace.find(file.parent) == Workspace(tmp_path.resolve())


def test_the_working_directory_says_where_we_are(
    declare: Declare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(declare(GOOD).parent)
    assert Workspace.find().root == tmp_path.resolve()


def test_the_nearest_workspace_counts(declare: Declare, tmp_path: Path) -> None:
    declare(GOOD)
    inner = tmp_path / "copy"
    (inner / "pipelines").mkdir(parents=True)
    (inner / "dvc.yaml").touch()
    assert Workspace.find(inner / "pipelines").root == inner.resolve()


def test_outside_of_a_workspace_the_way_out_is_init(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    with pytest.raises(InputError, match=r"must lie in a workspace .*however none.*run `gristmill init`"):
        Workspace.find(tmp_path)


def test_pipelines_are_the_folders_with_a_declaration(declare: Declare, tmp_path: Path) -> None:
    declare(GOOD, "b")
    declare(GOOD, "a")
    (tmp_path / "pipelines" / "notes").mkdir()
    workspace = Workspace.find(tmp_path)
    assert workspace.pipeline_names() == ["a", "b"]
    assert workspace.pipeline("b").spec.task.target == "delay"


@pytest.mark.parametrize("name", ["c", "../a", "", "a/../a"])
def test_a_name_that_is_not_there_is_told_with_those_that_are(
    declare: Declare, tmp_path: Path, name: str
) -> None:
    declare(GOOD, "a")
    declare(GOOD, "b")
    with pytest.raises(InputError, match=r"pipeline must be one of a, b, got "):
        Workspace.find(tmp_path).pipeline(name)


def test_problems_name_the_file_as_a_person_reads_it(declare: Declare, tmp_path: Path) -> None:
    declare(GOOD | {"evaluation": {"resamples": 1}})
    with pytest.raises(DeclarationError, match=r"^pipelines/flights/defs.yaml:\d+: evaluation.resamples: "):
        Workspace.find(tmp_path).pipeline("flights")


def test_all_that_is_written_lies_under_the_root(declare: Declare, tmp_path: Path) -> None:
    declare(GOOD)
    workspace = Workspace.find(tmp_path)
    places = {
        workspace.stage_folder("flights", "split"): "pipelines/flights/data/split",
        workspace.reports("flights"): "pipelines/flights/reports",
        workspace.work("flights", "split"): ".gristmill/work/flights/split",
        workspace.asset_table("raw/flights"): ".gristmill/assets/raw/flights.parquet",
    }
    assert {str(workspace.shown(place)) for place in places} == set(places.values())
    assert workspace.shown(Path("/elsewhere/x")) == Path("/elsewhere/x")
