"""`gristmill check`: every declaration, and everything that has to agree with one."""

from __future__ import annotations

import json
from pathlib import Path
from zoneinfo import ZoneInfo

from gristmill import dvc_files, files, fingerprint
from gristmill.declaration import SCHEMA_FILE, Declaration, json_schema
from gristmill.errors import DeclarationError, InputError, Problem
from gristmill.spec import AssetSource, PathSource, SuiteContract
from gristmill.workspace import Workspace


def check(workspace: Workspace, *, fix: bool) -> tuple[list[Problem], list[Path]]:
    """All problems of a workspace, and the files that `fix` has written. Reads no data and loads no user code."""
    problems: list[Problem] = []
    written: list[Path] = []
    schema = json.dumps(json_schema(), indent=2) + "\n"
    _compare(workspace, workspace.root / SCHEMA_FILE, schema, fix, problems, written)
    for name in ("pipelines", "assets", "checks"):
        if not (workspace.root / name / "__init__.py").is_file():
            text = f"{name}/ must have an __init__.py, or another package of that name is taken for it"
            problems.append(Problem(Path(name), 1, "", text))
    for name in workspace.pipeline_names():
        try:
            declaration = workspace.pipeline(name)
        except DeclarationError as error:
            problems += error.problems
            continue
        found = _references(workspace, declaration)
        problems += found
        if not found:
            wanted = dvc_files.text(workspace, declaration)
            _compare(workspace, declaration.folder / "dvc.yaml", wanted, fix, problems, written)
            lock = dvc_files.without_removed_keys(workspace, declaration) if fix else None
            if lock is not None:
                files.write_bytes(declaration.folder / "dvc.lock", lock.encode())
                written.append(workspace.shown(declaration.folder / "dvc.lock"))
    return problems, written


def _compare(
    workspace: Workspace, file: Path, wanted: str, fix: bool, problems: list[Problem], written: list[Path]
) -> None:
    if file.is_file() and file.read_text() == wanted:
        return
    shown = workspace.shown(file)
    if fix:
        files.write_bytes(file, wanted.encode())
        written.append(shown)
        return
    difference = dvc_files.shown_difference(file, wanted)
    problems.append(Problem(shown, 1, "", f"{difference}; `gristmill check --fix` writes it"))


def _references(workspace: Workspace, declaration: Declaration) -> list[Problem]:
    """What a declaration names must be there: modules, suites, files, time zones, a source asset's folder."""
    spec = declaration.spec
    shown = workspace.shown(declaration.file)
    found: list[tuple[str, str]] = []
    if isinstance(spec.contract, str):
        try:
            fingerprint.user_files(workspace.root, [spec.contract])
        except InputError as error:
            found.append(("contract", str(error)))
        except SyntaxError as error:
            found.append(("contract", f"{error.filename}:{error.lineno}: not Python: {error.msg}"))
        else:
            _, _, name = spec.contract.partition(":")
            module = workspace.root.joinpath(*spec.contract.partition(":")[0].split(".")).with_suffix(".py")
            if module.is_file() and name not in module.read_text():
                found.append(
                    ("contract", f"{workspace.shown(module)} must define {name!r}, however it does not")
                )
    elif isinstance(spec.contract, SuiteContract) and not (workspace.root / spec.contract.suite).is_file():
        found.append(("contract.suite", f"{spec.contract.suite} must be there, however it is not"))
    if isinstance(spec.source, AssetSource) and not (workspace.root / "assets" / "__init__.py").is_file():
        found.append(
            (
                "source.asset",
                f"{spec.source.asset} must be an asset of assets/, however there is no such package",
            )
        )
    if isinstance(spec.source, PathSource):
        path = spec.source.path
        if not any(sign in path for sign in "*?[") and not (workspace.root / path).exists():
            found.append(
                ("source.path", f"{path} must be there, however nothing is (looked in {workspace.root})")
            )
    if spec.retrain is not None:
        try:
            ZoneInfo(spec.retrain.timezone)
        except (KeyError, ValueError, OSError):
            found.append(
                (
                    "retrain.timezone",
                    f"must be a time zone such as Europe/Berlin, got {spec.retrain.timezone!r}",
                )
            )
    lines = declaration.lines
    return [Problem(shown, lines.get(path, 1), path, text) for path, text in found]
