from pathlib import Path

import numpy as np

from gristmill.encode import Encoded, Target
from gristmill.models import dummy
from gristmill.models.dummy import Dummy

ROWS = Encoded(np.zeros((3, 2), dtype=np.float32), np.zeros((3, 0), dtype=np.int64))


def test_it_answers_the_training_rows_class_shares() -> None:
    model = Dummy.fit(np.array([1, 1, 0, 2]), Target(("a", "b", "c")))
    assert model.predict(ROWS).tolist() == [[0.25, 0.5, 0.25]] * 3


def test_a_class_that_no_row_has_gets_nothing() -> None:
    assert Dummy.fit(np.array([0, 0]), Target(("a", "b"))).predict(ROWS).tolist() == [[1.0, 0.0]] * 3


def test_it_answers_the_training_rows_mean_for_a_number() -> None:
    model = Dummy.fit(np.array([1.0, 2.0, 6.0]), Target(None, 3.0, 2.0))
    assert model.predict(ROWS).tolist() == [3.0, 3.0, 3.0]


def test_the_saved_model_answers_the_same_bits(tmp_path: Path) -> None:
    for target, labels in ((Target(("a", "b")), np.array([0, 1, 1])), (Target(None), np.array([0.1, 0.2]))):
        model = Dummy.fit(labels, target)
        model.save(tmp_path)
        assert dummy.load(tmp_path) == model
        assert np.array_equal(dummy.load(tmp_path).predict(ROWS), model.predict(ROWS))
