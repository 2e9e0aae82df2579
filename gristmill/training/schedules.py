"""The learning rate as a function of the optimizer's step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gristmill import spec


def factor(settings: spec.WarmupCosine | spec.Constant, step: int, total: int) -> float:
    """What the declared rate is multiplied with at `step` (0 .. total - 1).

    Warm-up rises linearly to 1 over the declared share of all steps, then half a cosine falls to 0.
    A pure function of the step: a resumed run has the rates of an uninterrupted one.
    """
    if settings.name == "constant":
        return 1.0
    warmup = round(settings.warmup * total)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(total - warmup, 1)))
