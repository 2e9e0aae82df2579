from pathlib import Path

import numpy as np
import pytest

from gristmill.encode import Encoded
from gristmill.models import linear
from gristmill.models.linear import Linear

CARDINALITIES = (4, 3)


def rows(number: int = 50, num_numeric: int = 3, cardinalities: tuple[int, ...] = CARDINALITIES) -> Encoded:
    random = np.random.default_rng(0)
    codes = [random.integers(0, size, number) for size in cardinalities]
    together = np.stack(codes, axis=1) if codes else np.zeros((number, 0), dtype=np.int64)
    return Encoded(random.normal(size=(number, num_numeric)).astype(np.float32), together)


def model(outputs: int, num_numeric: int = 3, cardinalities: tuple[int, ...] = CARDINALITIES) -> Linear:
    random = np.random.default_rng(1)
    return Linear(
        random.normal(size=(num_numeric, outputs)),
        random.normal(size=(sum(cardinalities), outputs)),
        random.normal(size=outputs),
        linear.offsets_of(cardinalities),
    )


def test_the_design_is_numbers_then_one_hot_codes() -> None:
    encoded = Encoded(np.array([[0.5], [2.0]], dtype=np.float32), np.array([[3, 0], [0, 2]]))
    assert linear.design(encoded, CARDINALITIES).toarray().tolist() == [
        [0.5, 0, 0, 0, 1, 1, 0, 0],
        [2.0, 1, 0, 0, 0, 0, 0, 1],
    ]


def test_k16_each_category_is_hot_once_in_each_row() -> None:
    one_hot = linear.design(rows(), CARDINALITIES).toarray()[:, 3:]
    assert one_hot[:, :4].sum(axis=1).tolist() == [1] * 50
    assert one_hot[:, 4:].sum(axis=1).tolist() == [1] * 50


@pytest.mark.parametrize("cardinalities", [CARDINALITIES, ()])
@pytest.mark.parametrize("num_numeric", [3, 0])
@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_prediction_is_the_designs_product(
    outputs: int, num_numeric: int, cardinalities: tuple[int, ...]
) -> None:
    encoded, fitted = (
        rows(50, num_numeric, cardinalities),
        model(outputs, num_numeric, cardinalities),
    )
    weights = np.vstack([fitted.numeric, fitted.categorical])
    scores = linear.design(encoded, cardinalities).toarray() @ weights + fitted.intercept
    powers = np.exp(scores)
    wanted = scores[:, 0] if outputs == 1 else powers / powers.sum(axis=1, keepdims=True)
    assert fitted.predict(encoded) == pytest.approx(wanted, rel=1e-12)


def test_large_scores_do_not_overflow() -> None:
    sure = Linear(np.array([[0.0, 5000.0]]), np.zeros((0, 2)), np.zeros(2), linear.offsets_of(()))
    encoded = Encoded(np.array([[1.0], [-1.0]], dtype=np.float32), np.zeros((2, 0), dtype=np.int64))
    assert sure.predict(encoded).tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize("cardinalities", [CARDINALITIES, ()])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_saved_model_answers_the_same_bits(
    tmp_path: Path, outputs: int, cardinalities: tuple[int, ...]
) -> None:
    encoded, fitted = rows(50, 3, cardinalities), model(outputs, 3, cardinalities)
    fitted.save(tmp_path)
    assert np.array_equal(linear.load(tmp_path).predict(encoded), fitted.predict(encoded))
