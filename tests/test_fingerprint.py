from pathlib import Path

import pytest

from gristmill import fingerprint
from gristmill.errors import InputError
from gristmill.spec import PipelineSpec

ENTRY = ["checks.flights:Flights"]


@pytest.fixture
def checks(tmp_path: Path) -> Path:
    """checks/flights.py imports checks/limits.py, which imports checks/units.py; checks/other.py stands alone."""
    folder = tmp_path / "checks"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "flights.py").write_text("import json\nfrom checks.limits import DELAY\n\nFlights = DELAY\n")
    (folder / "limits.py").write_text("from . import units\n\nDELAY = 5 * units.MINUTE\n")
    (folder / "units.py").write_text("MINUTE = 60\n")
    (folder / "other.py").write_text("OTHER = 1\n")
    return folder


def code_of(checks: Path) -> dict[str, str]:
    return fingerprint.code("gristmill.snapshot", checks.parent, ENTRY)


def test_user_code_is_the_module_and_what_it_imports(checks: Path) -> None:
    users = sorted(label for label in code_of(checks) if not label.startswith("gristmill:"))
    assert users == ["checks/__init__.py", "checks/flights.py", "checks/limits.py", "checks/units.py"]
    assert fingerprint.user_files(checks.parent, ENTRY) == [checks.parent / label for label in users]
    assert fingerprint.user_files(checks.parent, []) == []


@pytest.mark.parametrize("name", ["flights.py", "limits.py", "units.py", "__init__.py"])
@pytest.mark.parametrize("added", ["EXTRA = 1\n", "# a comment only\n"])
def test_an_edited_helper_changes_its_digest_and_no_other(checks: Path, name: str, added: str) -> None:
    before = code_of(checks)
    file = checks / name
    file.write_text(file.read_text() + added)
    after = code_of(checks)
    assert {label for label in before if before[label] != after[label]} == {f"checks/{name}"}


def test_a_file_that_nobody_imports_changes_nothing(checks: Path) -> None:
    before = code_of(checks)
    (checks / "other.py").write_text("OTHER = 2\n")
    assert code_of(checks) == before


def test_a_new_import_is_followed(checks: Path) -> None:
    code_of(checks)
    (checks / "units.py").write_text("import checks.other\n\nMINUTE = 60\n")
    assert "checks/other.py" in code_of(checks)


def test_modules_that_import_each_other_end(checks: Path) -> None:
    (checks / "units.py").write_text("import checks.flights\n\nMINUTE = 60\n")
    assert "checks/units.py" in code_of(checks)


def test_a_module_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"module 'checks.gone' must lie in the workspace, however "):
        fingerprint.code("gristmill.snapshot", tmp_path, ["checks.gone:Gone"])


def test_a_module_that_is_no_python_is_named_with_its_line(checks: Path) -> None:
    (checks / "limits.py").write_text("DELAY = 5\ndef broken(:\n")
    with pytest.raises(InputError, match=r"checks/limits.py:2: must be Python, however: "):
        code_of(checks)


def test_a_stage_of_gristmill_is_its_module_and_what_that_imports(tmp_path: Path) -> None:
    code = fingerprint.code("gristmill.snapshot", tmp_path)
    assert {"gristmill:snapshot.py", "gristmill:tables.py", "gristmill:spec/base.py"} <= code.keys()
    foreign = {"cli.py", "plan.py", "pins.py", "__init__.py"}
    assert not foreign & {label.removeprefix("gristmill:") for label in code}
    assert not [
        label for label in code if label.startswith(("gristmill:orchestrate/", "gristmill:training/"))
    ]


def test_packages_are_named_with_their_versions() -> None:
    found = fingerprint.packages(["pyarrow"])
    assert found.keys() == {"python", "pyarrow"}
    assert found["pyarrow"][0].isdigit()


def test_a_section_has_its_defaults_filled_in() -> None:
    spec = PipelineSpec.model_validate(
        {
            "source": {"path": "data/x.csv"},
            "task": {"kind": "regression", "target": "y", "metric": "rmse", "accept": {"at_most": 1}},
            "split": {"test": 0.2, "validation": 0.1},
        }
    )
    assert fingerprint.section(spec, ["task.target", "split.seed", "contract", "contract.columns"]) == {
        "task.target": "y",
        "split.seed": 0,
        "contract": None,
        "contract.columns": None,
    }
