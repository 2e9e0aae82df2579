"""A multilayer perceptron with an embedding for each category."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gristmill.encode import Encoded

FILE_NAME = "mlp.safetensors"
SHAPE_FILE_NAME = "mlp.json"
# Rows of one forward pass when predicting. Matrix products of another height may round otherwise, so
# that the same rows in the same order give the same bits wherever they are predicted.
PREDICT_ROWS = 8192


@dataclass(frozen=True)
class Shape:
    """What a network is built from: the width of its inputs, its layers and its outputs."""

    num_numeric: int
    cardinalities: tuple[int, ...]
    num_outputs: int
    hidden: tuple[int, ...]
    dropout: float


class Mlp(nn.Module):
    """Embeddings and numbers side by side, then linear layers with norm, ReLU and dropout.

    Shape: numeric (n, num_numeric) float32 and categorical (n, len(cardinalities)) int64 in,
    (n, num_outputs) float32 out: logits, or a standardised number.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        sizes = [embedding_size(cardinality) for cardinality in shape.cardinalities]
        self.embeddings = nn.ModuleList(
            nn.Embedding(cardinality, size)
            for cardinality, size in zip(shape.cardinalities, sizes, strict=True)
        )
        width = shape.num_numeric + sum(sizes)
        layers: list[nn.Module] = []
        for hidden in shape.hidden:
            layers += [nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Dropout(shape.dropout)]
            width = hidden
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, shape.num_outputs)
        # Near zero, so that an untrained network answers evenly and its first loss is what theory says.
        nn.init.normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        embedded = [embed(categorical[:, place]) for place, embed in enumerate(self.embeddings)]
        return self.head(self.body(torch.cat([numeric, *embedded], dim=1)))


def embedding_size(cardinality: int) -> int:
    """fastai's rule of thumb for the width of an embedding, at most 50 wide."""
    return min(50, math.ceil(1.6 * cardinality**0.56))


@dataclass(frozen=True)
class Network:
    """A trained network with what turns its outputs into predictions."""

    module: nn.Module
    shape: Shape
    classes: int
    """Number of classes; 0 for a regression."""
    mean: float
    scale: float

    def predict(self, encoded: Encoded) -> np.ndarray:
        device = next(self.module.parameters()).device
        self.module.eval()
        outputs = []
        with torch.inference_mode():
            for start in range(0, len(encoded), PREDICT_ROWS):
                rows = encoded.take(slice(start, start + PREDICT_ROWS))
                numeric = torch.from_numpy(rows.numeric).to(device)
                categorical = torch.from_numpy(rows.categorical).to(device)
                outputs.append(self.module(numeric, categorical).double().cpu())
        found = torch.cat(outputs) if outputs else torch.empty(0, self.shape.num_outputs, dtype=torch.float64)
        if self.classes:
            return found.softmax(dim=1).numpy()
        return found[:, 0].numpy() * self.scale + self.mean

    def save(self, folder: Path) -> None:
        state = {
            name: tensor.detach().cpu().contiguous() for name, tensor in self.module.state_dict().items()
        }
        save_file(state, folder / FILE_NAME)
        facts = {"shape": asdict(self.shape), "classes": self.classes, "mean": self.mean, "scale": self.scale}
        (folder / SHAPE_FILE_NAME).write_text(json.dumps(facts) + "\n")


def load(folder: Path) -> Network:
    body = json.loads((folder / SHAPE_FILE_NAME).read_text())
    found = body.pop("shape")
    shape = Shape(
        found["num_numeric"],
        tuple(found["cardinalities"]),
        found["num_outputs"],
        tuple(found["hidden"]),
        found["dropout"],
    )
    module = Mlp(shape)
    module.load_state_dict(load_file(folder / FILE_NAME))
    return Network(module, shape, **body)
