from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from sklearn import metrics

from gristmill import models, parts
from gristmill.encode import Encoder
from gristmill.errors import EnvironmentFault, GateRefused, InputError
from gristmill.network import HISTORY_FILE_NAME

if TYPE_CHECKING:
    from tests.conftest import Build, Mill, Milled

KINDS = ("binary", "multiclass", "regression")


def history(mill: Mill) -> list[dict[str, float]]:
    with (mill.output("network") / HISTORY_FILE_NAME).open(newline="") as stream:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(stream)]


def speed(mill: Mill) -> dict[str, float]:
    found: dict[str, float] = json.loads((mill.output("network").parent / "speed.json").read_text())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_k44_the_saved_weights_have_the_lowest_validation_loss_of_the_history(
    milled: Milled, kind: str
) -> None:
    mill = milled(kind)
    data = parts.training(mill.work("network"))
    found = models.load("mlp", mill.output("network")).predict(data.validation.encoded)
    if kind == "regression":
        loss = metrics.mean_squared_error(data.validation.target, found) / data.train.target.var()
    else:
        loss = metrics.log_loss(data.validation.target, found)
    losses = [epoch["validation_loss"] for epoch in history(mill)]
    values = mill.record("network").values
    assert loss == pytest.approx(min(losses), rel=1e-5)
    assert values["validation_loss"] == min(losses)
    assert values["best_epoch"] == losses.index(min(losses)) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_score_is_scikit_learns_of_the_saved_network(milled: Milled, kind: str) -> None:
    mill = milled(kind)
    validation = parts.training(mill.work("network")).validation
    found = models.load("mlp", mill.output("network")).predict(validation.encoded)
    name, score = {
        "binary": ("roc_auc", lambda: metrics.roc_auc_score(validation.target, found[:, 1])),
        "multiclass": ("accuracy", lambda: metrics.accuracy_score(validation.target, found.argmax(axis=1))),
        "regression": ("rmse", lambda: metrics.root_mean_squared_error(validation.target, found)),
    }[kind]
    assert mill.record("network").values[f"{name}_network"] == pytest.approx(score(), rel=1e-12)


def test_it_is_judged_finite_with_its_history_in_the_reports(milled: Milled) -> None:
    mill = milled("regression")
    [check] = mill.record("network").checks
    assert (check.code, check.verdict, check.evaluated) == ("GM401", "passed", 96)
    best = min(history(mill), key=lambda epoch: epoch["validation_loss"])
    assert (
        check.text
        == f"12 epochs, the best {best['epoch']:.0f} with validation loss {best['validation_loss']:.4f}"
    )
    assert [epoch["epoch"] for epoch in history(mill)] == list(range(1, 13))
    shown = mill.workspace.reports("toy") / HISTORY_FILE_NAME
    assert shown.read_bytes() == (mill.output("network") / HISTORY_FILE_NAME).read_bytes()
    assert mill.record("network").values["parameters"] == 387
    assert (speed(mill)["device"], speed(mill)["resumed_from"]) == ("cpu", 0)


def test_network_and_baseline_are_given_the_same_columns(milled: Milled) -> None:
    for kind in KINDS:
        mill = milled(kind)
        assert Encoder.load(mill.output("network")) == Encoder.load(mill.output("baseline"))


def test_the_same_declaration_makes_the_same_bytes(milled: Milled, copied: Milled) -> None:
    again = copied("regression").make("network", force=True)
    assert not again.reused
    assert again.record.output == milled("regression").record("network").output


def test_another_seed_makes_another_network(milled: Milled, copied: Milled) -> None:
    mill = copied("regression")
    attributes = mill.declaration.spec.model_dump(mode="json", exclude_defaults=True)
    mill.declare(**attributes | {"training": attributes["training"] | {"seed": 5}})
    mill.through("preflight")
    found = mill.make("network").record.output
    assert found["mlp.safetensors"] != milled("regression").record("network").output["mlp.safetensors"]


# What a process does that is killed when epoch 3 is finished.
_KILLED = """
import os, sys
from pathlib import Path
from gristmill import plan
from gristmill.workspace import Workspace

def progress(text, done, total):
    if text.startswith("epoch 3:"):
        os._exit(9)

workspace = Workspace(Path(sys.argv[1]))
plan.perform(workspace, workspace.pipeline("toy"), plan.stage("network"), "run", force=True, progress=progress)
"""


def test_k36_a_killed_training_is_continued_to_the_same_bytes(milled: Milled, copied: Milled) -> None:
    mill = copied("regression")
    ran = subprocess.run([sys.executable, "-c", _KILLED, str(mill.workspace.root)], check=False)
    assert ran.returncode == 9
    assert mill.record("network") == milled("regression").record("network")
    told: list[str] = []
    outcome = mill.make("network", force=True, progress=lambda text, done, total: told.append(text))
    assert not outcome.reused
    assert speed(mill)["resumed_from"] == 3
    assert [text.partition(":")[0] for text in told] == [f"epoch {number}" for number in range(4, 13)]
    assert outcome.record.output == milled("regression").record("network").output
    # Its checkpoints are of no use any more.
    assert not mill.workspace.work("toy", "network").exists()


class Stop(Exception):
    pass


def test_m10_another_declaration_does_not_continue_what_was_killed(copied: Milled) -> None:
    mill = copied("regression")

    def stop(text: str, done: int, total: int) -> None:
        if text.startswith("epoch 3:"):
            raise Stop

    with pytest.raises(Stop):
        mill.make("network", force=True, progress=stop)
    attributes = mill.declaration.spec.model_dump(mode="json", exclude_defaults=True)
    mill.declare(**attributes | {"training": attributes["training"] | {"clip_norm": 0.5}})
    mill.through("preflight")
    mill.make("network")
    assert speed(mill)["resumed_from"] == 0


def test_k42_a_training_that_breaks_down_leaves_no_network(build: Build) -> None:
    mill = build(
        "binary", training={"optimizer": {"lr": 1e30}, "schedule": {"name": "constant"}, "device": "cpu"}
    )
    mill.through("preflight")
    with pytest.raises(
        InputError, match=r"the loss must be finite, however .* \(lr 1e\+30, rows \d+.*lower training"
    ):
        mill.make("network")
    assert not mill.output("network").parent.exists()


def test_t04_a_gpu_that_is_not_there_is_refused(build: Build) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    mill = build("binary", training={"device": "cuda"})
    mill.through("split")
    with pytest.raises(EnvironmentFault, match="device cuda asked, none found; declare cpu or auto"):
        mill.make("preflight")


# Preflight


@pytest.mark.parametrize(
    ("kind", "theory"), [("binary", math.log(2)), ("multiclass", math.log(3)), ("regression", 1)]
)
def test_preflight_learns_one_batch_and_starts_where_theory_says(
    milled: Milled, kind: str, theory: float
) -> None:
    record = milled(kind).record("preflight")
    overfit, start = record.checks
    assert (overfit.code, overfit.verdict, overfit.evaluated) == ("GM302", "passed", 16)
    assert isinstance(overfit.value, float)
    assert isinstance(overfit.limit, float)
    assert 0 < overfit.value <= overfit.limit
    assert (start.code, start.verdict) == ("GM303", "passed")
    assert record.values["theory"] == pytest.approx(theory, rel=0.15 if kind == "regression" else 1e-6)
    assert record.values["first_loss"] == start.value == pytest.approx(record.values["theory"], rel=0.25)
    assert 0 < record.values["overfit_steps"] < 1000


def test_t11_a_network_that_learns_too_slowly_is_held_up(build: Build) -> None:
    # One hidden unit cannot know 16 rows of three classes by heart.
    mill = build("multiclass", network={"hidden": [1]})
    mill.through("split")
    overfit, _ = mill.make("preflight").record.checks
    assert (overfit.code, overfit.verdict) == ("GM302", "failed")
    assert overfit.way_out == "check labels, a frozen layer or a detached loss"
    with pytest.raises(GateRefused, match=r"toy/preflight must have passed, however it did not \(GM302"):
        mill.make("network")
    assert np.isfinite(float(overfit.value or 0))
