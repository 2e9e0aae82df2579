"""AdamW with the decay where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from torch.optim import AdamW

if TYPE_CHECKING:
    from gristmill import spec


def build(model: nn.Module, settings: spec.AdamW) -> AdamW:
    """AdamW over two groups: matrices decay; biases, norms and embeddings do not.

    Decay pulls weights to zero; a norm's gain has its place at one, and an embedding's row would be
    pulled at each step, also at those that never saw its category.
    """
    spared = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.LayerNorm | nn.modules.batchnorm._NormBase)
        for parameter in module.parameters(recurse=False)
    }
    decayed = [p for p in model.parameters() if p.ndim > 1 and id(p) not in spared]
    free = [p for p in model.parameters() if p.ndim <= 1 or id(p) in spared]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    # One fused kernel for all tensors: on small networks the optimizer otherwise costs as much as the model.
    return AdamW(groups, lr=settings.lr, fused=True)
