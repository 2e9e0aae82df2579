"""The model that looks at no feature: the training rows' class shares, or their mean."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gristmill.encode import Encoded, Target

FILE_NAME = "dummy.json"


@dataclass(frozen=True)
class Dummy:
    """`answer` holds the class shares (k,), or the mean alone for a regression."""

    answer: tuple[float, ...]
    regression: bool

    @classmethod
    def fit(cls, labels: np.ndarray, target: Target) -> Dummy:
        if target.classes is None:
            return cls((float(labels.mean()),), True)
        counts = np.bincount(labels, minlength=len(target.classes))
        return cls(tuple((counts / counts.sum()).tolist()), False)

    def predict(self, encoded: Encoded) -> np.ndarray:
        if self.regression:
            return np.full(len(encoded), self.answer[0])
        return np.tile(np.array(self.answer), (len(encoded), 1))

    def save(self, folder: Path) -> None:
        (folder / FILE_NAME).write_text(
            json.dumps({"answer": self.answer, "regression": self.regression}) + "\n"
        )


def load(folder: Path) -> Dummy:
    body = json.loads((folder / FILE_NAME).read_text())
    return Dummy(tuple(body["answer"]), body["regression"])
