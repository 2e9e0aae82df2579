"""The report: one HTML file that says what was found, made and decided, from the records that exist."""

from __future__ import annotations

import base64
import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gristmill import files, fingerprint, records
from gristmill.declaration import Declaration
from gristmill.errors import InputError
from gristmill.plan import STAGES, Stage
from gristmill.records import Check, Record
from gristmill.report import columns
from gristmill.spec import BETTER_WHEN_HIGHER, PipelineSpec
from gristmill.workspace import Workspace

FILE_NAME = "report.html"

# The names stand again in the modules that write these files; those load torch, Ibis or matplotlib,
# and a report is written after every stage. A test holds them equal.
VALIDATION = "validation.json"
BASELINE = "baseline.json"
TRAINING = "training.csv"
METRICS = "metrics.json"
LINEAGE = "lineage.json"
SPEED = "speed.json"

_PARTS = {
    "train": "train",
    "validation": "validation",
    "test": "test",
    "gap": "in the gap",
    "no_target": "without target",
}
_PACKAGES = (
    "torch",
    "xgboost",
    "scikit-learn",
    "numpy",
    "pandas",
    "pyarrow",
    "duckdb",
    "ibis-framework",
    "pandera",
    "great-expectations",
    "dagster",
    "dvc",
)


def write(workspace: Workspace, declaration: Declaration) -> Path:
    """Write reports/report.html anew and return its path; equal records give equal bytes."""
    found = [*_standing(workspace, declaration)]
    stages = {made.stage.name: made for made in found}
    spec = declaration.spec
    metrics = stages["evaluation"].json(METRICS)
    page = _environment.get_template("report.html.j2").render(
        name=declaration.name,
        spec=spec,
        wanted=_wanted(spec),
        facts=stages["validation"].values | stages["snapshot"].values,
        verdict=_verdict(declaration, found, metrics),
        stages=found,
        missing=_missing(found),
        models=_models(spec, stages, metrics),
        charts=_charts(stages["evaluation"]),
        curve=_curve(stages["network"]),
        network=stages["network"].values,
        speed=stages["network"].json(SPEED, beside=True),
        columns=columns.view(stages["validation"].json(VALIDATION), stages["validation"].checks),
        split=_split(stages["split"].values),
        origin=_origin(spec, stages),
    )
    file = workspace.reports(declaration.name) / FILE_NAME
    files.write_bytes(file, page.encode())
    return file


# What there is


@dataclass(frozen=True)
class _Made:
    """A stage as the report sees it; `record` only where it tells of the inputs that are there now."""

    stage: Stage
    folder: Path
    record: Record | None = None
    why_not: str = ""
    """Why there is no record to speak of."""
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> Literal["passed", "warned", "failed", "missing"]:
        if self.record is None:
            return "missing"
        if not self.record.passed:
            return "failed"
        return "warned" if any(check.verdict == "warned" for check in self.record.checks) else "passed"

    @property
    def values(self) -> dict[str, Any]:
        return {} if self.record is None else self.record.values

    @property
    def checks(self) -> tuple[Check, ...]:
        return () if self.record is None else self.record.checks

    def bytes(self, name: str, *, beside: bool = False) -> bytes | None:
        """A file of the output (or beside the record); None where the stage or the file is not there."""
        if self.record is None:
            return None
        try:
            return (self.folder if beside else self.folder / records.OUTPUT).joinpath(name).read_bytes()
        except FileNotFoundError:
            return None

    def json(self, name: str, *, beside: bool = False) -> dict[str, Any]:
        content = self.bytes(name, beside=beside)
        found: dict[str, Any] = {} if content is None else json.loads(content)
        return found


def _standing(workspace: Workspace, declaration: Declaration) -> Iterable[_Made]:
    """Each stage in order. A record of other inputs or settings is earlier work and no part of this report.

    No file is hashed and no code compared, so that it stays cheap: `gristmill status` does both.
    """
    current: dict[str, Record] = {}
    for stage in STAGES:
        folder = workspace.stage_folder(declaration.name, stage.name)
        try:
            record = records.read(folder)
        except InputError as error:
            yield _Made(stage, folder, why_not=str(error))
            continue
        if record is None:
            yield _Made(stage, folder, why_not="not made yet")
        elif not _is_of_now(stage, record, current, declaration.spec):
            yield _Made(
                stage, folder, why_not="to be made again; what is there is of earlier data or settings"
            )
        else:
            if record.passed:
                current[stage.name] = record
            run = _Made(stage, folder, record).json(records.RUN_FILE_NAME, beside=True)
            yield _Made(stage, folder, record, run=run)


def _is_of_now(stage: Stage, record: Record, current: Mapping[str, Record], spec: PipelineSpec) -> bool:
    if any(upstream not in current for upstream in stage.upstream):
        return False
    inputs = {name: current[name].output_digest for name in stage.reads}
    inputs |= {name: current[name].output.get(records.PASSED_FILE_NAME, "none") for name in stage.gates}
    return record.inputs == inputs and record.declaration == fingerprint.section(spec, stage.sections)


# The parts of the page


@dataclass(frozen=True)
class _Verdict:
    state: Literal["accepted", "refused", "stopped", "open"]
    badge: str
    reason: str
    way_out: str = ""
    command: str = ""


def _verdict(declaration: Declaration, found: Sequence[_Made], metrics: Mapping[str, Any]) -> _Verdict:
    for made in found:
        check = _first_not_passed(made.record)
        if check is not None:
            badge = "not accepted" if made.stage.name == "evaluation" else f"stopped at {made.stage.name}"
            state: Literal["refused", "stopped"] = "refused" if badge == "not accepted" else "stopped"
            reason = f"{check.code} {check.name} {_said(check)}: {check.text.rstrip('.')}."
            return _Verdict(state, badge, reason, check.way_out.rstrip("."))
    missing = [made.stage.name for made in found if made.record is None]
    again = f"gristmill run {declaration.name}"
    if len(missing) == len(found):
        return _Verdict("open", "not finished", "Nothing is made yet.", command=again)
    if missing:
        done = f"{len(found) - len(missing)} of {len(found)} stages are made; {missing[0]} is next."
        return _Verdict("open", "not finished", done, command=again)
    return _Verdict("accepted", "accepted", _praise(declaration.spec, metrics))


def _first_not_passed(record: Record | None) -> Check | None:
    return next((check for check in record.checks if not check.passed), None) if record else None


def _said(check: Check) -> str:
    return "could not be verified" if check.verdict == "not verified" else check.verdict


def _praise(spec: PipelineSpec, metrics: Mapping[str, Any]) -> str:
    if not metrics:
        return "Every check passed."
    metric, champion, best = spec.task.metric, metrics["champion"], metrics["best_baseline"]
    scores = {model: of[metric] for model, of in metrics["test"].items()}
    shown = _scores(list(scores.values()))
    text = f"{champion} reaches {metric} {shown(scores[champion])} on {metrics['test_rows']:,} test rows"
    if champion == best:
        return f"{text}; it is a plain model, which the network did not beat by more than chance on the validation rows."
    if scores[champion] is None or scores[best] is None:
        return f"{text}; that of the best baseline, {best}, is {shown(scores[best])}."
    gain = scores[champion] - scores[best]
    if not BETTER_WHEN_HIGHER[metric]:
        gain = -gain
    than = f"{'better' if gain >= 0 else 'worse'} than the best baseline, {best}"
    bounds = metrics["network_minus_baseline"][metric]
    unsure = " (a difference within chance)" if bounds and bounds["low"] <= 0 <= bounds["high"] else ""
    return f"{text}, {shown(abs(gain))} {than}{unsure}."


def _wanted(spec: PipelineSpec) -> str:
    accept = spec.task.accept
    at_least = accept.at_least is not None
    text = f"at least {accept.at_least:g}" if at_least else f"at most {accept.at_most:g}"
    if accept.above_baseline is None:
        return text
    if accept.above_baseline == 0:
        return f"{text}, and no worse than the best baseline"
    return f"{text}, and {accept.above_baseline:g} or more better than the best baseline"


def _missing(found: Iterable[_Made]) -> dict[str, list[str]]:
    """The stages without a record to speak of, by the reason."""
    reasons: dict[str, list[str]] = {}
    for made in found:
        if made.record is None:
            reasons.setdefault(made.why_not, []).append(made.stage.name)
    return reasons


def _models(
    spec: PipelineSpec, stages: Mapping[str, _Made], metrics: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Every model's scores: on validation rows as soon as they are there, on test rows once opened."""
    metric = spec.task.metric
    if metrics:
        validation, test = metrics["validation"], {m: of[metric] for m, of in metrics["test"].items()}
    else:
        validation, test = dict(stages["baseline"].json(BASELINE).get("validation", {})), {}
        if stages["network"].record is not None:
            validation["network"] = stages["network"].values[f"{metric}_network"]
    if not validation:
        return None
    bounds = {model: of[metric] for model, of in metrics.get("intervals", {}).items()}
    shown = _scores([*validation.values(), *test.values()])
    scale = _Scale.over(test, bounds, spec.task.accept.at_least, spec.task.accept.at_most)
    rows = [
        {
            "name": model,
            "champion": model == metrics.get("champion"),
            "validation": shown(score),
            "test": shown(test[model]) if test else None,
            "interval": _interval(bounds.get(model), shown),
            "bar": scale.bar(test.get(model), bounds.get(model)) if scale else None,
        }
        for model, score in validation.items()
    ]
    return {
        "metric": metric,
        "higher": BETTER_WHEN_HIGHER[metric],
        "rows": rows,
        "limit": scale.place_of_limit if scale else None,
        "test_rows": metrics.get("test_rows"),
        "confidence": metrics.get("confidence"),
        "difference": _difference(metric, metrics) if metrics else None,
        "others": _other_metrics(metric, metrics) if metrics else None,
    }


@dataclass(frozen=True)
class _Scale:
    """Where a score stands between the lowest and the highest shown, in percent."""

    low: float
    high: float
    limit: float | None

    @classmethod
    def over(
        cls,
        scores: Mapping[str, float | None],
        bounds: Mapping[str, Mapping[str, float] | None],
        at_least: float | None,
        at_most: float | None,
    ) -> _Scale | None:
        # Without the dummy, beside which the others would look alike.
        values = [score for model, score in scores.items() if model != "dummy" and score is not None]
        for model, of in bounds.items():
            if model != "dummy" and of is not None:
                values += [of["low"], of["high"]]
        if not values:
            return None
        low, high = min(values), max(values)
        limit = at_least if at_least is not None else at_most
        width = high - low
        if limit is not None and low - width <= limit <= high + width:
            low, high = min(low, limit), max(high, limit)
        else:
            limit = None
        room = 0.06 * (high - low) or 0.5
        return cls(low - room, high + room, limit)

    def place(self, value: float) -> float:
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    @property
    def place_of_limit(self) -> float | None:
        return None if self.limit is None else self.place(self.limit)

    def bar(self, score: float | None, bounds: Mapping[str, float] | None) -> dict[str, Any] | None:
        if score is None:
            return None
        place = self.place(score)
        if not 0 <= place <= 100:
            return {"off": "left" if place < 0 else "right"}
        low = max(0.0, self.place(bounds["low"])) if bounds else place
        high = min(100.0, self.place(bounds["high"])) if bounds else place
        return {"off": None, "at": place, "from": low, "width": round(high - low, 2)}


def _difference(metric: str, metrics: Mapping[str, Any]) -> dict[str, str]:
    """The network against the best baseline on the same rows, in a number and in words."""
    best = metrics["best_baseline"]
    network, plain = metrics["test"]["network"][metric], metrics["test"][best][metric]
    bounds = metrics["network_minus_baseline"][metric]
    shown = _scores([network, plain], sign=True)
    difference = None if network is None or plain is None else network - plain
    if difference is None or bounds is None:
        words = "it cannot be told which is better"
    elif bounds["low"] <= 0 <= bounds["high"]:
        words = "the interval holds zero, so these test rows cannot tell the two apart"
    else:
        better = (bounds["low"] > 0) == BETTER_WHEN_HIGHER[metric]
        words = f"the network is {'better' if better else 'worse'}, by more than chance explains"
    return {
        "best": best,
        "value": shown(difference),
        "interval": _interval(bounds, shown),
        "words": words,
    }


def _other_metrics(metric: str, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The champion's other scores, beside those of the model it was up against."""
    champion, best = metrics["champion"], metrics["best_baseline"]
    rival = "network" if champion == best else best
    rows = []
    for name, score in metrics["test"][champion].items():
        if name == metric:
            continue
        shown = _scores([score, metrics["test"][rival][name]])
        rows.append(
            {
                "metric": name,
                "higher": BETTER_WHEN_HIGHER[name],
                "champion": shown(score),
                "interval": _interval(metrics["intervals"][champion][name], shown),
                "rival": shown(metrics["test"][rival][name]),
            }
        )
    return {"champion": champion, "rival": rival, "rows": rows}


def _interval(bounds: Mapping[str, float] | None, shown: Any) -> str | None:
    return None if bounds is None else f"{shown(bounds['low'])} to {shown(bounds['high'])}"


def _scores(values: Sequence[float | None], *, sign: bool = False) -> Any:
    """One way to write all scores of a table: as many decimals as make four digits of the largest."""
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    decimals = 4 if largest < 10 else 2 if largest < 100 else 1 if largest < 10_000 else 0

    def shown(value: float | None) -> str:
        if value is None:
            return "undefined"
        return f"{value:+,.{decimals}f}" if sign else f"{value:,.{decimals}f}"

    return shown


def _charts(evaluation: _Made) -> list[dict[str, str]]:
    # Which rows are confused first, how sure the model is last.
    names = (
        sorted(evaluation.record.output, key=lambda n: (n == "calibration.png", n))
        if evaluation.record
        else []
    )
    found = []
    for name in names:
        content = evaluation.bytes(name) if name.endswith(".png") else None
        if content is not None:
            title = name.removesuffix(".png").replace("_", " ")
            found.append({"title": title, "image": base64.b64encode(content).decode()})
    return found


# The training curve


_WIDTH, _HEIGHT = 640, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 26, 44


def _curve(network: _Made) -> dict[str, Any] | None:
    """Places of the training curve's lines and ticks in the SVG of the template."""
    content = network.bytes(TRAINING)
    if content is None:
        return None
    rows = [
        (int(row["epoch"]), float(row["train_loss"]), float(row["validation_loss"]))
        for row in csv.DictReader(content.decode().splitlines())
    ]
    rows = [row for row in rows if all(map(math.isfinite, row))]
    if not rows:
        return None
    losses = [loss for row in rows for loss in row[1:]]
    log = min(losses) > 0 and max(losses) / min(losses) > 20
    ticks = _log_ticks(min(losses), max(losses)) if log else _ticks(min(losses), max(losses))
    low, high = min(*ticks, *losses), max(*ticks, *losses)
    first, last = rows[0][0], rows[-1][0]

    def x(epoch: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (epoch - first) / ((last - first) or 1), 1)

    def y(loss: float) -> float:
        share = math.log(loss / low) / math.log(high / low) if log else (loss - low) / ((high - low) or 1)
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share, 1)

    best = next((row for row in rows if row[0] == network.values.get("best_epoch")), None)
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "top": _TOP,
        "bottom": _HEIGHT - _BOTTOM,
        "log": log,
        "train": " ".join(f"{x(epoch)},{y(loss)}" for epoch, loss, _ in rows),
        "validation": " ".join(f"{x(epoch)},{y(loss)}" for epoch, _, loss in rows),
        "across": [(x(tick), f"{tick:,}") for tick in _epoch_ticks(first, last)],
        "up": [(y(tick), f"{tick:,.6g}") for tick in ticks],
        "best": best
        and {
            "epoch": best[0],
            "loss": f"{best[2]:,.4g}",
            "x": x(best[0]),
            "y": y(best[2]),
            "anchor": "start" if x(best[0]) < _WIDTH / 2 else "end",
        },
        "points": [
            {
                "x": x(row[0]),
                "y": y(row[2]),
                "epoch": row[0],
                "train": f"{row[1]:,.4g}",
                "validation": f"{row[2]:,.4g}",
            }
            for row in rows[:: max(1, len(rows) // 200)]
        ],
        "epochs": len(rows),
    }


def _ticks(low: float, high: float) -> list[float]:
    """About four round numbers from at or below `low` to at or above `high`."""
    if high <= low:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough)
    return [step * place for place in range(math.floor(low / step), math.ceil(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    factors = (1, 2, 5) if high / low < 500 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    below = max((tick for tick in ticks if tick <= low), default=low)
    above = min((tick for tick in ticks if tick >= high), default=high)
    return [tick for tick in ticks if below <= tick <= above]


def _epoch_ticks(first: int, last: int) -> list[int]:
    step = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**9) if (last - first) / n <= 8)
    return [first, *(n for n in range(step * (first // step + 1), last + 1, step) if n - first >= step / 2)]


# Split, origin


def _split(values: Mapping[str, Any]) -> dict[str, Any] | None:
    if not values:
        return None
    counts = {name: int(values.get(name, 0)) for name in _PARTS}
    total = sum(counts.values()) or 1
    parts = [
        {
            "name": name,
            "label": _PARTS[name],
            "rows": rows,
            "share": rows / total,
            "since": str(values.get(f"{name}_from", "")).replace("T", " "),
        }
        for name, rows in counts.items()
        if rows or name in ("train", "validation", "test")
    ]
    return {"parts": parts, "by_time": "test_from" in values}


def _origin(spec: PipelineSpec, stages: Mapping[str, _Made]) -> dict[str, Any]:
    """What it was made of: by the model's lineage when there is one, else by the records."""
    lineage = stages["model"].json(LINEAGE, beside=True)
    environment = lineage.get("environment", {})
    packages: dict[str, str] = {}
    for made in stages.values():
        packages |= made.record.packages if made.record else {}
    python = environment.get("python", packages.get("python"))
    packages |= environment.get("packages", {})
    declared = {name: getattr(spec, name).seed for name in ("split", "baseline", "training", "evaluation")}
    snapshot = stages["snapshot"].record
    return {
        "snapshot": snapshot.output_digest if snapshot else None,
        "code": lineage.get("code", {}),
        "run": lineage.get("run"),
        "python": python,
        "packages": [(name, packages[name]) for name in _PACKAGES if name in packages],
        "environment": environment,
        "seeds": lineage.get("seeds", declared),
        "seconds": sum(made.run.get("seconds", 0.0) for made in stages.values()),
    }


# How things are written


def _number(value: Any) -> str:
    """Any value of a record for a person: four digits, thousands apart, a dash for none."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (value == int(value) if math.isfinite(value) else False):
        return f"{int(value):,}" if abs(value) < 1e15 else f"{float(value):.4g}"
    if not math.isfinite(value) or not 1e-4 <= abs(value) < 1e15:
        return f"{value:.4g}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _share(value: float) -> str:
    if value == 0:
        return "0%"
    return "< 0.1%" if value < 0.001 else f"{value:.1%}"


def _seconds(value: float) -> str:
    if value < 100:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes // 60:,} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {seconds} s"


def _moment(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S %z").strip()


def _cut(value: Any, length: int = 200) -> str:
    text = _number(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def _keys(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys of all cases, in order of appearance."""
    return list(dict.fromkeys(key for case in cases for key in case))


# Escapes everything that is put in; nothing anywhere is marked as safe.
_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.globals |= {"width": columns.WIDTH, "height": columns.HEIGHT}
_environment.filters |= {
    "number": _number,
    "share": _share,
    "seconds": _seconds,
    "moment": _moment,
    "cut": _cut,
    "keys": _keys,
}
