"""The test part, opened once: scores with intervals, curves, and the verdict of the gate."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gristmill import charts, files, metrics, models, parts
from gristmill.baseline import FILE_NAME as BASELINE
from gristmill.baseline import MODELS
from gristmill.encode import Target
from gristmill.records import Check, judge
from gristmill.spec import METRICS
from gristmill.tables import ROW_ID
from gristmill.work import Made, Work

FILE_NAME = "metrics.json"
PREDICTIONS_FILE_NAME = "predictions.parquet"


def make(work: Work) -> Made:
    """Score every model on the test rows and judge the champion, which the validation rows have chosen."""
    task = work.spec.task
    settings = work.spec.evaluation
    encoder, target = parts.fitted(work)
    baseline = json.loads((work.inputs["baseline"].folder / BASELINE).read_text())
    work.progress("predicting test rows", 0, 0)
    test = parts.test(work, encoder, target)
    predicted = {
        name: models.load(name, work.inputs["baseline"].folder).predict(test.encoded) for name in MODELS
    }
    predicted["network"] = models.load("mlp", work.inputs["network"].folder).predict(test.encoded)

    best = str(baseline["best"])
    on_validation = {name: baseline["validation"][name] for name in MODELS}
    on_validation["network"] = work.inputs["network"].record.values[f"{task.metric}_network"]
    lead = _lead(work, best, parts.validation(work, encoder, target))
    champion = "network" if metrics.surely_better(task.metric, lead) else best

    work.progress("resampling for intervals", 0, 0)
    names = METRICS[task.kind]
    intervals = metrics.intervals(
        names,
        test.target,
        predicted,
        settings.resamples,
        settings.confidence,
        settings.seed,
        [("network", best)],
    )
    scores = {model: metrics.scores(task.kind, test.target, found) for model, found in predicted.items()}
    gain = metrics.gain(task.metric, scores[champion][task.metric], scores[best][task.metric])
    checks = _gate(work, champion, best, scores[champion][task.metric], gain, len(test))
    accepted = all(check.passed for check in checks)
    body: dict[str, Any] = {
        "metric": task.metric,
        "champion": champion,
        "best_baseline": best,
        "accepted": accepted,
        "test_rows": len(test),
        "validation": on_validation,
        "network_minus_baseline_on_validation": _bounds(lead),
        "test": scores,
        "intervals": {
            model: {name: _bounds(low_high) for name, low_high in of.items()}
            for model, of in intervals.of.items()
        },
        "network_minus_baseline": {
            name: _bounds(low_high) for name, low_high in intervals.difference[("network", best)].items()
        },
        "confidence": settings.confidence,
    }
    files.write_json(work.output / FILE_NAME, body)
    _write_predictions(work, test.rows, test.target, predicted[champion], target)
    work.progress("drawing", 0, 0)
    drawn = charts.draw(work.output, test.target, predicted[champion], target.classes, champion)
    values: dict[str, Any] = {"champion": champion, "test_rows": len(test)}
    values |= {f"{task.metric}_{model}": scores[model][task.metric] for model in predicted}
    return Made(tuple(checks), values, (FILE_NAME, *drawn))


def _lead(work: Work, best: str, validation: parts.Part) -> tuple[float, float] | None:
    """Interval of the network's score minus the best plain model's, on the validation rows.

    A network that leads by no more than chance is not chosen: between models that cannot be told
    apart, the plainer one is the better bet for rows that nobody has seen.
    """
    settings = work.spec.evaluation
    predicted = {
        "network": models.load("mlp", work.inputs["network"].folder).predict(validation.encoded),
        best: models.load(best, work.inputs["baseline"].folder).predict(validation.encoded),
    }
    metric = work.spec.task.metric
    found = metrics.intervals(
        [metric],
        validation.target,
        predicted,
        settings.resamples,
        settings.confidence,
        settings.seed,
        [("network", best)],
    )
    return found.difference[("network", best)][metric]


def _gate(
    work: Work, champion: str, best: str, score: float | None, gain: float | None, rows: int
) -> list[Check]:
    """One check for each limit in task.accept; a score that is not defined is not accepted."""
    accept = work.spec.task.accept
    metric = work.spec.task.metric
    limit = accept.at_least if accept.at_least is not None else accept.at_most
    assert limit is not None
    sign = ">=" if accept.at_least is not None else "<="
    way_out = "improve features or models on the validation rows; move task.accept only for a reason outside this score"
    if score is None:
        undefined = f"{metric} of {champion} is undefined on the test rows: not decidable, so not accepted"
        return [Check("GM501", "acceptance", "not verified", 0, undefined, None, limit, (), way_out)]
    reached = score >= limit if accept.at_least is not None else score <= limit
    text = f"{metric} of {champion} is {score:.4f}, wanted {sign} {limit:g}"
    checks = [
        Check("GM501", "acceptance", judge(reached, "fail", rows), rows, text, score, limit, (), way_out)
    ]
    if accept.above_baseline is not None:
        ok = gain is not None and gain >= accept.above_baseline
        shown = "undefined" if gain is None else f"{gain:+.4f}"
        whom = "is the best baseline itself" if champion == best else f"against {best}"
        text = f"{metric} gain of {champion} {whom}: {shown}, wanted >= {accept.above_baseline:g}"
        verdict = judge(ok, "fail", rows)
        checks.append(
            Check("GM502", "above baseline", verdict, rows, text, gain, accept.above_baseline, (), way_out)
        )
    return checks


def _bounds(interval: tuple[float, float] | None) -> dict[str, float] | None:
    return None if interval is None else {"low": interval[0], "high": interval[1]}


def _write_predictions(
    work: Work, rows: np.ndarray, truth: np.ndarray, predicted: np.ndarray, target: Target
) -> None:
    columns: dict[str, Any] = {ROW_ID: pa.array(rows, pa.int64())}
    if target.classes is None:
        columns |= {"truth": pa.array(truth), "prediction": pa.array(predicted)}
    else:
        columns["truth"] = pa.array([str(target.classes[code]) for code in truth])
        for code, name in enumerate(target.classes):
            columns[f"probability_{name}"] = pa.array(predicted[:, code])
    pq.write_table(pa.table(columns), work.output / PREDICTIONS_FILE_NAME, compression="zstd")
