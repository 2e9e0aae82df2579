"""Two short trials that tell a broken training from a slow one before hours are spent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from gristmill.training.loop import Loss, Rows, mean_loss

OVERFIT_STEPS = 1000
OVERFIT_LR = 3e-3


@dataclass(frozen=True)
class Overfit:
    """The loss on one batch before and after it was trained on alone, and the steps that took."""

    first: float
    last: float
    steps: int
    learned: bool


def overfit(model: nn.Module, loss_function: Loss, batch: Rows, enough: float) -> Overfit:
    """Train on the same rows at each step, dropout off, until the loss falls to `enough` of the first.

    A model that cannot learn one batch by heart has a detached loss, a frozen layer or wrong labels
    (Karpathy 2019, "A Recipe for Training Neural Networks"). Changes the model's weights.
    """
    model.eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=OVERFIT_LR)
    first = last = math.nan
    for step in range(OVERFIT_STEPS):
        loss = loss_function(model(batch.numeric, batch.categorical), batch.target)
        last = float(loss.detach())
        first = last if step == 0 else first
        learned = math.isfinite(last) and last <= enough * first
        # Where no weight hangs on the loss, it will be the same after any number of steps.
        if learned or not math.isfinite(last) or not loss.requires_grad:
            return Overfit(first, last, step, learned)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return Overfit(first, last, OVERFIT_STEPS, False)


def first_loss(model: nn.Module, loss_function: Loss, rows: Rows) -> float:
    """The loss of the untrained model, which should be what theory says of one that knows nothing."""
    return mean_loss(model, loss_function, rows)
