"""The workspace as one Dagster code location; what `[tool.dg.project]` points at."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from pathlib import Path
from types import ModuleType

import dagster as dg
from dagster.components.core.component_tree import ComponentTree

from gristmill import declaration
from gristmill.errors import GristmillError, InputError
from gristmill.orchestrate import assets
from gristmill.orchestrate.tables import TableIOManager
from gristmill.plan import STAGES
from gristmill.spec import AssetSource
from gristmill.workspace import Workspace

# Threads of torch and XGBoost that spin while they wait make each other ten times slower on a busy
# machine; it must be said before either is loaded, and the steps' processes inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

_PRELOAD = [
    "pandas",
    "pyarrow.parquet",
    "sklearn.linear_model",
    "torch",
    "xgboost",
    "gristmill.orchestrate.assets",
]


@dg.definitions
def defs() -> dg.Definitions:
    """All pipelines and the user's own assets. A declaration that does not load leaves the others loaded."""
    warnings.filterwarnings("ignore", category=dg.BetaWarning)
    warnings.filterwarnings("ignore", category=dg.PreviewWarning)
    workspace = Workspace.find()
    put_first(workspace.root)
    package(workspace, "pipelines")
    users = user_assets(workspace)
    parts, problems = pipelines(workspace, users)
    for file, text in problems.items():
        print(f"gristmill: {file} does not load:\n{text}", file=sys.stderr)
    if problems and os.environ.get("DAGSTER_IS_DEFS_VALIDATION_CLI"):
        raise InputError("\n".join(problems.values()))
    return dg.Definitions.merge(*parts, users, _common(workspace))


def pipelines(workspace: Workspace, users: dg.Definitions) -> tuple[list[dg.Definitions], dict[Path, str]]:
    """Each component's definitions, and by file the errors of those that do not load.

    A pipeline whose source is an asset that nobody defines would keep the whole location from loading.
    """
    tree = ComponentTree.for_project(workspace.root)
    parts: dict[Path, dg.Definitions] = {}
    problems: dict[Path, str] = {}
    for file in sorted((workspace.root / "pipelines").rglob(declaration.FILE_NAME)):
        try:
            parts[file] = tree.build_defs_at_path(file.parent)
        except Exception as error:  # a user's declaration may be wrong in any way; the others must load
            problems[file] = _told(workspace, file, error)
    known = {key for found in (*parts.values(), users) for key in _keys(found)}
    for file in parts:
        if (text := _unknown_source(workspace, file, known)) is not None:
            problems[file] = text
    for file, text in problems.items():
        parts[file] = assets.broken(file.parent.name, workspace.shown(file), text)
    return list(parts.values()), {workspace.shown(file): text for file, text in problems.items()}


def _told(workspace: Workspace, file: Path, error: BaseException) -> str:
    """What a person should read: the strict reader's words where it refuses the file too, else the first error's."""
    if declaration.TYPE in file.read_text(errors="replace"):
        try:
            workspace.pipeline(file.parent.name)
        except GristmillError as ours:
            return str(ours)
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    return str(chain[-1]) or type(chain[-1]).__name__


def _keys(found: dg.Definitions) -> list[dg.AssetKey]:
    keys: list[dg.AssetKey] = []
    for asset in found.assets or []:
        if isinstance(asset, dg.AssetsDefinition):
            keys += asset.keys
        elif isinstance(asset, dg.AssetSpec | dg.SourceAsset):
            keys.append(asset.key)
    return keys


def _unknown_source(workspace: Workspace, file: Path, known: set[dg.AssetKey]) -> str | None:
    if file.parent.parent != workspace.root / "pipelines" or declaration.TYPE not in file.read_text():
        return None
    found = workspace.pipeline(file.parent.name)
    source = found.spec.source
    if not isinstance(source, AssetSource) or assets.source_key(source) in known:
        return None
    line = found.lines.get("source.asset", found.lines.get("source", 1))
    pipelines_too = {(name, stage.name) for name in workspace.pipeline_names() for stage in STAGES}
    listed = ", ".join(sorted("/".join(key.path) for key in known if tuple(key.path) not in pipelines_too))
    return f"{workspace.shown(file)}:{line}: source.asset: must be one of {listed or 'none'}, got {source.asset!r}"


def user_assets(workspace: Workspace) -> dg.Definitions:
    """The assets of the workspace's assets/ folder."""
    if not (workspace.root / "assets" / "__init__.py").is_file():
        return dg.Definitions()
    modules = [package(workspace, "assets")]
    for file in sorted((workspace.root / "assets").glob("*.py")):
        if file.stem != "__init__":
            modules.append(importlib.import_module(f"assets.{file.stem}"))
    return dg.Definitions(assets=dg.load_assets_from_modules(modules))


def put_first(root: Path) -> None:
    """Let `assets`, `checks` and `pipelines` be the workspace's own.

    It is done here and not when the module loads: Dagster puts the old search path back after that.
    """
    sys.path[:] = [str(root), *(entry for entry in sys.path if entry != str(root))]


def package(workspace: Workspace, name: str) -> ModuleType:
    """One of the workspace's packages; raises InputError when Python finds another of that name."""
    found = importlib.import_module(name)
    places = [Path(place).resolve() for place in getattr(found, "__path__", [])]
    if (workspace.root / name).resolve() not in places:
        shown = ", ".join(map(str, places)) or str(getattr(found, "__file__", None))
        raise InputError(
            f"package {name!r} must be {workspace.root / name}, however Python found {shown}; "
            f"put an __init__.py into {name}/ and uninstall the other"
        )
    return found


def _common(workspace: Workspace) -> dg.Definitions:
    executor = dg.multiprocess_executor.configured(
        {"max_concurrent": 2, "start_method": {"forkserver": {"preload_modules": _PRELOAD}}}
    )
    return dg.Definitions(resources={"table": TableIOManager(workspace)}, executor=executor)
