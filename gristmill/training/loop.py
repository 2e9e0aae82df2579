"""The training loop, in the open: read it, copy it, change it.

Nothing is hidden: no trainer class, no callbacks. Order and dropout are functions of the seed, the
epoch and the step, so a run that was killed and resumed makes the same weights, to the bit on a CPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gristmill.errors import InputError
from gristmill.training import checkpoint, optimizers, schedules

if TYPE_CHECKING:
    from gristmill.spec import Training

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (n, k) and targets (n,) in, the mean loss over the rows out."""


@dataclass(frozen=True)
class Rows:
    """Rows on the device of the model.

    Shape: numeric (n, p) float32, categorical (n, q) int64, target (n,) int64 codes or float32,
    ids (n,) int64 row ids of the snapshot, for messages.
    """

    numeric: Tensor
    categorical: Tensor
    target: Tensor
    ids: Tensor

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True)
class Epoch:
    """What one epoch was like; losses are means over rows."""

    epoch: int
    train_loss: float
    validation_loss: float
    lr: float
    gradient_norm: float
    """Mean norm of the gradient before clipping."""


@dataclass(frozen=True)
class Trained:
    """The best epoch's weights are in the model; the history says how they came about."""

    history: tuple[Epoch, ...]
    best_epoch: int
    rows_per_second: float
    resumed_from: int
    """Epochs that an earlier, interrupted attempt had finished."""


def train(
    model: nn.Module,
    loss_function: Loss,
    training: Rows,
    validation: Rows,
    settings: Training,
    folder: Path,
    tell: Callable[[Epoch], None] = lambda epoch: None,
) -> Trained:
    """Train until the epochs are over or the validation loss stops falling, and restore the best weights.

    Checkpoints go to `folder` after each epoch, and one found there is continued. Raises InputError
    for a loss that is not finite, with the step, the learning rate and the batch's rows.
    """
    optimizer = optimizers.build(model, settings.optimizer)
    steps_per_epoch = math.ceil(len(training) / settings.batch_size)
    total_steps = steps_per_epoch * settings.epochs
    history: list[Epoch] = []
    best_state = _copy(model)
    if (state := checkpoint.latest(folder)) is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        best_state = state["best"]
        history = [Epoch(**epoch) for epoch in state["history"]]
    resumed_from = len(history)
    seconds = 0.0
    while not _finished(history, settings):
        epoch = len(history)
        began = time.perf_counter()
        model.train()
        losses = torch.zeros((), device=training.target.device)
        norms = torch.zeros((), device=training.target.device)
        order = _order(len(training), settings.seed, epoch).to(training.target.device)
        for place in range(steps_per_epoch):
            step = epoch * steps_per_epoch + place
            batch = order[place * settings.batch_size : (place + 1) * settings.batch_size]
            lr = settings.optimizer.lr * schedules.factor(settings.schedule, step, total_steps)
            for group in optimizer.param_groups:
                group["lr"] = lr
            torch.manual_seed(_mix(settings.seed, step))

            outputs = model(training.numeric[batch], training.categorical[batch])
            loss = loss_function(outputs, training.target[batch])
            if not torch.isfinite(loss):
                sound = torch.isfinite(outputs).flatten(1).all(dim=1) & torch.isfinite(training.target[batch])
                rows = training.ids[batch] if sound.all() else training.ids[batch][~sound]
                raise InputError(_not_finite("loss", step, lr, rows, len(history)))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
            if not torch.isfinite(norm):
                raise InputError(_not_finite("gradient", step, lr, training.ids[batch], len(history)))
            if settings.clip_norm is not None:
                nn.utils.clip_grads_with_norm_(model.parameters(), settings.clip_norm, norm)
            optimizer.step()

            losses += loss.detach() * len(batch)
            norms += norm
        seconds += time.perf_counter() - began
        measured = Epoch(
            epoch=epoch + 1,
            train_loss=float(losses) / len(training),
            validation_loss=mean_loss(model, loss_function, validation),
            lr=lr,
            gradient_norm=float(norms) / steps_per_epoch,
        )
        history.append(measured)
        if _best(history) == measured.epoch:
            best_state = _copy(model)
        checkpoint.save(
            folder,
            measured.epoch,
            {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "best": best_state,
                "history": [asdict(past) for past in history],
            },
        )
        tell(measured)
    best = best_epoch(history)
    model.load_state_dict(best_state)
    trained = (len(history) - resumed_from) * len(training)
    return Trained(tuple(history), best, trained / seconds if seconds else 0.0, resumed_from)


def mean_loss(model: nn.Module, loss_function: Loss, rows: Rows, batch_size: int = 8192) -> float:
    """Mean loss over all rows, with dropout off."""
    model.eval()
    total = torch.zeros((), dtype=torch.float64, device=rows.target.device)
    with torch.inference_mode():
        for start in range(0, len(rows), batch_size):
            batch = slice(start, start + batch_size)
            outputs = model(rows.numeric[batch], rows.categorical[batch])
            total += loss_function(outputs, rows.target[batch]).double() * len(rows.target[batch])
    return float(total) / len(rows)


def best_epoch(history: list[Epoch]) -> int:
    """The epoch with the lowest validation loss, the first of equals; NaN is never the best.

    Raises InputError where no epoch has a finite one: such a training has no model.
    """
    if found := _best(history):
        return found
    raise InputError("training has no epoch with a finite validation loss; lower training.optimizer.lr")


def _best(history: list[Epoch]) -> int:
    """The best epoch so far, 0 while there is none."""
    finite = [epoch for epoch in history if math.isfinite(epoch.validation_loss)]
    return min(finite, key=lambda epoch: (epoch.validation_loss, epoch.epoch)).epoch if finite else 0


def _finished(history: list[Epoch], settings: Training) -> bool:
    """Whether training is over, computed from its history alone, so that no second truth can go stale."""
    if len(history) >= settings.epochs:
        return True
    return len(history) - _best(history) >= settings.early_stopping.patience


def _order(rows: int, seed: int, epoch: int) -> Tensor:
    generator = torch.Generator().manual_seed(_mix(seed, -1 - epoch))
    return torch.randperm(rows, generator=generator)


def _mix(seed: int, number: int) -> int:
    """A seed of its own for each step and each epoch (SplitMix64, Steele et al. 2014)."""
    mask = (1 << 64) - 1
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    return (mixed ^ (mixed >> 31)) >> 1


def _copy(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _not_finite(what: str, step: int, lr: float, ids: Tensor, finished: int) -> str:
    rows = ", ".join(str(int(row)) for row in ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
    kept = f"the checkpoint of epoch {finished} is kept" if finished else "no epoch was finished"
    return (
        f"the {what} must be finite, however it is not at step {step} (lr {lr:.3g}, rows {rows}); "
        f"{kept}; lower training.optimizer.lr or look at these rows"
    )
