"""`gristmill init`: an empty workspace with its settings, its git repository and its DVC."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from gristmill import files
from gristmill.declaration import SCHEMA_FILE, json_schema
from gristmill.errors import EnvironmentFault, InputError

DAGSTER_YAML = """\
# The Dagster instance of this workspace; it lives in .dagster/ beside this file.
telemetry: {enabled: false}
# The webserver's pop-ups cover the page until they are clicked away.
nux: {enabled: false}
storage: {sqlite: {base_dir: .dagster}}
local_artifact_storage:
  module: dagster._core.storage.root
  class: LocalArtifactStorage
  config: {base_dir: .dagster}
compute_logs:
  module: dagster._core.storage.local_compute_log_manager
  class: LocalComputeLogManager
  config: {base_dir: .dagster/logs}
concurrency:
  pools: {default_limit: 1}
  runs: {max_concurrent_runs: 2}
# A run whose process is gone is failed, and its pool slot is free again.
run_monitoring:
  enabled: true
  poll_interval_seconds: 10
  free_slots_after_run_end_seconds: 10
  start_timeout_seconds: 60
  cancel_timeout_seconds: 60
"""

# Read by Dagster and dg in this folder before anything else; no secret belongs here.
ENVIRONMENT = """\
DAGSTER_DISABLE_TELEMETRY=1
DO_NOT_TRACK=1
"""

DVC_YAML = """\
# DVC's entry at the root: stages live beside each pipeline, in pipelines/<name>/dvc.yaml.
stages: {}
"""

DVC_CONFIG = """\
[core]
    analytics = false
    autostage = false
[cache]
    type = "reflink,copy"
"""

GITIGNORE = """\
/.venv/
/.dagster/
/.dg/
/.tmp_dagster_home_*/
/.gristmill/
/pipelines/*/data/
/dvc_plots/
__pycache__/
"""

PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["gristmill"]

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "pipelines"
defs_module = "pipelines"
code_location_target_module = "gristmill.orchestrate.definitions"
code_location_name = "{name}"
"""


def write(folder: Path) -> list[Path]:
    """Write what is not there yet and return it; nothing that is there is touched.

    Raises InputError within another workspace: DVC and Dagster would each take another of the two.
    """
    for parent in folder.parents:
        if (parent / "pipelines").is_dir() and (parent / "dvc.yaml").is_file():
            raise InputError(
                f"{folder} must lie outside of any workspace, however {parent} is one; run it elsewhere"
            )
    name = "".join(sign if sign.isalnum() else "-" for sign in folder.name.lower()).strip("-") or "workspace"
    contents = {
        Path("pyproject.toml"): PYPROJECT.format(name=name),
        Path("dagster.yaml"): DAGSTER_YAML,
        Path(".env"): ENVIRONMENT,
        Path("dvc.yaml"): DVC_YAML,
        Path(".gitignore"): GITIGNORE,
        # Packages, so that no other package of the name is taken for them; not empty, which DVC warns of.
        Path("pipelines/__init__.py"): '"""One folder a pipeline, each with its defs.yaml."""\n',
        Path("assets/__init__.py"): '"""Your own Dagster assets, upstream of the pipelines\' snapshots."""\n',
        Path("checks/__init__.py"): '"""Your own data contracts."""\n',
        SCHEMA_FILE: json.dumps(json_schema(), indent=2) + "\n",
    }
    written = []
    for path, content in contents.items():
        if not (folder / path).exists():
            files.write_bytes(folder / path, content.encode())
            written.append(path)
    if not _in_git(folder):
        _run(["git", "init", "--quiet"], folder)
        written.append(Path(".git"))
    if not (folder / ".dvc").exists():
        arguments = ["init", "--quiet"] if (folder / ".git").exists() else ["init", "--quiet", "--subdir"]
        _run([sys.executable, "-m", "dvc", *arguments], folder)
        (folder / ".dvc" / "config").write_text(DVC_CONFIG)
        written.append(Path(".dvc"))
    return written


def _in_git(folder: Path) -> bool:
    return any((parent / ".git").exists() for parent in (folder, *folder.parents))


def _run(command: list[str], folder: Path) -> None:
    try:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise EnvironmentFault(f"{command[0]} must be installed, however it is not found") from error
    if ran.returncode:
        raise EnvironmentFault(f"`{' '.join(command)}` failed: {ran.stderr.strip().splitlines()[-1]}")
