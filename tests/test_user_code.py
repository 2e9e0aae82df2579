from pathlib import Path

import pytest

from gristmill import user_code
from gristmill.errors import InputError


def test_an_entry_is_found_in_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "mine_a.py").write_text("def rule():\n    return 7\n")
    assert user_code.load(tmp_path, "mine_a:rule")() == 7


@pytest.mark.parametrize(
    ("content", "entry", "words"),
    [
        ("x = 1", "nope:rule", "module nope must lie in"),
        ("x = 1", "mine_b:rule", "mine_b must define 'rule', however it does not"),
        (
            "import not_installed_at_all",
            "mine_c:rule",
            "mine_c imports not_installed_at_all, which is not installed",
        ),
        ("x = 1", "json:loads", "module json must lie in"),
    ],
)
def test_what_is_not_there_is_told(tmp_path: Path, content: str, entry: str, words: str) -> None:
    (tmp_path / f"{entry.partition(':')[0]}.py").write_text(content) if entry.startswith("mine") else None
    with pytest.raises(InputError, match=words):
        user_code.load(tmp_path, entry)
