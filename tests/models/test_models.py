from pathlib import Path

import numpy as np
import pytest

from gristmill import models
from gristmill.encode import Encoded, Target
from gristmill.models.dummy import Dummy


def test_a_saved_model_is_loaded_by_its_kind(tmp_path: Path) -> None:
    saved = Dummy.fit(np.array([0, 1, 1, 1]), Target(("a", "b")))
    saved.save(tmp_path)
    rows = Encoded(np.zeros((1, 0), dtype=np.float32), np.zeros((1, 0), dtype=np.int64))
    assert models.load("dummy", tmp_path).predict(rows).tolist() == [[0.25, 0.75]]


def test_every_kind_has_its_file_and_every_file_its_kind() -> None:
    folder = Path(models.__file__).parent
    assert {file.stem for file in folder.glob("*.py")} - {"__init__"} == set(models.KINDS)


@pytest.mark.parametrize(
    ("probabilities", "codes"),
    [
        ([[0.6, 0.4], [0.5, 0.5], [0.4, 0.6]], [0, 1, 1]),
        ([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]], [1, 0]),
        (np.empty((0, 2)), []),
    ],
)
def test_a_class_is_decided_as_the_scores_count_it(
    probabilities: list[list[float]], codes: list[int]
) -> None:
    assert models.decide(np.array(probabilities)).tolist() == codes
