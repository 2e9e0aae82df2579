"""A pipeline's dvc.yaml, generated from its declaration, and what its dvc.lock pins. Needs no DVC."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from gristmill import fingerprint, plan, records
from gristmill.declaration import FILE_NAME, Declaration
from gristmill.errors import InputError
from gristmill.plan import Stage
from gristmill.spec import PipelineSpec
from gristmill.workspace import Workspace

_HEADER = """\
# Generated from defs.yaml by `gristmill check --fix`; `gristmill check` fails when it differs.
# A stage's output and its record are two outs: other code gives another record, and the stages
# behind run again only when the output itself is another.
"""
# Small files that lie in git: DVC shows them, its cache does not hold them.
_METRICS = {"evaluation": ("reports/metrics.json",)}
_PLOTS = {"network": ("reports/training.csv",)}


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
    """The digest of the snapshot that dvc.lock pins, or None where none is or the source was edited since."""
    stage = _locked(declaration, "snapshot")
    source = YAML(typ="safe", pure=True).load(declaration.file)["attributes"]["source"]
    if stage is None or stage.get("params", {}).get(FILE_NAME, {}).get("attributes.source") != source:
        return None
    return _out(stage, _output("snapshot"))


def is_locked(declaration: Declaration, stage: str, output_md5: str, record_md5: str) -> bool:
    """Whether dvc.lock names just these bytes for a stage's output and record."""
    locked = _locked(declaration, stage)
    if locked is None:
        return False
    found = (_out(locked, _output(stage)), _out(locked, _record(stage)))
    return found == (output_md5, record_md5)


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


def _stage(workspace: Workspace, declaration: Declaration, stage: Stage) -> list[str]:
    lines = [
        f"  {stage.name}:",
        f"    desc: {json.dumps(stage.description)}",
        f"    cmd: gristmill materialize {declaration.name}/{stage.name}",
    ]
    deps = [_output(upstream) for upstream in stage.reads]
    deps += [f"{_output(gate)}/{records.PASSED_FILE_NAME}" for gate in stage.gates]
    user_files = fingerprint.user_files(workspace.root, plan.user_code(declaration, stage))
    deps += [os.path.relpath(file, declaration.folder) for file in user_files]
    contract = declaration.spec.contract
    if stage.name == "validation" and (suite := getattr(contract, "suite", None)):
        deps.append(os.path.relpath(workspace.root / suite, declaration.folder))
    if deps:
        lines += ["    deps:", *(f"    - {dep}" for dep in deps)]
    params = [path for path in stage.sections if _is_declared(declaration.spec, path)]
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
