"""A pipeline's dvc.yaml, generated from its declaration, and what its dvc.lock pins. Needs no DVC."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from gristmill import files, fingerprint, plan, records
from gristmill.declaration import FILE_NAME, Declaration
from gristmill.errors import InputError
from gristmill.plan import Stage
from gristmill.spec import PipelineSpec, Source
from gristmill.workspace import Workspace

_HEADER = """\
# Generated from defs.yaml by `gristmill check --fix`; `gristmill check` fails when it differs.
# A stage's output and its record are two outs: other code gives another record, and the stages
# behind run again only when the output itself is another.
"""
# Small files that lie in git: DVC shows them, its cache does not hold them.
_METRICS = {"evaluation": ("reports/metrics.json",)}
_PLOTS = {"network": ("reports/training.csv",)}
_SOURCE: TypeAdapter[Any] = TypeAdapter(Source)


def text(workspace: Workspace, declaration: Declaration) -> str:
    """The whole dvc.yaml of a pipeline."""
    lines = [_HEADER + "stages:"]
    for stage in plan.STAGES:
        lines += _stage(workspace, declaration, stage)
    lines += [
        "plots:",
        "- Loss by epoch:",
        "    x: epoch",
        "    y:",
        "      reports/training.csv: [train_loss, validation_loss]",
    ]
    return "\n".join(lines) + "\n"


def refuse_stale(workspace: Workspace, declaration: Declaration) -> None:
    """Raise InputError when dvc.yaml is not what the declaration asks for: DVC would miss a change."""
    file = declaration.folder / "dvc.yaml"
    if not file.is_file() or file.read_text() != text(workspace, declaration):
        raise InputError(
            f"{workspace.shown(file)} must follow from {FILE_NAME}, however it does not; run `gristmill check --fix`"
        )


def pinned(declaration: Declaration) -> str | None:
    """The digest of the snapshot that dvc.lock pins, or None where none is or the source was edited since.

    Sources are compared as they are meant: a default written out is no edit.
    """
    stage = _locked(declaration, "snapshot")
    if stage is None:
        return None
    try:
        source = _SOURCE.validate_python(stage["params"][FILE_NAME]["attributes.source"])
    except (KeyError, TypeError, ValidationError):
        return None
    if source.model_dump() != declaration.spec.source.model_dump():
        return None
    return _out(stage, _output("snapshot"))


def is_locked(workspace: Workspace, declaration: Declaration, stage: Stage) -> bool:
    """Whether dvc.lock says of a stage just what lies there now, so that `dvc status` is clean."""
    locked = _locked(declaration, stage.name)
    if locked is None or locked.get("cmd") != _command(declaration, stage):
        return False
    attributes = YAML(typ="safe", pure=True).load(declaration.file)["attributes"]
    params = {f"attributes.{path}": _at(attributes, path) for path in _params(declaration, stage)}
    if locked.get("params", {}).get(FILE_NAME, {}) != params:
        return False
    outs = [
        _output(stage.name),
        _record(stage.name),
        *_METRICS.get(stage.name, ()),
        *_PLOTS.get(stage.name, ()),
    ]
    for kind, paths in (("deps", _deps(workspace, declaration, stage)), ("outs", outs)):
        named = {entry["path"]: entry.get("md5") for entry in locked.get(kind, [])}
        if named != {path: _md5(declaration.folder / path) for path in paths}:
            return False
    return True


def without_removed_keys(workspace: Workspace, declaration: Declaration) -> str | None:
    """dvc.lock without the stages that depended on a key, or a file, which the declaration no longer has.

    DVC does not notice what is gone; a stage it knows nothing of, it makes. None where nothing is to go.
    """
    file = declaration.folder / "dvc.lock"
    gone = []
    for stage in plan.STAGES:
        locked = _locked(declaration, stage.name)
        if locked is None or stage.name == "snapshot":
            continue
        params = {f"attributes.{path}" for path in _params(declaration, stage)}
        deps = set(_deps(workspace, declaration, stage))
        known = set(locked.get("params", {}).get(FILE_NAME, {}))
        if known - params or {entry["path"] for entry in locked.get("deps", [])} - deps:
            gone.append(stage.name)
    if not gone:
        return None
    kept, dropping = [], False
    for line in file.read_text().splitlines(keepends=True):
        if line.startswith("  ") and not line.startswith("   ") and line.rstrip().endswith(":"):
            dropping = line.strip().rstrip(":") in gone
        if not dropping:
            kept.append(line)
    return "".join(kept)


def _at(attributes: Any, path: str) -> Any:
    for part in path.split("."):
        attributes = attributes[part]
    return attributes


def _md5(path: Path) -> str | None:
    if path.is_dir():
        return files.tree_md5(path)
    return files.file_md5(path) if path.is_file() else None


def _locked(declaration: Declaration, stage: str) -> dict[str, Any] | None:
    file = declaration.folder / "dvc.lock"
    try:
        body = YAML(typ="safe", pure=True).load(file)
        found: dict[str, Any] | None = body["stages"].get(stage)
    except FileNotFoundError:
        return None
    except (YAMLError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{file} must be DVC's lock file, however it cannot be read ({str(error).splitlines()[0]}); "
            "resolve its conflicts or restore it with `git checkout`"
        ) from error
    return found


def _out(stage: dict[str, Any], path: str) -> str | None:
    return next((out.get("md5") for out in stage.get("outs", []) if out["path"] == path), None)


def _output(stage: str) -> str:
    return f"data/{stage}/{records.OUTPUT}"


def _record(stage: str) -> str:
    return f"data/{stage}/{records.FILE_NAME}"


def _command(declaration: Declaration, stage: Stage) -> str:
    return f"gristmill materialize {declaration.name}/{stage.name}"


def _deps(workspace: Workspace, declaration: Declaration, stage: Stage) -> list[str]:
    """What DVC watches for a stage, as seen from the pipeline's folder."""
    deps = [_output(upstream) for upstream in stage.reads]
    deps += [f"{_output(gate)}/{records.PASSED_FILE_NAME}" for gate in stage.gates]
    users = fingerprint.user_files(workspace.root, plan.user_code(declaration, stage))
    users += [workspace.root / name for name in plan.user_files(workspace, declaration, stage)]
    return deps + [os.path.relpath(file, declaration.folder) for file in users]


def _params(declaration: Declaration, stage: Stage) -> list[str]:
    return [path for path in stage.sections if _is_declared(declaration.spec, path)]


def _stage(workspace: Workspace, declaration: Declaration, stage: Stage) -> list[str]:
    lines = [
        f"  {stage.name}:",
        f"    desc: {json.dumps(stage.description)}",
        f"    cmd: {_command(declaration, stage)}",
    ]
    if deps := _deps(workspace, declaration, stage):
        lines += ["    deps:", *(f"    - {dep}" for dep in deps)]
    params = _params(declaration, stage)
    lines += ["    params:", f"    - {FILE_NAME}:", *(f"      - attributes.{path}" for path in params)]
    lines += ["    outs:", f"    - {_output(stage.name)}", f"    - {_record(stage.name)}"]
    for kind, listed in (("metrics", _METRICS), ("plots", _PLOTS)):
        if stage.name in listed:
            lines.append(f"    {kind}:")
            for path in listed[stage.name]:
                lines += [f"    - {path}:", "        cache: false"]
    return lines


def _is_declared(spec: PipelineSpec, path: str) -> bool:
    """Whether the file gives the key: DVC cannot track one that is left out."""
    node: Any = spec
    for part in path.split("."):
        if not isinstance(node, BaseModel) or part not in node.model_fields_set:
            return False
        node = getattr(node, part)
    return True


def shown_difference(file: Path, wanted: str) -> str:
    """One line for `gristmill check`: whether the file is absent or differs, and where first."""
    if not file.is_file():
        return "is not there"
    pairs = zip(file.read_text().splitlines(), wanted.splitlines(), strict=False)
    for number, (present, line) in enumerate(pairs, start=1):
        if present != line:
            return f"differs from line {number} on"
    return "differs at its end"
