"""What `gristmill` shows on a terminal: progress on standard error, results on standard output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from gristmill.declaration import Declaration
from gristmill.plan import Outcome, Stage, Standing
from gristmill.spec import PipelineSpec
from gristmill.workspace import Workspace

_COLORS = {"current": "green", "failed": "red", "stale": "yellow", "missing": "yellow", "waits": "dim"}
_VERDICT_COLORS = {"passed": "green", "warned": "yellow", "failed": "red", "not verified": "red"}


MODEL_ORDER = ("dummy", "linear", "xgboost", "network")


class Screen:
    """One command's output. Without a terminal, progress is left out and finished stages are plain lines."""

    def __init__(self, *, quiet: bool) -> None:
        self._out = Console(highlight=False)
        self._err = Console(stderr=True, highlight=False, quiet=quiet)
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show progress while the work goes on."""
        if not self._err.is_terminal or self._err.quiet:
            yield
            return
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(20),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._err, transient=True) as bar:
            self._bar = bar
            self._task = bar.add_task("starting", total=None, count="")
            try:
                yield
            finally:
                self._bar = None

    def progress(self, text: str, done: int, total: int) -> None:
        if self._bar is not None and self._task is not None:
            count = f"{done}/{total}" if total else ""
            self._bar.update(
                self._task, description=text[:48], completed=done, total=total or None, count=count
            )

    def finished(self, stage: Stage, outcome: Outcome) -> None:
        """One line for a stage, and one for each check that did not simply pass."""
        record = outcome.record
        how = "kept" if outcome.reused else f"{outcome.seconds:.1f} s"
        facts = _facts(record.values)
        mark = "[green]ok[/]" if record.passed else "[red]no[/]"
        self._err.print(
            f"{mark} {stage.name:<11}[dim]{how:>8}[/]  {facts}", overflow="ellipsis", no_wrap=True
        )
        for check in record.checks:
            if check.verdict != "passed":
                color = _VERDICT_COLORS[check.verdict]
                way_out = f"; {check.way_out}" if check.verdict == "warned" and check.way_out else ""
                told = f"{check.text}{way_out}".replace("[", r"\[")
                self._err.print(f"   [{color}]{check.code} {check.name} {check.verdict}[/]: {told}")

    def skipped(self, standings: list[Standing]) -> None:
        """Why nothing is done."""
        current = [standing for standing in standings if standing.state == "current"]
        if len(current) == len(standings):
            self._err.print(
                f"[green]nothing to do[/]: {len(current)} stages are current, nothing they depend on changed"
            )

    def standings(self, name: str, standings: list[Standing], why: bool) -> None:
        self._out.print(f"[bold]{name}[/]")
        for standing in standings:
            color = _COLORS[standing.state]
            reason = f"  {standing.why}" if why or standing.state not in ("current", "waits") else ""
            self._out.print(f"  {standing.stage:<11}[{color}]{standing.state:<8}[/]{reason}")

    def result(self, workspace: Workspace, declaration: Declaration, facts: dict[str, Any]) -> None:
        """The table at the end of a run: every model's score, the verdict, and where things lie."""
        metric = facts["metric"]
        table = Table(
            title=f"{declaration.name}: {metric} on {facts['test_rows']:,} test rows", title_justify="left"
        )
        table.add_column("model")
        table.add_column("validation", justify="right")
        table.add_column("test", justify="right")
        table.add_column(f"{facts['confidence']:.0%} interval", justify="right")
        for model in MODEL_ORDER:
            scores = facts["test"][model]
            bounds = facts["intervals"][model][metric]
            interval = "undefined" if bounds is None else f"{bounds['low']:.4f} to {bounds['high']:.4f}"
            champion = model == facts["champion"]
            label = f"[bold]{model}[/] (champion)" if champion else model
            table.add_row(label, _number(facts["validation"][model]), _number(scores[metric]), interval)
        self._out.print(table)
        verdict = "[green]accepted[/]" if facts["accepted"] else "[red]not accepted[/]"
        self._out.print(f"gate     {verdict} (wanted {_wanted(declaration.spec)})")
        self._out.print(f"report   {workspace.shown(workspace.reports(declaration.name) / 'report.html')}")
        self._out.print(
            f"model    {workspace.shown(workspace.stage_folder(declaration.name, 'model') / 'output')}"
        )
        self._out.print("Open the UI with `gristmill ui`, and go to http://127.0.0.1:3000.")


def _wanted(spec: PipelineSpec) -> str:
    accept = spec.task.accept
    limit = f">= {accept.at_least:g}" if accept.at_least is not None else f"<= {accept.at_most:g}"
    if accept.above_baseline is None:
        return limit
    return f"{limit}, and {accept.above_baseline:g} above the best baseline"


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def _facts(values: dict[str, Any]) -> str:
    shown = []
    for name, value in values.items():
        if value is None or value == 0:
            continue
        text = (
            f"{value:,}"
            if isinstance(value, int)
            else f"{value:.4g}"
            if isinstance(value, float)
            else str(value)
        )
        shown.append(f"{name} {text}")
    return ", ".join(shown)
