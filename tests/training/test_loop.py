"""The loop learns, keeps its best epoch, stops on what is not finite, and resumes to the same bits."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gristmill.errors import InputError
from gristmill.models.mlp import Mlp, Shape
from gristmill.spec import Training
from gristmill.training import loop, optimizers, schedules
from gristmill.training.loop import Epoch, Rows, Trained

CROSS_ENTROPY = nn.CrossEntropyLoss()
QUIET: Callable[[Epoch], None] = lambda epoch: None  # noqa: E731


def rows(number: int, seed: int = 0) -> Rows:
    """Three classes that follow from two numbers and a category."""
    random = np.random.default_rng(seed)
    numeric, codes = random.normal(size=(number, 2)), random.integers(0, 4, (number, 1))
    label = np.digitize(numeric[:, 0] + codes[:, 0] - 1.5 + random.normal(0, 0.3, number), [-0.7, 0.7])
    return Rows(
        torch.from_numpy(numeric.astype(np.float32)),
        torch.from_numpy(codes),
        torch.from_numpy(label),
        torch.arange(1000, 1000 + number),
    )


def toy(dropout: float = 0.2) -> Mlp:
    torch.manual_seed(0)
    return Mlp(Shape(num_numeric=2, cardinalities=(4,), num_outputs=3, hidden=(16,), dropout=dropout))


def settings(**changed: Any) -> Training:
    return Training.model_validate(
        {"epochs": 6, "batch_size": 32, "optimizer": {"lr": 0.01}, "seed": 3, "device": "cpu"} | changed
    )


def train(
    folder: Path,
    loss: loop.Loss = CROSS_ENTROPY,
    training: Rows | None = None,
    model: nn.Module | None = None,
    tell: Callable[[Epoch], None] = QUIET,
    **changed: Any,
) -> tuple[nn.Module, Trained]:
    model = model or toy()
    training = training or rows(150)
    found = loop.train(
        model, loss, training, rows(80, seed=1), settings(**changed), folder / "checkpoints", tell
    )
    return model, found


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def with_validation(losses: list[float]) -> loop.Loss:
    """Cross-entropy in training, and given losses at the validations, one by one."""
    left = iter(losses)

    def loss(outputs: Tensor, target: Tensor) -> Tensor:
        if torch.is_inference_mode_enabled():
            return torch.tensor(next(left))
        return CROSS_ENTROPY(outputs, target)

    return loss


@contextmanager
def at_each_step(look: Callable[[torch.optim.Optimizer], None]) -> Iterator[None]:
    """Show the optimizer as it is when it is about to step."""
    hook = register_optimizer_step_pre_hook(lambda optimizer, *_: look(optimizer))
    try:
        yield
    finally:
        hook.remove()


# Learning


def test_the_loss_falls(tmp_path: Path) -> None:
    _, trained = train(tmp_path, epochs=15)
    losses = [epoch.train_loss for epoch in trained.history]
    assert losses[0] > 0.9
    assert losses[-1] < 0.5 * losses[0]
    assert trained.history[-1].validation_loss < 0.6
    assert [epoch.epoch for epoch in trained.history] == list(range(1, 16))
    assert trained.resumed_from == 0
    assert trained.rows_per_second > 0


def test_k44_the_best_epochs_weights_are_the_ones_in_the_model(tmp_path: Path) -> None:
    # So high a rate that it gets worse again.
    model, trained = train(tmp_path, epochs=12, optimizer={"lr": 0.3}, schedule={"name": "constant"})
    losses = [epoch.validation_loss for epoch in trained.history]
    assert trained.best_epoch == losses.index(min(losses)) + 1 < len(losses)
    assert loop.mean_loss(model, CROSS_ENTROPY, rows(80, seed=1)) == min(losses)


def test_of_equal_epochs_the_first_is_the_best(tmp_path: Path) -> None:
    _, trained = train(tmp_path, with_validation([0.5, 0.4, 0.4, 0.45]), epochs=4)
    assert trained.best_epoch == 2


def test_training_stops_when_the_validation_loss_no_longer_falls(tmp_path: Path) -> None:
    losses = [0.9, 0.5, 0.6, 0.7, 0.5, 0.4]
    _, trained = train(tmp_path, with_validation(losses), early_stopping={"patience": 3})
    assert [epoch.validation_loss for epoch in trained.history] == pytest.approx([0.9, 0.5, 0.6, 0.7, 0.5])
    assert trained.best_epoch == 2
    _, longer = train(tmp_path / "longer", with_validation(losses), early_stopping={"patience": 4})
    assert (len(longer.history), longer.best_epoch) == (6, 6)


def test_the_last_smaller_batch_counts_by_its_rows(tmp_path: Path) -> None:
    # At a rate of nothing the model stays, so the epoch's loss must be the mean over all rows; a mean of
    # the two batches' means would give the single row in the last batch half of the weight.
    training, untrained = rows(33), toy(dropout=0.0)
    wanted = loop.mean_loss(untrained, CROSS_ENTROPY, training)
    _, trained = train(tmp_path, training=training, model=untrained, epochs=1, optimizer={"lr": 1e-12})
    assert trained.history[0].train_loss == pytest.approx(wanted, rel=1e-5)


def test_the_mean_loss_does_not_depend_on_the_batches() -> None:
    model, many = toy(dropout=0.0), rows(100)
    whole = loop.mean_loss(model, CROSS_ENTROPY, many)
    assert whole == pytest.approx(CROSS_ENTROPY(model(many.numeric, many.categorical), many.target).item())
    for size in (1, 7, 64):
        assert loop.mean_loss(model, CROSS_ENTROPY, many, size) == pytest.approx(whole, rel=1e-6)


# Order


def orders(folder: Path, **changed: Any) -> list[list[int]]:
    """The rows of each epoch in the order they were trained on."""
    seen: list[int] = []
    many = rows(70)
    numbered = Rows(many.numeric, many.categorical, torch.arange(70), many.ids)

    def loss(outputs: Tensor, target: Tensor) -> Tensor:
        if not torch.is_inference_mode_enabled():
            seen.extend(target.tolist())
        return CROSS_ENTROPY(outputs, target % 3)

    train(folder, loss, numbered, epochs=3, **changed)
    return [seen[start : start + 70] for start in range(0, len(seen), 70)]


def test_k35_each_epoch_sees_every_row_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    found = orders(tmp_path / "a")
    assert [sorted(epoch) for epoch in found] == [list(range(70))] * 3
    assert found[0] != found[1] != found[2] != found[0]


def test_the_order_is_the_seeds(tmp_path: Path) -> None:
    found = orders(tmp_path / "a")
    assert orders(tmp_path / "b") == found
    other = orders(tmp_path / "c", seed=4)
    assert all(epoch not in other for epoch in found)


def test_equal_seeds_are_equal_bits_whatever_the_callers_random_state_is(tmp_path: Path) -> None:
    first, trained = train(tmp_path / "a")
    model = toy()
    torch.manual_seed(12345)
    np.random.seed(1)
    second, again = train(tmp_path / "b", model=model)
    assert same(first, second)
    assert again.history == trained.history
    other, _ = train(tmp_path / "c", seed=4)
    assert not same(first, other)


# Rate, decay, clipping


def rates(folder: Path, **changed: Any) -> list[float]:
    seen: list[float] = []
    with at_each_step(lambda optimizer: seen.extend({group["lr"] for group in optimizer.param_groups})):
        train(folder, **changed)
    return seen


def test_k37_the_rate_is_the_formulas_at_every_step(tmp_path: Path) -> None:
    declared = settings(optimizer={"lr": 0.02}, schedule={"name": "warmup_cosine", "warmup": 0.2})
    total = 6 * math.ceil(150 / 32)
    found = rates(tmp_path, optimizer={"lr": 0.02}, schedule={"name": "warmup_cosine", "warmup": 0.2})
    assert found == [0.02 * schedules.factor(declared.schedule, step, total) for step in range(total)]
    assert found[:6] == pytest.approx([0.02 * n / 6 for n in range(1, 7)])


def test_the_history_has_the_rate_of_each_epochs_last_step(tmp_path: Path) -> None:
    seen = rates(tmp_path / "a")
    _, trained = train(tmp_path / "b")
    assert [epoch.lr for epoch in trained.history] == seen[4::5]


def test_the_gradients_norm_is_clipped_and_the_history_has_it_as_it_was(tmp_path: Path) -> None:
    norms: list[float] = []

    def look(optimizer: torch.optim.Optimizer) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms.append(float(nn.utils.get_total_norm(gradients)))

    with at_each_step(look):
        _, free = train(tmp_path / "free", clip_norm=None, epochs=1)
    unclipped, norms = norms, []
    assert free.history[0].gradient_norm == pytest.approx(np.mean(unclipped), rel=1e-5)
    assert max(unclipped) > 0.2
    with at_each_step(look):
        _, clipped = train(tmp_path / "clipped", clip_norm=0.1, epochs=1)
    assert max(norms) <= 0.1 * (1 + 1e-5)
    assert clipped.history[0].gradient_norm > 0.2


# What is not finite


def test_k42_a_validation_loss_of_nan_or_infinity_is_never_the_best(tmp_path: Path) -> None:
    nan, inf = math.nan, math.inf
    for number, (losses, best) in enumerate(
        [([nan, 0.5, 0.4], 3), ([0.5, nan, 0.6], 1), ([inf, -inf, 0.6], 3), ([0.5, nan, 0.4], 3)]
    ):
        _, trained = train(tmp_path / str(number), with_validation(losses), epochs=3)
        assert trained.best_epoch == best
        assert np.array_equal(
            [e.validation_loss for e in trained.history], np.float32(losses), equal_nan=True
        )


def test_k42_the_best_among_epochs_of_nan_is_restored(tmp_path: Path) -> None:
    kept: dict[int, dict[str, Tensor]] = {}
    model = toy()

    def tell(epoch: Epoch) -> None:
        kept[epoch.epoch] = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    train(tmp_path, with_validation([math.nan, 0.5, math.nan]), model=model, tell=tell, epochs=3)
    assert all(torch.equal(tensor, kept[2][name]) for name, tensor in model.state_dict().items())


def test_k42_nan_is_no_improvement(tmp_path: Path) -> None:
    losses = with_validation([0.5, math.nan, math.nan, 0.1])
    _, trained = train(tmp_path, losses, epochs=4, early_stopping={"patience": 2})
    assert (len(trained.history), trained.best_epoch) == (3, 1)


def test_k42_no_finite_epoch_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no epoch with a finite validation loss; lower training"):
        train(tmp_path, with_validation([math.nan] * 3), epochs=3)


def test_k42_a_rate_of_1e30_stops_with_step_rate_and_rows(tmp_path: Path) -> None:
    wanted = (
        r"the loss must be finite, however it is not at step \d \(lr 1e\+30, rows \d+(, \d+)+ and \d+ more\)"
    )
    with pytest.raises(InputError, match=wanted):
        train(tmp_path, optimizer={"lr": 1e30}, schedule={"name": "constant"}, clip_norm=None)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_f16_a_poisoned_row_is_named_before_the_optimizer_steps(tmp_path: Path, value: float) -> None:
    poisoned = rows(150)
    poisoned.numeric[77, 1] = value
    model, steps = toy(), []
    with (
        at_each_step(steps.append),
        pytest.raises(InputError, match=r"not at step \d \(lr [\d.e-]+, rows 1077\); no epoch was finished"),
    ):
        train(tmp_path, training=poisoned, model=model)
    assert len(steps) < 5
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())


def test_k42_the_last_finite_checkpoint_is_kept(tmp_path: Path) -> None:
    poisoned = rows(150)

    def tell(epoch: Epoch) -> None:
        if epoch.epoch == 2:
            poisoned.numeric[77, 1] = math.nan

    with pytest.raises(InputError, match=r"rows 1077\); the checkpoint of epoch 2 is kept"):
        train(tmp_path, training=poisoned, tell=tell)
    # With the row mended, training goes on from there, to where it would have come without the accident.
    mended, trained = train(tmp_path)
    whole, _ = train(tmp_path / "whole")
    assert trained.resumed_from == 2
    assert same(mended, whole)


def test_f16_a_gradient_that_is_not_finite_stops_too(tmp_path: Path) -> None:
    def loss(outputs: Tensor, target: Tensor) -> Tensor:
        # Zero, and its derivative is infinity times zero.
        return (outputs * 0).sum().sqrt()

    with pytest.raises(InputError, match=r"the gradient must be finite, however it is not at step 0 \(lr"):
        train(tmp_path, loss)


# Killed and resumed


def outcome(model: nn.Module, trained: Trained) -> dict[str, Any]:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return state | {"history": [asdict(epoch) for epoch in trained.history], "best": trained.best_epoch}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) if isinstance(value, Tensor) else value == other[name]
        for name, value in one.items()
    )


def die(folder: Path, after: int, sleep: float = 0.0) -> None:
    """Train, and die at once when an epoch's checkpoint is written."""

    def slow(outputs: Tensor, target: Tensor) -> Tensor:
        time.sleep(sleep)
        return CROSS_ENTROPY(outputs, target)

    train(folder, slow, tell=lambda epoch: os._exit(9) if epoch.epoch == after else None)


def die_each(folder: Path, *after: int) -> None:
    """A process for each death; they fork before torch has a thread, and after its slow first optimizer."""
    optimizers.build(toy(), settings().optimizer)
    for epoch in after:
        if os.fork() == 0:
            die(folder / str(epoch), epoch)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 9


def child(call: str) -> subprocess.Popen[bytes]:
    """A process that imports this file and makes a call."""
    code = f"from pathlib import Path; import test_loop; test_loop.{call}"
    return subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent)


def test_k35_k36_killed_after_any_epoch_it_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = outcome(*train(tmp_path / "whole"))
    assert child(f"die_each(Path({str(tmp_path)!r}), 1, 3, 5, 6)").wait(60) == 0
    for after in (1, 3, 5, 6):
        model, trained = train(tmp_path / str(after))
        assert trained.resumed_from == after
        assert equal(outcome(model, trained), whole)


def test_k36_killed_within_an_epoch_it_resumes_to_the_same_bits(tmp_path: Path) -> None:
    running = child(f"die(Path({str(tmp_path)!r}), after=0, sleep=0.03)")
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "checkpoints" / "epoch-000002").exists():
            assert time.monotonic() < deadline
            assert running.poll() is None
            time.sleep(0.005)
        # Two steps or so into epoch 3.
        time.sleep(0.08)
        running.send_signal(signal.SIGKILL)
        assert running.wait(60) == -signal.SIGKILL
    finally:
        running.kill()
    model, trained = train(tmp_path)
    assert 2 <= trained.resumed_from < 6
    assert equal(outcome(model, trained), outcome(*train(tmp_path / "whole")))


class Stop(Exception):
    pass


def interrupted(folder: Path, after: int, **changed: Any) -> None:
    def tell(epoch: Epoch) -> None:
        if epoch.epoch == after:
            raise Stop

    with pytest.raises(Stop):
        train(folder, tell=tell, **changed)


def test_k37_the_rate_goes_on_where_it_was_also_when_resumed_twice(tmp_path: Path) -> None:
    whole = rates(tmp_path / "whole")
    seen: list[float] = []
    with at_each_step(lambda optimizer: seen.append(optimizer.param_groups[0]["lr"])):
        interrupted(tmp_path, 2)
        interrupted(tmp_path, 3)
        train(tmp_path)
    assert seen == whole


def test_a_resumed_training_still_knows_a_best_epoch_from_before(tmp_path: Path) -> None:
    changed: dict[str, Any] = {"epochs": 12, "optimizer": {"lr": 0.3}, "schedule": {"name": "constant"}}
    whole = outcome(*train(tmp_path / "whole", **changed))
    after = whole["best"] + 1
    assert after < 12
    interrupted(tmp_path, after, **changed)
    model, trained = train(tmp_path, **changed)
    assert trained.best_epoch < trained.resumed_from == after
    assert equal(outcome(model, trained), whole)


def test_patience_counts_on_over_an_interruption(tmp_path: Path) -> None:
    losses = [0.9, 0.5, 0.6, 0.7, 0.8, 0.4]
    with pytest.raises(StopIteration):
        train(tmp_path, with_validation(losses[:3]), early_stopping={"patience": 3})
    _, trained = train(tmp_path, with_validation(losses[3:]), early_stopping={"patience": 3})
    assert (trained.resumed_from, len(trained.history), trained.best_epoch) == (3, 5, 2)


def test_k35_resuming_a_finished_training_changes_nothing(tmp_path: Path) -> None:
    whole = outcome(*train(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    told: list[Epoch] = []
    model, trained = train(tmp_path, tell=told.append)
    assert trained.resumed_from == 6
    assert told == []
    assert equal(outcome(model, trained), whole)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_resuming_a_training_that_stopped_early_changes_nothing(tmp_path: Path) -> None:
    losses = [0.4, 0.5, 0.6]
    model, first = train(tmp_path, with_validation(losses), early_stopping={"patience": 2})
    again, second = train(tmp_path, with_validation([]), early_stopping={"patience": 2})
    assert second.history == first.history
    assert second.resumed_from == 3
    assert same(model, again)


@pytest.mark.parametrize("damage", ["cut", "flipped", "no manifest"])
def test_k50_f09_a_damaged_checkpoint_costs_one_epoch_and_no_bit(tmp_path: Path, damage: str) -> None:
    whole = outcome(*train(tmp_path / "whole"))
    interrupted(tmp_path, 4)
    newest = tmp_path / "checkpoints" / "epoch-000004"
    content = (newest / "state.pt").read_bytes()
    if damage == "cut":
        (newest / "state.pt").write_bytes(content[:-1])
    elif damage == "flipped":
        middle = len(content) // 2
        (newest / "state.pt").write_bytes(
            content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        )
    else:
        (newest / "manifest.json").unlink()
    model, trained = train(tmp_path)
    assert trained.resumed_from == 3
    assert equal(outcome(model, trained), whole)


# Alone


def test_training_needs_neither_orchestrators_nor_tables_nor_declarations() -> None:
    code = (
        "import sys, gristmill.training.loop, gristmill.training.preflight, gristmill.models.mlp\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert {"torch", "numpy"} <= loaded
    assert not loaded & {"dagster", "duckdb", "dvc", "ibis", "pandera", "pydantic", "sklearn", "yaml"}
