import math

import pytest
import torch
from torch import Tensor, nn

from gristmill.models.mlp import Mlp, Shape
from gristmill.training import preflight
from gristmill.training.loop import Rows

CROSS_ENTROPY = nn.CrossEntropyLoss()
ENOUGH = 0.1


def batch(classes: int = 3, number: int = 64, equal: bool = False) -> Rows:
    generator = torch.Generator().manual_seed(0)
    numeric = torch.randn(number, 4, generator=generator)
    numeric = torch.ones(number, 4) if equal else numeric
    labels = torch.randint(0, classes, (number,), generator=generator)
    return Rows(numeric, torch.zeros(number, 0, dtype=torch.int64), labels, torch.arange(number))


def model(classes: int = 3) -> Mlp:
    torch.manual_seed(0)
    return Mlp(Shape(num_numeric=4, cardinalities=(), num_outputs=classes, hidden=(32,), dropout=0.5))


def test_a_sound_network_learns_random_labels_by_heart_with_its_dropout_off() -> None:
    tried = preflight.overfit(model(), CROSS_ENTROPY, batch(), ENOUGH)
    assert tried.learned
    assert tried.last <= ENOUGH * tried.first
    assert 0 < tried.steps < preflight.OVERFIT_STEPS
    assert tried.first == pytest.approx(math.log(3), rel=0.2)


def test_it_stops_at_the_first_step_that_is_enough() -> None:
    sooner = preflight.overfit(model(), CROSS_ENTROPY, batch(), 0.5)
    later = preflight.overfit(model(), CROSS_ENTROPY, batch(), ENOUGH)
    assert 0.45 * sooner.first < sooner.last <= 0.5 * sooner.first
    assert sooner.steps < later.steps


def test_t11_a_frozen_network_does_not_learn() -> None:
    frozen = model().requires_grad_(False)
    tried = preflight.overfit(frozen, CROSS_ENTROPY, batch(), ENOUGH)
    assert not tried.learned
    assert tried.last == tried.first


def test_t11_a_detached_loss_does_not_learn() -> None:
    def detached(outputs: Tensor, target: Tensor) -> Tensor:
        return CROSS_ENTROPY(outputs.detach(), target)

    assert not preflight.overfit(model(), detached, batch(), ENOUGH).learned


def test_t11_a_network_with_a_detached_layer_does_not_learn() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()

        def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
            return self.inner.head(self.inner.body(numeric).detach() * 0)

    tried = preflight.overfit(Cut(), CROSS_ENTROPY, batch(), ENOUGH)
    assert not tried.learned
    assert tried.steps == preflight.OVERFIT_STEPS


def test_t11_labels_that_the_features_cannot_tell_apart_are_not_learned() -> None:
    tried = preflight.overfit(model(), CROSS_ENTROPY, batch(equal=True), ENOUGH)
    assert not tried.learned
    assert tried.last > 0.8 * math.log(3)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_not_finite_ends_the_trial_at_once(value: float) -> None:
    tried = preflight.overfit(model(), lambda outputs, _: outputs.sum() * 0 + value, batch(), ENOUGH)
    assert not tried.learned
    assert tried.steps == 0


@pytest.mark.parametrize("classes", [2, 3, 10, 50])
def test_an_untrained_network_knows_nothing(classes: int) -> None:
    first = preflight.first_loss(model(classes), CROSS_ENTROPY, batch(classes, 2000))
    assert first == pytest.approx(math.log(classes), rel=0.15)


def test_inputs_of_a_wrong_scale_start_elsewhere() -> None:
    sound = batch(3, 2000)
    module = nn.Linear(4, 3)

    class Plain(nn.Module):
        def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
            return module(numeric)

    wrong = Rows(sound.numeric * 1000, sound.categorical, sound.target, sound.ids)
    assert preflight.first_loss(Plain(), CROSS_ENTROPY, wrong) > 10 * math.log(3)
