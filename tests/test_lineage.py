"""The facts of a run, and the commit of what nobody committed, in real git repositories."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill import lineage
from gristmill.errors import EnvironmentFault

REF = "refs/gristmill/flights/run1"


def git(root: Path, *arguments: str) -> str:
    # Without the optional locks, so that looking does not write the index.
    environment = os.environ | {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@localhost",
        "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@localhost",
    }
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True, env=environment).stdout.strip()


def state(root: Path) -> dict[str, str]:
    """All that commit() must not touch."""
    watched = [root / ".git" / name for name in ("HEAD", "index", "logs/HEAD", "refs/heads/main")]
    watched += [path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts]
    digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in watched if path.exists()}
    return digests | {"status": git(root, "status", "--porcelain"), "branches": git(root, "branch", "-v")}


@pytest.fixture
def bare_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """No git settings, and no name to commit under."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")


@pytest.fixture
def repository(tmp_path: Path, bare_home: None) -> Path:
    """Two committed files and an ignored one."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "a.py").write_text("a = 1\n")
    (root / "b.py").write_text("b = 1\n")
    (root / ".gitignore").write_text("secret\n")
    (root / "secret").write_text("ignored\n")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "first")
    return root


def test_clean_tree_is_its_head_and_makes_no_ref(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    before = state(repository)
    assert lineage.commit(repository, REF) == {
        "head": head,
        "commit": head,
        "dirty": False,
        "branch": "main",
        "left_out": [],
    }
    assert git(repository, "for-each-ref", "refs/gristmill") == ""
    assert state(repository) == before


def test_dirty_tree_becomes_a_commit_and_nothing_else_moves(repository: Path) -> None:
    (repository / "a.py").write_text("a = 2\n")
    git(repository, "add", "a.py")
    (repository / "a.py").write_text("a = 3\n")
    (repository / "b.py").unlink()
    (repository / "new folder").mkdir()
    (repository / "new folder" / "naïve 'name'.py").write_text("c = 1\n")
    (repository / "secret").write_text("still ignored\n")
    before = state(repository)

    found = lineage.commit(repository, REF)

    assert state(repository) == before
    assert found["dirty"] is True
    assert found["head"] == git(repository, "rev-parse", "HEAD")
    made = found["commit"]
    assert made == git(repository, "rev-parse", REF)
    assert git(repository, "rev-parse", f"{made}^") == found["head"]
    assert git(repository, "show", f"{made}:a.py") == "a = 3"
    names = git(repository, "ls-tree", "-r", "-z", "--name-only", made).split("\0")
    assert set(names) - {""} == {".gitignore", "a.py", "new folder/naïve 'name'.py"}
    assert git(repository, "log", "-1", "--format=%an %ae %cn", made) == (
        "gristmill gristmill@localhost gristmill"
    )


def test_edit_as_old_as_the_index_is_seen(repository: Path) -> None:
    # git trusts an unchanged time and size unless the file is as young as the index.
    git(repository, "config", "core.trustctime", "false")
    os.utime(repository / "a.py", (10**9, 10**9))
    git(repository, "add", "--all")
    (repository / "a.py").write_text("a = 9\n")
    for file in (repository / "a.py", repository / ".git" / "index"):
        os.utime(file, (10**9, 10**9))
    made = lineage.commit(repository, REF)["commit"]
    assert git(repository, "show", f"{made}:a.py") == "a = 9"


def test_folder_of_a_repository_commits_all_of_it(repository: Path) -> None:
    (repository / "inner").mkdir()
    (repository / "inner" / "c.py").write_text("c = 1\n")
    (repository / "a.py").write_text("a = 2\n")
    made = lineage.commit(repository / "inner", REF)["commit"]
    assert git(repository, "show", f"{made}:inner/c.py") == "c = 1"
    assert git(repository, "show", f"{made}:a.py") == "a = 2"


def test_repository_without_a_commit(tmp_path: Path, bare_home: None) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    assert lineage.commit(tmp_path, REF) == {
        "head": None,
        "commit": None,
        "dirty": False,
        "branch": "main",
        "left_out": [],
    }
    (tmp_path / "a.py").write_text("a = 1\n")
    before = state(tmp_path)
    found = lineage.commit(tmp_path, REF)
    assert found["head"] is None
    assert git(tmp_path, "log", "--format=%P", found["commit"]) == ""
    assert git(tmp_path, "show", f"{found['commit']}:a.py") == "a = 1"
    assert state(tmp_path) == before


def test_large_untracked_files_and_inner_repositories_are_left_out(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "MAX_UNTRACKED_BYTES", 1000)
    # Tracked files are kept at any size; a name is taken as it is written, not as a pattern.
    (repository / "a.py").write_bytes(b"#" * 2000)
    (repository / "data [*].bin").write_bytes(b"x" * 1001)
    (repository / "data 1.bin").write_bytes(b"x" * 1000)
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "a.py").write_text("a = 1\n")
    before = state(repository)

    found = lineage.commit(repository, REF)

    assert sorted(found["left_out"]) == ["data [*].bin", "inner/"]
    names = git(repository, "ls-tree", "-r", "--name-only", found["commit"]).splitlines()
    assert sorted(names) == [".gitignore", "a.py", "b.py", "data 1.bin"]
    assert git(repository, "cat-file", "-s", f"{found['commit']}:a.py") == "2000"
    assert state(repository) == before


def test_nothing_but_a_large_file(tmp_path: Path, bare_home: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "MAX_UNTRACKED_BYTES", 1000)
    git(tmp_path, "init", "--quiet")
    (tmp_path / "data.bin").write_bytes(b"x" * 1001)
    found = lineage.commit(tmp_path, REF)
    assert found["left_out"] == ["data.bin"]
    assert git(tmp_path, "ls-tree", "-r", found["commit"]) == ""


def test_detached_head_and_linked_worktree(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "--quiet", "--detach", str(linked))
    (linked / "a.py").write_text("a = 2\n")
    found = lineage.commit(linked, REF)
    assert found["branch"] is None
    assert git(repository, "show", f"{REF}:a.py") == "a = 2"
    assert git(linked, "status", "--porcelain") == "M a.py"
    assert lineage.commit(repository, REF)["dirty"] is False


def test_hooks_neither_run_nor_mislead(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = repository / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    (repository / "a.py").write_text("a = 2\n")
    found = lineage.commit(repository, REF)
    monkeypatch.undo()
    assert git(repository, "rev-parse", REF) == found["commit"]


def test_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert lineage.commit(tmp_path, REF) == {
        "head": None,
        "commit": None,
        "dirty": None,
        "reason": "not a git repository",
    }


def test_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match=r"git must be on PATH .*, however it is not; install git"):
        lineage.commit(tmp_path, REF)


def test_git_that_cannot_write_says_so(repository: Path) -> None:
    (repository / "a.py").write_text("a = 2\n")
    # A file stands where the ref's folder must be made.
    (repository / ".git" / "refs" / "gristmill").write_text("")
    with pytest.raises(EnvironmentFault, match=r"git update-ref must work in .*, however: fatal"):
        lineage.commit(repository, REF)


def test_environment_is_json_without_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    found = lineage.environment()
    text = json.dumps(found, allow_nan=False)
    assert str(Path(sys.prefix)) not in text
    assert str(Path.home()) not in text
    assert found["python"] == sys.version.split()[0]
    assert found["packages"]["numpy"] == sys.modules["numpy"].__version__
    assert list(found["packages"]) == sorted(name.lower() for name in found["packages"])
    assert found["memory_gib"] > 0
    assert found["logical_cores"] == os.cpu_count()
    assert found["variables"]["OMP_NUM_THREADS"] == found["threads"]["OMP_NUM_THREADS"] == "2"
    assert "PYTHONHASHSEED" not in found["variables"]


def test_environment_does_not_load_torch() -> None:
    code = (
        "import sys; from gristmill import lineage; found = lineage.environment();"
        "assert 'torch' not in sys.modules; assert found['threads']['torch'] is None; assert found['gpus'] == []"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_environment_names_torch_threads() -> None:
    torch = pytest.importorskip("torch")
    found = lineage.environment()
    assert found["threads"]["torch"] == torch.get_num_threads()
    assert len(found["gpus"]) == (torch.cuda.device_count() if torch.cuda.is_available() else 0)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (builder)",
    ],
)
def test_driver_version_is_read_from_both_forms(line: str) -> None:
    match = re.search(lineage.DRIVER, line)
    assert match is not None
    assert match[1] == "550.54.14"
