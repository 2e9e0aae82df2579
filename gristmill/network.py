"""The deep network: built, tried on one batch, trained, and kept with its best weights."""

from __future__ import annotations

import csv
import math
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor, nn

from gristmill import files, metrics, parts
from gristmill.encode import Encoder, Target
from gristmill.errors import EnvironmentFault
from gristmill.models import mlp
from gristmill.models.mlp import Mlp, Network
from gristmill.parts import Part
from gristmill.records import Check, judge
from gristmill.training import loop, preflight
from gristmill.training.loop import Epoch, Rows
from gristmill.work import Made, Work

HISTORY_FILE_NAME = "training.csv"
PREFLIGHT_FILE_NAME = "preflight.json"
# One batch must fall to this share of its first loss.
OVERFIT_SHARE = 0.1
OVERFIT_ROWS = 16
# How far the first loss may lie from theory: random weights do not answer exactly evenly.
FIRST_LOSS_TOLERANCE = 0.25


def make(work: Work) -> Made:
    """Train on the training rows, stop and choose the epoch on the validation rows."""
    data = parts.training(work)
    settings = work.spec.training
    device = _device(settings.device)
    shape = _shape(work, data.encoder, data.target)
    model = _build(work, shape).to(device)

    def tell(epoch: Epoch) -> None:
        text = f"epoch {epoch.epoch}: loss {epoch.train_loss:.4f}, validation {epoch.validation_loss:.4f}"
        work.progress(text, epoch.epoch, settings.epochs)

    trained = loop.train(
        model,
        _loss(data.target),
        _rows(data.train, data.target, device),
        _rows(data.validation, data.target, device),
        settings,
        work.scratch / "checkpoints",
        tell,
    )
    classes = 0 if data.target.classes is None else len(data.target.classes)
    Network(model, shape, classes, data.target.mean, data.target.scale).save(work.output)
    data.encoder.save(work.output)
    data.target.save(work.output)
    _write_history(work, trained.history)
    # Scored from the files just written: what is measured is what is kept.
    predicted = mlp.load(work.output).predict(data.validation.encoded)
    metric = work.spec.task.metric
    score = metrics.score(metric, data.validation.target, predicted)
    best = trained.history[trained.best_epoch - 1]
    text = f"{len(trained.history)} epochs, the best {trained.best_epoch} with validation loss {best.validation_loss:.4f}"
    finite = math.isfinite(best.validation_loss) and bool(np.isfinite(predicted).all())
    check = Check(
        "GM401", "finite, best restored", judge(finite, "fail", len(predicted)), len(predicted), text
    )
    values = {
        "epochs": len(trained.history),
        "best_epoch": trained.best_epoch,
        "train_loss": best.train_loss,
        "validation_loss": best.validation_loss,
        f"{metric}_network": score,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    speed = {
        "rows_per_second": round(trained.rows_per_second),
        "resumed_from": trained.resumed_from,
        "device": device,
    }
    return Made((check,), values, (HISTORY_FILE_NAME,), {"speed.json": speed})


def try_out(work: Work) -> Made:
    """The preflight stage: does the network learn one batch, and does its loss start where theory says?"""
    data = parts.training(work)
    device = _device(work.spec.training.device)
    loss = _loss(data.target)
    rows = _rows(data.train, data.target, device)
    model = _build(work, _shape(work, data.encoder, data.target)).to(device)
    random = np.random.default_rng(work.spec.training.seed)
    sample = torch.from_numpy(np.sort(random.permutation(len(rows))[:4096])).to(device)
    first = preflight.first_loss(model, loss, _take(rows, sample))
    if data.target.classes is None:
        theory, what = float(rows.target[sample].square().mean()), "what answering the mean costs"
    else:
        theory, what = math.log(len(data.target.classes)), "log of the number of classes"
    off = abs(first / theory - 1)
    start = Check(
        "GM303",
        "first loss",
        judge(off <= FIRST_LOSS_TOLERANCE, "fail", len(sample)),
        len(sample),
        f"untrained loss {first:.4f}, theory {theory:.4f} ({what})",
        _number(first),
        f"{theory:.4f} +- {FIRST_LOSS_TOLERANCE:.0%}",
        (),
        "look for inputs of a wrong scale or a loss that does not fit the task",
    )
    batch = _take(rows, torch.from_numpy(_distinct(data.train, random)).to(device))
    work.progress("learning one batch by heart", 0, 0)
    tried = preflight.overfit(model, loss, batch, OVERFIT_SHARE)
    overfit = Check(
        "GM302",
        "one batch is learned",
        judge(tried.learned, "fail", len(batch)),
        len(batch),
        f"loss of {len(batch)} rows {tried.first:.4g} -> {tried.last:.4g} after {tried.steps} steps",
        _number(tried.last),
        _number(OVERFIT_SHARE * tried.first),
        (),
        "check labels, a frozen layer or a detached loss",
    )
    values = {"first_loss": _number(first), "theory": theory, "overfit_steps": tried.steps}
    files.write_json(work.output / PREFLIGHT_FILE_NAME, values)
    return Made((overfit, start), values)


def _number(value: float) -> float | None:
    """A figure of a record, which has no word for infinity."""
    return value if math.isfinite(value) else None


def _shape(work: Work, encoder: Encoder, target: Target) -> mlp.Shape:
    declared = work.spec.network
    return mlp.Shape(
        encoder.num_numeric, encoder.cardinalities, target.num_outputs, declared.hidden, declared.dropout
    )


def _build(work: Work, shape: mlp.Shape) -> Mlp:
    torch.manual_seed(work.spec.training.seed)
    return Mlp(shape)


def _loss(target: Target) -> loop.Loss:
    if target.classes is not None:
        cross_entropy: loop.Loss = nn.CrossEntropyLoss()
        return cross_entropy

    def mean_squared_error(outputs: Tensor, wanted: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs[:, 0], wanted)

    return mean_squared_error


def _rows(part: Part, target: Target, device: str) -> Rows:
    values = part.target if target.classes is not None else target.standardise(part.target).astype(np.float32)
    return Rows(
        torch.from_numpy(part.encoded.numeric).to(device),
        torch.from_numpy(part.encoded.categorical).to(device),
        torch.from_numpy(values).to(device),
        torch.from_numpy(part.rows.copy()).to(device),
    )


def _take(rows: Rows, places: Tensor) -> Rows:
    return Rows(rows.numeric[places], rows.categorical[places], rows.target[places], rows.ids[places])


def _distinct(part: Part, random: np.random.Generator) -> np.ndarray:
    """Places of a few rows that differ in their features: equal rows with other targets cannot be learned."""
    places = random.permutation(len(part))[: 4 * OVERFIT_ROWS]
    encoded = part.encoded.take(places)
    _, first = np.unique(np.hstack([encoded.numeric, encoded.categorical]), axis=0, return_index=True)
    return np.sort(places[np.sort(first)[:OVERFIT_ROWS]])


def _device(declared: str) -> str:
    if declared == "cuda" and not torch.cuda.is_available():
        raise EnvironmentFault("training.device cuda asked, none found; declare cpu or auto")
    return "cuda" if declared != "cpu" and torch.cuda.is_available() else "cpu"


def _write_history(work: Work, history: tuple[Epoch, ...]) -> None:
    with (work.output / HISTORY_FILE_NAME).open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(asdict(history[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(epoch) for epoch in history)
