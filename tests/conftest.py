"""Small worlds: a workspace in a temporary folder, with what a test declares in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from gristmill import files, plan, records, snapshot
from gristmill.declaration import Declaration
from gristmill.plan import Outcome
from gristmill.records import Input, Record
from gristmill.work import Work
from gristmill.workspace import Workspace

Declare = Callable[..., Path]


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    """Write a declaration (text as it is, or attributes) into a workspace at tmp_path; gives its file."""

    def write(content: str | bytes | dict[str, Any], name: str = "flights") -> Path:
        (tmp_path / "dvc.yaml").touch()
        file = tmp_path / "pipelines" / name / "defs.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            content = yaml.safe_dump({"type": "gristmill.Pipeline", "attributes": content}, sort_keys=False)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    return write


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty workspace at tmp_path, with a folder for data."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "dvc.yaml").touch()
    return Workspace(tmp_path)


# Pipelines that run: a small table of each kind of task, with text codes such as 007, missing values,
# truth values and months, and a declaration that mills it in seconds.

KINDS = ("binary", "multiclass", "regression")
_TARGETS = {"binary": "bought", "multiclass": "species", "regression": "price"}
_TASKS: dict[str, dict[str, Any]] = {
    "binary": {"positive": "yes", "metric": "roc_auc", "accept": {"at_least": 0.7}},
    "multiclass": {"metric": "accuracy", "accept": {"at_least": 0.5}},
    "regression": {"metric": "rmse", "accept": {"at_most": 25.0}},
}


def table(kind: str, rows: int = 480, seed: int = 0, noise: bool = False) -> str:
    """A CSV of the columns amount, visits, code, month, member and the target, which `noise` makes random."""
    random = np.random.default_rng(seed)
    amount, visits = random.normal(50, 10, rows), random.integers(0, 9, rows)
    code = random.choice(["007", "7", "A1", ""], rows)
    month, member = random.integers(1, 5, rows), random.choice(["True", "False", ""], rows)
    effect = {"007": 2.0, "7": -2.0, "A1": 0.5, "": 0.0}
    signal = (amount - 50) / 10 + np.array([effect[text] for text in code])
    signal += np.where(month == 2, 1.5, 0) + np.where(member == "True", 1.0, 0)
    # For a linear model, for trees and for a network, each its own champion.
    if kind == "multiclass":
        signal = np.where((visits > 4) == (member == "True"), 1.5, -1.0) + 0.3 * signal
    if kind == "regression":
        signal += (visits - 4) * (amount - 50) / 8
    signal = random.permutation(signal) if noise else signal
    if kind == "binary":
        target = np.where(signal + random.normal(0, 0.7, rows) > 0.7, "yes", "no")
    elif kind == "multiclass":
        target = np.digitize(signal + random.normal(0, 0.4, rows), [-0.5, 1.5]) + 10
    else:
        target = np.round(100 + 10 * signal + random.normal(0, 3, rows), 3)
    shown = [f"{value:.3f}" if random.random() > 0.05 else "" for value in amount]
    lines = zip(shown, visits, code, month, member, target, strict=True)
    return "".join(
        ",".join(map(str, line)) + "\n"
        for line in [("amount", "visits", "code", "month", "member", _TARGETS[kind]), *lines]
    )


def declared(kind: str, **changed: Any) -> dict[str, Any]:
    """A declaration's attributes for `table(kind)`, some sections of it changed."""
    return {
        "source": {"path": "data/x.csv"},
        "task": {"kind": kind, "target": _TARGETS[kind]} | _TASKS[kind],
        "features": {"categorical": ["month", "member"]},
        "validation": {"missing": {"max_share": 0.5}, "duplicates": {"max_share": 0.05}},
        "split": {"test": 0.25, "validation": 0.2, "seed": 1},
        "baseline": {"rounds": 40, "patience": 5, "max_depth": 3},
        "network": {"hidden": [16], "dropout": 0.1},
        "training": {"epochs": 12, "batch_size": 32, "optimizer": {"lr": 0.02}, "device": "cpu"},
        "evaluation": {"resamples": 100},
    } | changed


@dataclass(frozen=True)
class Mill:
    """A workspace with one pipeline, whose stages a test makes."""

    workspace: Workspace
    pipeline: str = "toy"

    @property
    def declaration(self) -> Declaration:
        return self.workspace.pipeline(self.pipeline)

    def declare(self, **attributes: Any) -> Mill:
        file = self.workspace.folder(self.pipeline) / "defs.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {"type": "gristmill.Pipeline", "attributes": attributes}
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return self

    def make(self, stage: str, **options: Any) -> Outcome:
        return plan.perform(self.workspace, self.declaration, plan.stage(stage), "run", **options)

    def through(self, last: str) -> Outcome:
        """Make every stage that `last` needs, and `last`."""
        return [self.make(stage.name) for stage in plan.through(last)][-1]

    def output(self, stage: str) -> Path:
        return self.workspace.stage_folder(self.pipeline, stage) / records.OUTPUT

    def record(self, stage: str) -> Record:
        found = records.read(self.output(stage).parent)
        assert found is not None
        return found

    def forge(self, stage: str) -> None:
        """Make a stage's record agree with files that were edited after it, and later records with it."""
        found = self.record(stage)
        digests = files.tree_digests(self.output(stage))
        forged = found.with_result(digests, found.checks, found.values, found.reports)
        forged.write(self.output(stage).parent)
        for later in plan.STAGES:
            if stage in later.reads and (record := records.read(self.output(later.name).parent)):
                inputs = record.inputs | {stage: forged.output_digest}
                replace(record, inputs=inputs).write(self.output(later.name).parent)

    def work(self, stage: str) -> Work:
        """What a stage is handed, for a test that looks at the same rows."""
        upstream = plan.stage(stage).upstream
        inputs = {
            name: records.demand(self.output(name).parent, self.pipeline, name)
            for name in upstream
            if self.output(name).is_dir()
        }
        nowhere = self.workspace.root / "nowhere"
        return Work(self.workspace, self.declaration, inputs, nowhere, nowhere, "run")


Build = Callable[..., Mill]
Milled = Callable[[str], Mill]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A workspace at tmp_path with the table and the declaration of a kind; nothing is made yet."""

    def write(kind: str, csv: str | None = None, **changed: Any) -> Mill:
        return _build(tmp_path, kind, csv, **changed)

    return write


@pytest.fixture(scope="session")
def milled(tmp_path_factory: pytest.TempPathFactory) -> Milled:
    """The pipeline of a kind with all stages made, once for all tests: look, do not touch."""
    made: dict[str, Mill] = {}

    def get(kind: str) -> Mill:
        if kind not in made:
            made[kind] = _build(tmp_path_factory.mktemp(kind), kind, None)
            made[kind].through("model")
        return made[kind]

    return get


@pytest.fixture
def copied(milled: Milled, tmp_path: Path) -> Milled:
    """A finished pipeline of a kind that a test may change."""

    def copy(kind: str) -> Mill:
        shutil.copytree(milled(kind).workspace.root, tmp_path / kind)
        return Mill(Workspace(tmp_path / kind))

    return copy


def _build(root: Path, kind: str, csv: str | None, **changed: Any) -> Mill:
    (root / "data").mkdir()
    (root / "dvc.yaml").touch()
    (root / "data" / "x.csv").write_text(table(kind) if csv is None else csv)
    return Mill(Workspace(root)).declare(**declared(kind, **changed))


# One stage alone, on a snapshot of a few columns.


def work_on(root: Path, columns: dict[str, Any] | pa.Table, **changed: Any) -> Work:
    """A stage's work in a workspace at `root`, its snapshot holding these columns."""
    (root / "dvc.yaml").touch()
    folder = root / "pipelines" / "toy"
    folder.mkdir(parents=True, exist_ok=True)
    attributes = {
        "source": {"path": "x.parquet"},
        "task": {"kind": "regression", "target": "y", "metric": "rmse", "accept": {"at_most": 1}},
        "split": {"test": 0.2, "validation": 0.1},
    } | changed
    body = {"type": "gristmill.Pipeline", "attributes": attributes}
    (folder / "defs.yaml").write_text(yaml.safe_dump(body, sort_keys=False))
    pq.write_table(pa.table(columns), root / "x.parquet")
    workspace = Workspace.find(root)
    places = [Path(tempfile.mkdtemp(dir=root)) for _ in range(3)]
    work = Work(workspace, workspace.pipeline("toy"), {}, places[0], places[2], "run")
    snapshot.make(work)
    return replace(work, inputs={"snapshot": finished("snapshot", places[0])}, output=places[1])


def finished(stage: str, folder: Path) -> Input:
    """A finished stage's output, as the stage behind it is handed it."""
    return Input(Record("toy", stage, {}, {}, {}, {}), folder)
