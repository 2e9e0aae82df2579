from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gristmill.encode import Encoded
from gristmill.models import mlp
from gristmill.models.mlp import PREDICT_ROWS, Mlp, Network, Shape

SHAPE = Shape(num_numeric=3, cardinalities=(5, 40), num_outputs=4, hidden=(16, 8), dropout=0.5)


def rows(number: int = 200) -> Encoded:
    random = np.random.default_rng(0)
    codes = np.stack([random.integers(0, 5, number), random.integers(0, 40, number)], axis=1)
    return Encoded(random.normal(size=(number, 3)).astype(np.float32), codes)


def network(classes: int = 4, mean: float = 0.0, scale: float = 1.0) -> Network:
    torch.manual_seed(0)
    shape = Shape(3, (5, 40), classes or 1, (16, 8), 0.5)
    return Network(Mlp(shape), shape, classes, mean, scale)


@pytest.mark.parametrize(
    ("cardinality", "size"), [(2, 3), (3, 3), (4, 4), (10, 6), (100, 22), (1000, 50), (10**6, 50)]
)
def test_an_embedding_is_as_wide_as_fastai_says(cardinality: int, size: int) -> None:
    assert mlp.embedding_size(cardinality) == size
    assert size == min(50, int(np.ceil(1.6 * cardinality**0.56)))


def test_outputs_and_layers_have_the_declared_shapes() -> None:
    module = Mlp(SHAPE)
    encoded = rows(7)
    outputs = module(torch.from_numpy(encoded.numeric), torch.from_numpy(encoded.categorical))
    assert (outputs.shape, outputs.dtype) == ((7, 4), torch.float32)
    assert [tuple(embed.weight.shape) for embed in module.embeddings] == [(5, 4), (40, 13)]
    linears = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linears] == [
        (3 + 4 + 13, 16),
        (16, 8),
        (8, 4),
    ]


@pytest.mark.parametrize(("numeric", "cardinalities"), [(2, ()), (0, (4,))])
def test_one_kind_of_column_is_enough(numeric: int, cardinalities: tuple[int, ...]) -> None:
    module = Mlp(Shape(numeric, cardinalities, 1, (4,), 0.0))
    codes = torch.zeros(5, len(cardinalities), dtype=torch.int64)
    assert module(torch.zeros(5, numeric), codes).shape == (5, 1)


def test_classes_get_probabilities() -> None:
    found = network().predict(rows())
    assert (found.shape, found.dtype) == ((200, 4), np.float64)
    assert found.sum(axis=1) == pytest.approx(1, abs=1e-12)


def test_a_number_comes_back_in_the_targets_unit() -> None:
    plain, scaled = network(0).predict(rows()), network(0, mean=100.0, scale=5.0).predict(rows())
    assert plain.shape == (200,)
    assert scaled == pytest.approx(100 + 5 * plain, rel=1e-12)


def test_dropout_is_off_however_the_module_was_left() -> None:
    model = network()
    first = model.predict(rows())
    model.module.train()
    assert np.array_equal(model.predict(rows()), first)


def test_no_row_has_no_answer() -> None:
    assert network().predict(rows(0)).shape == (0, 4)
    assert network(0).predict(rows(0)).shape == (0,)


def test_the_saved_network_answers_the_same_bits(tmp_path: Path) -> None:
    for model in (network(), network(0, mean=0.1, scale=1 / 3)):
        model.save(tmp_path)
        again = mlp.load(tmp_path)
        assert (again.shape, again.classes, again.mean, again.scale) == (
            model.shape,
            model.classes,
            model.mean,
            model.scale,
        )
        assert np.array_equal(again.predict(rows()), model.predict(rows()))


def test_the_same_rows_in_the_same_order_are_the_same_bits() -> None:
    # That is what is promised: a block of PREDICT_ROWS rows is predicted at once, so what follows or
    # precedes a block does not matter, while other company inside it may move the last digits.
    model, encoded = network(), rows(2 * PREDICT_ROWS + 100)
    whole = model.predict(encoded)
    assert np.array_equal(model.predict(encoded), whole)
    for start in range(0, len(encoded), PREDICT_ROWS):
        block = slice(start, start + PREDICT_ROWS)
        assert np.array_equal(model.predict(encoded.take(block)), whole[block])
    assert model.predict(encoded.take(slice(5, 12))) == pytest.approx(whole[5:12], rel=1e-5)
