"""Run the benchmarks in a copy of this workspace and print one table."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
LOAD = "from gristmill.orchestrate import definitions; definitions.defs()"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        copy(workspace)
        rows = [*commands(workspace), *chain(workspace)]
    table = Table(title=f"gristmill on {os.cpu_count()} cores")
    for column in ("what", "figure", "beside", "ratio", "wanted"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)


def copy(workspace: Path) -> None:
    """The workspace's own files and the flights' joined table; nothing that was made of it."""
    for name in ("pipelines", "assets", "checks", ".dvc"):
        ignored = shutil.ignore_patterns("data", "reports", "dvc.lock", "cache", "tmp", "__pycache__")
        shutil.copytree(ROOT / name, workspace / name, ignore=ignored)
    for name in ("dvc.yaml", "dagster.yaml", "pyproject.toml", ".env"):
        shutil.copy2(ROOT / name, workspace / name)
    subprocess.run(["git", "init", "--quiet"], cwd=workspace, check=True)
    # The table is the source's asset; making it is not the chain's work.
    code = (
        "import sys; sys.path.insert(0, '.'); from assets.flights import departures; import pyarrow.parquet as pq, os;"
        "os.makedirs('.gristmill/assets/raw'); pq.write_table(departures(), '.gristmill/assets/raw/flights.parquet')"
    )
    run(workspace, "python", "-c", code)


def run(workspace: Path, *command: str) -> tuple[float, float, str]:
    """Seconds, peak memory in GB of the process and its children, and standard output."""
    program = [str(BIN / command[0]), *command[1:]]
    environment = os.environ | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "OMP_WAIT_POLICY": "passive",
    }
    began = time.perf_counter()
    timed = subprocess.run(
        [sys.executable, "-c", _CHILD, *program],
        cwd=workspace,
        env=environment,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - began
    if timed.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{timed.stderr[-3000:]}")
    sys.stderr.write(timed.stderr if command[0] == "python" and command[-1] == "flights" else "")
    out, _, peak = timed.stdout.rpartition("\n@")
    return seconds, int(peak) / 1e6, out


_CHILD = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(f"\\n@{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}", end="")
sys.exit(code)
"""


def commands(workspace: Path) -> list[tuple[str, ...]]:
    """What a person waits for at the prompt, the median of five, beside a Python that does nothing."""

    def median(*command: str) -> float:
        return statistics.median(run(workspace, *command)[0] for _ in range(5))

    nothing = median("python", "-c", "pass")
    rows = []
    for what, command, wanted in (
        ("gristmill --help", ("gristmill", "--help"), "0.5 s"),
        ("gristmill check", ("gristmill", "check"), "0.5 s"),
        ("load the code location", ("python", "-W", "ignore", "-c", LOAD), "1.5 s"),
    ):
        seconds = median(*command)
        rows.append(
            (
                what,
                f"{seconds:.2f} s",
                f"{nothing:.2f} s, python -c pass",
                f"{seconds / nothing:.1f}",
                f"<= {wanted}",
            )
        )
    return rows


def chain(workspace: Path) -> list[tuple[str, ...]]:
    """`flights` from the joined table to the model, beside the same functions called in a script."""
    bare_seconds, bare_peak, _ = run(
        workspace, "python", str(ROOT / "benchmarks" / "bare.py"), str(workspace), "flights"
    )
    seconds, peak, out = run(workspace, "gristmill", "run", "flights", "--json")
    again, _, _ = run(workspace, "gristmill", "run", "flights")
    champion = json.loads(out)["evaluation"]["champion"]
    return [
        (
            f"gristmill run flights ({champion} wins)",
            f"{seconds:.1f} s",
            f"{bare_seconds:.1f} s, bare functions",
            f"{seconds / bare_seconds:.3f}",
            "<= 180 s, 1.10",
        ),
        ("  peak memory", f"{peak:.2f} GB", f"{bare_peak:.2f} GB", f"{peak / bare_peak:.2f}", "<= 4 GB"),
        ("  again, nothing to do", f"{again:.2f} s", "", "", "<= 2 s"),
    ]


if __name__ == "__main__":
    main()
