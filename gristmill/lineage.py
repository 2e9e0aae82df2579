"""What a model was made of that varies from run to run: the machine, the packages, the commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gristmill.errors import EnvironmentFault

# Untracked files above this are data that somebody forgot to ignore, not code.
MAX_UNTRACKED_BYTES = 20 << 20
DRIVER = r"Kernel Module.*?\s(\d+\.[\d.]+)\s"

# Set, these move a result's last digits, its speed or the device it was made on.
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
)
# Set by git for a hook; here they would point at the hook's repository or index.
_OF_A_HOOK = {
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
}
_GIT_ENVIRONMENT = {
    "LC_ALL": "C",
    # Otherwise `git status` writes the index anew.
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_AUTHOR_NAME": "gristmill",
    "GIT_AUTHOR_EMAIL": "gristmill@localhost",
    "GIT_COMMITTER_NAME": "gristmill",
    "GIT_COMMITTER_EMAIL": "gristmill@localhost",
}


def environment() -> dict[str, Any]:
    """The facts of this process and its machine; those of torch only where torch is loaded already."""
    torch = sys.modules.get("torch")
    has_gpu = torch is not None and torch.cuda.is_available()
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "os": platform.platform(),
        "libc": " ".join(platform.libc_ver()).strip(),
        "machine": platform.machine(),
        "cpu": _first(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo")),
        "logical_cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "packages": _packages(),
        "threads": {
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
            "torch": torch.get_num_threads() if torch else None,
        },
        "gpus": _gpus(torch) if has_gpu else [],
        "cuda": torch.version.cuda if torch else None,
        "cudnn": torch.backends.cudnn.version() if has_gpu and torch else None,
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def _gpus(torch: Any) -> list[dict[str, Any]]:
    # torch knows the driver's CUDA level only; the driver's own version stands in its /proc file.
    driver = _first(DRIVER, Path("/proc/driver/nvidia/version"))
    properties = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    return [
        {"name": gpu.name, "memory_gib": round(gpu.total_memory / 2**30, 1), "driver": driver}
        for gpu in properties
    ]


def _packages() -> dict[str, str]:
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        # A folder left over from a broken installation has no name; of two copies the first is imported.
        if "Name" in distribution.metadata:
            versions.setdefault(distribution.metadata["Name"].lower(), distribution.version)
    return dict(sorted(versions.items()))


def _first(pattern: str, file: Path) -> str | None:
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return None
    match = re.search(pattern, text, re.MULTILINE)
    return match[1].strip() if match else None


# The commit


def commit(root: Path, ref: str) -> dict[str, Any]:
    """The commit that holds the code as it is now, also when nobody has committed it.

    A changed working tree becomes a commit object on top of HEAD, kept from git's cleaning by `ref`
    (refs/gristmill/...); HEAD, the index and the files stay untouched. Ignored files and the untracked
    ones above MAX_UNTRACKED_BYTES are not in it; the latter are named in `left_out`. Raises
    EnvironmentFault where git is missing or cannot write its objects.
    """
    assert ref.startswith("refs/gristmill/"), ref
    top = _run(root, "rev-parse", "--show-toplevel")
    if top.returncode:
        complaint = top.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
        absent = complaint.startswith("not a git repository")
        reason = "not a git repository" if absent else complaint.partition("\n")[0]
        return {"head": None, "commit": None, "dirty": None, "reason": reason}
    # The whole repository, of which the workspace may be a folder.
    root = Path(os.fsdecode(top.stdout.removesuffix(b"\n")))
    head = _run(root, "rev-parse", "--verify", "--quiet", "HEAD").stdout.decode().strip() or None
    branch = _run(root, "symbolic-ref", "--quiet", "--short", "HEAD").stdout.decode().strip() or None
    status = _git(root, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
    entries = status.split(b"\0")[:-1]
    left_out = [entry[3:] for entry in entries if entry.startswith(b"?? ") and _stays_out(root, entry[3:])]
    return {
        "head": head,
        "commit": _commit_of_worktree(root, ref, head, left_out) if entries else head,
        "dirty": bool(entries),
        "branch": branch,
        "left_out": [name.decode(errors="replace") for name in left_out],
    }


def _stays_out(root: Path, name: bytes) -> bool:
    # A repository inside this one, shown with a slash: git would keep its commit's name, not its files.
    if name.endswith(b"/"):
        return True
    try:
        return (root / os.fsdecode(name)).lstat().st_size > MAX_UNTRACKED_BYTES
    except FileNotFoundError:
        return False


def _commit_of_worktree(root: Path, ref: str, head: str | None, left_out: list[bytes]) -> str:
    index = root / os.fsdecode(_git(root, "rev-parse", "--git-path", "index").removesuffix(b"\n"))
    with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
        copy = Path(folder) / "index"
        if index.exists():
            # With its time: git compares a file's time to the index's to tell whether to read it again.
            shutil.copy2(index, copy)
        paths = [b":/", *(b":(top,exclude,literal)" + name.removesuffix(b"/") for name in left_out)]
        stage = ("add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul")
        _git(root, *stage, index=copy, stdin=b"\0".join(paths))
        tree = _git(root, "write-tree", index=copy).decode().strip()
    parent = ("-p", head) if head else ()
    made = _git(root, "commit-tree", *parent, "-m", f"Working tree of {ref}", tree).decode().strip()
    _git(root, "update-ref", ref, made)
    return made


def _git(root: Path, *arguments: str, index: Path | None = None, stdin: bytes = b"") -> bytes:
    done = _run(root, *arguments, index=index, stdin=stdin)
    if done.returncode:
        complaint = " ".join(done.stderr.decode(errors="replace").split())
        raise EnvironmentFault(f"git {arguments[0]} must work in {root}, however: {complaint}")
    return done.stdout


def _run(
    root: Path, *arguments: str, index: Path | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    chosen = _GIT_ENVIRONMENT | ({"GIT_INDEX_FILE": str(index)} if index else {})
    # The user's hooks are for the user's commits; a split index would leave a part in the repository.
    settings = ("-c", "core.hooksPath=/dev/null", "-c", "core.splitIndex=false")
    try:
        return subprocess.run(
            ["git", "-C", str(root), *settings, *arguments],
            input=stdin,
            capture_output=True,
            env=inherited | chosen,
            check=False,
        )
    except FileNotFoundError as error:
        raise EnvironmentFault(
            "git must be on PATH to note the commit a model was made from, however it is not; install git"
        ) from error
