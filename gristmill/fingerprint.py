"""What a stage's result depends on besides its inputs: its code, its packages and its part of the declaration."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gristmill import files
from gristmill.errors import InputError
from gristmill.spec import PipelineSpec

_PACKAGE = Path(__file__).parent


def code(entry: str, root: Path, user_code: Iterable[str] = ()) -> dict[str, str]:
    """Digests of the source files a stage runs: its module, what that imports, and the user's own.

    `entry` is a module of gristmill, `user_code` are `module:name` entries of the workspace. Only
    modules of gristmill and of the workspace count; packages are named by their versions.
    """
    seen: dict[str, Path] = {}
    pending = [entry, *(name.partition(":")[0] for name in user_code)]
    for name in pending[1:]:
        if _find(name, root) is None:
            raise InputError(f"module {name!r} must lie in the workspace, however {root} has no such file")
    while pending:
        name = pending.pop()
        # gristmill/__init__.py only names where public things live; it is no part of any stage's work.
        file = None if name in ("", "gristmill") else _find(name, root)
        if file is None or name in seen:
            continue
        seen[name] = file
        # Importing a module runs the packages it lies in.
        pending.append(name.rpartition(".")[0])
        pending.extend(_imports(name, file, file.stat().st_mtime_ns))
    return {_label(file, root): files.file_digest(file) for _, file in sorted(seen.items())}


def user_files(root: Path, user_code: Iterable[str]) -> list[Path]:
    """The workspace's files that the user's code consists of, for DVC's dependencies."""
    labels = code("gristmill", root, user_code)
    return sorted(root / label for label in labels if not label.startswith("gristmill:"))


def packages(names: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of the named packages."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"python": python} | {name: _version(name) for name in names}


def section(spec: PipelineSpec, paths: Iterable[str]) -> dict[str, Any]:
    """The resolved values at dotted paths of the declaration, defaults filled in."""
    whole = spec.model_dump(mode="json")
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = whole
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        found[path] = value
    return found


@functools.lru_cache
def _version(name: str) -> str:
    return importlib.metadata.version(name)


def _find(name: str, root: Path) -> Path | None:
    home = _PACKAGE.parent if name.split(".")[0] == "gristmill" else root
    base = home.joinpath(*name.split("."))
    return next((file for file in (base / "__init__.py", base.with_suffix(".py")) if file.is_file()), None)


def _label(file: Path, root: Path) -> str:
    if file.is_relative_to(_PACKAGE):
        return f"gristmill:{file.relative_to(_PACKAGE).as_posix()}"
    return file.relative_to(root).as_posix()


@functools.lru_cache(maxsize=1024)
def _imports(name: str, file: Path, _modified: int) -> tuple[str, ...]:
    try:
        tree = ast.parse(file.read_bytes(), file)
    except SyntaxError as error:
        raise InputError(f"{file}:{error.lineno or 1}: must be Python, however: {error.msg}") from error
    except ValueError as error:
        raise InputError(f"{file}: must be Python, however: {error}") from error
    package = (name if file.name == "__init__.py" else name.rpartition(".")[0]).split(".")
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names.append(module)
            names += [f"{module}.{alias.name}" for alias in node.names]
    return tuple(names)
