import math

import pytest

from gristmill.spec import Constant, WarmupCosine
from gristmill.training import schedules


def test_a_constant_rate_is_the_declared_one() -> None:
    assert {schedules.factor(Constant(name="constant"), step, 100) for step in range(100)} == {1.0}


def test_warm_up_rises_linearly_then_half_a_cosine_falls() -> None:
    found = [schedules.factor(WarmupCosine(warmup=0.1), step, 100) for step in range(100)]
    assert found[:10] == pytest.approx([n / 10 for n in range(1, 11)])
    assert found[10:] == pytest.approx([(1 + math.cos(math.pi * n / 90)) / 2 for n in range(90)])
    assert found[10] == 1.0
    assert found[55] == pytest.approx(0.5)
    assert 0 < found[99] < 0.001


def test_the_rate_never_leaves_its_bounds_nor_falls_while_it_should_rise() -> None:
    for total in (1, 2, 3, 7, 50):
        for warmup in (0.0, 0.05, 0.5, 0.99):
            found = [schedules.factor(WarmupCosine(warmup=warmup), step, total) for step in range(total)]
            peak = found.index(max(found))
            assert all(0 < rate <= 1 for rate in found)
            assert max(found) == 1.0
            assert found[:peak] == sorted(found[:peak])
            assert found[peak:] == sorted(found[peak:], reverse=True)
