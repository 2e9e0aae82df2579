"""The report, from records written by hand: what it says at each point of a pipeline's way."""

from __future__ import annotations

import csv
import html
import json
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from gristmill import files, plan, records, report
from gristmill.records import Check, Input
from gristmill.workspace import Workspace
from tests.conftest import Declare

NAME = "flights"
ATTRIBUTES: dict[str, Any] = {
    "description": "Will a flight leave <late>?",
    "source": {"path": "flights.csv"},
    "task": {
        "kind": "binary",
        "target": "late",
        "positive": True,
        "metric": "roc_auc",
        "accept": {"at_least": 0.7, "above_baseline": 0.0},
    },
    "split": {"test": 0.2, "validation": 0.1, "time_on": "departed_at", "gap": "1d", "seed": 7},
}
PASSED = Check("GM103", "duplicates", "passed", 12_000, "0 of 12,000 rows repeat an earlier one", 0, 0.0)
FAILED = Check(
    "GM104",
    "missing",
    "failed",
    6,
    "1 of 6 features misses too many values: temp",
    0.4,
    0.3,
    ({"column": "temp", "share": 0.400000000001},),
    "exclude the column, or fill it upstream",
)


class World:
    """A workspace whose stages are made by writing down what they would have left."""

    def __init__(self, root: Path, declare: Declare, attributes: dict[str, Any]) -> None:
        declare(attributes, NAME)
        self.workspace = Workspace(root)
        self.declaration = self.workspace.pipeline(NAME)

    def make(
        self,
        stage: str,
        output: dict[str, bytes | dict[str, Any]] | None = None,
        checks: tuple[Check, ...] = (),
        values: dict[str, Any] | None = None,
        beside: dict[str, Any] | None = None,
    ) -> None:
        made = plan.stage(stage)
        folder = self.workspace.stage_folder(NAME, stage)
        inputs = {name: self._input(name) for name in made.upstream}
        content = dict(output or {})
        if made.is_gate and all(check.passed for check in checks):
            content[records.PASSED_FILE_NAME] = {"stage": stage}
        for name, body in content.items():
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            files.write_bytes(folder / records.OUTPUT / name, text)
        run = {"run": "r1", "by": "gristmill", "host": "h", "pid": 1, "started": "2026-03-04T05:06:07+0000"}
        for name, body in {records.RUN_FILE_NAME: run | {"seconds": 0.25}, **(beside or {})}.items():
            files.write_json(folder / name, body)
        digests = files.tree_digests(folder / records.OUTPUT) if content else {}
        planned = plan.plan_record(self.workspace, self.declaration, made, inputs)
        planned.with_result(digests, checks, values or {}).write(folder)

    def _input(self, stage: str) -> Input:
        folder = self.workspace.stage_folder(NAME, stage)
        record = records.read(folder)
        assert record is not None
        return Input(record, folder / records.OUTPUT)

    def report(self) -> str:
        file = report.write(self.workspace, self.declaration)
        assert file == self.workspace.root / "pipelines" / NAME / "reports" / "report.html"
        return file.read_text()


@pytest.fixture
def world(tmp_path: Path, declare: Declare) -> World:
    return World(tmp_path, declare, ATTRIBUTES)


def column(role: str, kind: str, **facts: Any) -> dict[str, Any]:
    return {"role": role, "type": kind, "missing": 0, "distinct": 2, **facts}


def with_data(world: World, *checks: Check, columns: dict[str, Any] | None = None) -> None:
    profile = {
        "late": column("target", "boolean"),
        "distance": column("numeric feature", "float64", min=80.0, mean=1336.123456789, max=25_983.0),
        "temp": column("numeric feature", "float64", missing=4_800, min=None, mean=None, max=None),
    }
    world.make("snapshot", {"part-00000.parquet": b"rows"}, values={"rows": 12_000, "columns": 8})
    body = {"rows": 12_000, "columns": columns or profile}
    world.make("validation", {report.VALIDATION: body}, checks, {"rows": 12_000, "features": 6})


def with_models(world: World) -> None:
    with_data(world, PASSED)
    counts = {"train": 8_400, "validation": 1_128, "test": 2_400, "gap": 72, "no_target": 0}
    cuts = {"validation_from": "2013-08-05T16:00:00", "test_from": "2013-09-24T16:00:00"}
    world.make("split", {"split.parquet": b"parts"}, values=counts | cuts)
    validation = {"dummy": 0.5, "linear": 0.70123456, "xgboost": 0.74}
    world.make("baseline", {report.BASELINE: {"best": "xgboost", "validation": validation}})
    world.make("preflight", {"preflight.csv": b""})
    history = "epoch,train_loss,validation_loss\n1,0.7,0.69\n2,0.6,0.62\n3,0.5,0.64\n"
    values = {"best_epoch": 2, "epochs": 3, "parameters": 38_064, "roc_auc_network": 0.76}
    speed = {"rows_per_second": 212_000, "resumed_from": 0, "device": "cpu"}
    world.make("network", {report.TRAINING: history.encode()}, (), values, {report.SPEED: speed})


def scores(champion: str, network: float, xgboost: float, low: float, high: float) -> dict[str, Any]:
    test = {"dummy": 0.5, "linear": 0.7, "xgboost": xgboost, "network": network}
    return {
        "metric": "roc_auc",
        "champion": champion,
        "best_baseline": "xgboost",
        "test_rows": 2_400,
        "validation": {"dummy": 0.5, "linear": 0.70123456, "xgboost": 0.74, "network": 0.76},
        "test": {model: {"roc_auc": score, "log_loss": None} for model, score in test.items()},
        "intervals": {
            model: {"roc_auc": {"low": score - 0.02, "high": score + 0.02}, "log_loss": None}
            for model, score in test.items()
        },
        "network_minus_baseline": {"roc_auc": {"low": low, "high": high}, "log_loss": None},
        "confidence": 0.95,
    }


def png() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixel = zlib.compress(b"\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


def words(page: str) -> str:
    """The text of the page as it is read, without markup and with single spaces."""
    body = page.partition("<body>")[2]
    return html.unescape(" ".join(re.sub(r"<[^>]*>", " ", body).split()))


def test_nothing_made_yet(world: World) -> None:
    text = words(world.report())
    assert "flights not finished" in text
    assert "Nothing is made yet. Go on with gristmill run flights" in text
    assert "wanted roc_auc at least 0.7, and no worse than the best baseline" in text
    for heading in ("Models", "Checks", "Data", "Split", "How it was made"):
        assert heading not in text


def test_failed_validation_names_the_check_and_the_way_out(world: World) -> None:
    with_data(world, PASSED, FAILED)
    page = world.report()
    text = words(page)
    assert "flights stopped at validation" in text
    assert "GM104 missing failed: 1 of 6 features misses too many values: temp." in text
    assert "What to do: exclude the column, or fill it upstream." in text
    assert "<details open><summary>what to do, and 1 case</summary>" in page
    assert "column share temp 0.4" in text
    assert "split, baseline, preflight, network, evaluation, model not made yet" in text
    # The data is told of although it did not pass: missing values as a bar, numbers cut and set apart.
    assert "temp failed numeric float64 40.0% 2 - - -" in text
    assert 'style="width: 40.0%"' in page
    assert "distance numeric float64 0% 2 80 1,336 25,983" in text


def test_models_are_told_of_before_the_test_rows_are_opened(world: World) -> None:
    with_models(world)
    text = words(world.report())
    assert "6 of 8 stages are made; evaluation is next." in text
    assert "dummy 0.5000 linear 0.7012 xgboost 0.7400 network 0.7600" in text
    assert "The test rows are not opened yet." in text
    assert "train 8,400 70.0% validation 1,128 9.4% 2013-08-05 16:00:00 test 2,400 20.0%" in text
    assert "in the gap 72 0.6%" in text
    assert "best epoch 2, validation loss 0.62" in text
    assert "parameters 38,064" in text
    assert "212,000 rows/s on cpu" in text


def test_accepted(world: World) -> None:
    with_models(world)
    gate = Check(
        "GM501", "acceptance", "passed", 2_400, "roc_auc of network is 0.7612, wanted >= 0.7", 0.7612, 0.7
    )
    found = scores("network", 0.7612345678901234, 0.742, 0.004, 0.031)
    world.make("evaluation", {report.METRICS: found, "roc.png": png(), "calibration.png": png()}, (gate,))
    lineage = {
        "run": "run-77",
        "made_at": "2026-03-04T05:06:07+00:00",
        "seeds": {"split": 7, "training": 0},
        "code": {"commit": "79765af042c34ec76bee5876a5a33c0dae1b1176", "dirty": True, "branch": "main"},
        "environment": {
            "python": "3.12.9",
            "cpu": "Example CPU",
            "logical_cores": 64,
            "memory_gib": 251.5,
            "gpus": [],
            "threads": {"OMP_NUM_THREADS": None, "torch": 8},
            "packages": {"torch": "2.99.1", "left-pad": "1"},
        },
    }
    parity = Check("GM601", "parity", "passed", 2_400, "0 of 2,400 test rows predicted otherwise", 0, 0)
    world.make("model", {"model.json": {}}, (parity,), beside={report.LINEAGE: lineage})
    page = world.report()
    text = words(page)
    assert "flights accepted" in text
    assert (
        "network reaches roc_auc 0.7612 on 2,400 test rows, 0.0192 better than the best baseline, xgboost."
        in text
    )
    assert "network champion 0.7600 0.7612 0.7412 to 0.7812" in text
    assert (
        "network minus xgboost, the best baseline, on the same test rows: +0.0192 (+0.0040 to +0.0310)"
        in text
    )
    assert "the network is better, by more than chance explains" in text
    assert "log_loss ↓ undefined undefined undefined" in text
    assert page.count('src="data:image/png;base64,') == 2
    assert page.index('alt="roc"') < page.index('alt="calibration"')
    assert "79765af042c3 on main, the working tree with its changes" in text
    assert "torch 2.99.1" in text
    assert "left-pad" not in text
    assert "Example CPU, 64 cores, 251.5 GiB" in text
    assert "split 7 training 0" in text
    assert "snapshot 0.2 s 2026-03-04 05:06:07 +0000" in text
    # Nothing is fetched, nothing runs, and no number shows what the float happens to hold.
    assert "<script" not in page
    assert not re.search(r"https?://|url\(", page)
    assert not re.search(r"\d\.\d{7}", re.sub(r"base64,[^\"]*", "", page))


def test_refused_says_why(world: World) -> None:
    with_models(world)
    failed = Check(
        "GM501", "acceptance", "failed", 2_400, "roc_auc of network is 0.6612, wanted >= 0.7", 0.6612, 0.7
    )
    world.make("evaluation", {report.METRICS: scores("network", 0.6612, 0.66, -0.01, 0.012)}, (failed,))
    text = words(world.report())
    assert "flights not accepted" in text
    assert "GM501 acceptance failed: roc_auc of network is 0.6612, wanted >= 0.7." in text
    assert "the interval holds zero, so these test rows cannot tell the two apart" in text
    assert "model not made yet" in text


def test_a_plain_champion_is_said_to_be_one(world: World) -> None:
    with_models(world)
    world.make("evaluation", {report.METRICS: scores("xgboost", 0.72, 0.742, -0.03, -0.01)})
    world.make("model", {"model.json": {}})
    text = words(world.report())
    assert (
        "it is a plain model, which the network did not beat by more than chance on the validation rows."
        in text
    )
    assert "the network is worse, by more than chance explains" in text
    assert "other metrics xgboost 95% interval network" in text


def test_what_is_not_verified_stops(world: World) -> None:
    with_data(world, Check("GM102", "target", "not verified", 0, "target 'late' has no value"))
    text = words(world.report())
    assert "GM102 target could not be verified: target 'late' has no value." in text


def test_earlier_work_is_no_part_of_the_report(world: World) -> None:
    with_models(world)
    world.make("evaluation", {report.METRICS: scores("network", 0.76, 0.74, 0.01, 0.03)})
    with_data(world, PASSED)
    assert "7 of 8 stages are made" in words(world.report())
    world.make("snapshot", {"part-00000.parquet": b"other rows"}, values={"rows": 12_001, "columns": 8})
    text = words(world.report())
    assert "1 of 8 stages are made; validation is next." in text
    assert "to be made again; what is there is of earlier data or settings" in text
    assert "champion" not in text
    assert "rows 12,001" in text


def test_other_settings_make_what_is_there_earlier_work(tmp_path: Path, declare: Declare) -> None:
    with_models(World(tmp_path, declare, ATTRIBUTES))
    changed = World(tmp_path, declare, ATTRIBUTES | {"training": {"epochs": 3}})
    assert "4 of 8 stages are made; preflight is next." in words(changed.report())


def test_an_edited_record_is_named_and_stops_nothing(world: World) -> None:
    with_data(world, PASSED)
    file = world.workspace.stage_folder(NAME, "validation") / records.FILE_NAME
    file.write_text(file.read_text().replace("12,000", "13,000"))
    text = words(world.report())
    assert "1 of 8 stages are made; validation is next." in text
    assert "it was edited; make the stage again" in text


def test_missing_files_leave_their_part_out(world: World) -> None:
    with_models(world)
    for stage in ("validation", "network"):
        for file in (world.workspace.stage_folder(NAME, stage) / records.OUTPUT).iterdir():
            file.unlink()
    text = words(world.report())
    assert "Training of the network" not in text
    assert "duplicates passed 0 of 12,000 rows" in text


def test_everything_is_escaped(tmp_path: Path, declare: Declare) -> None:
    evil = "<img src=x onerror=alert(1)>"
    quoted = f"\"'>{evil}"
    world = World(tmp_path, declare, ATTRIBUTES | {"description": quoted, "owners": ["team:a"]})
    check = Check("GM104", evil, "failed", 6, quoted, quoted, quoted, ({evil: quoted},), quoted)
    columns = {evil: column("numeric feature", evil), quoted: column("left out", "string")}
    with_data(world, check, columns=columns)
    page = world.report()
    assert evil not in page
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "\"'>" not in page


def test_wide_tables_are_cut_with_a_word(world: World) -> None:
    columns = {f"c{place}": column("numeric feature", "int64") for place in range(350)}
    with_data(world, PASSED, columns=columns)
    text = words(world.report())
    assert "280 more columns" in text
    assert "50 further columns are in validation.json" in text


def test_equal_records_give_equal_bytes(world: World) -> None:
    with_models(world)
    assert world.report() == world.report()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (True, "True"),
        ("0.69 +- 50%", "0.69 +- 50%"),
        (0, "0"),
        (0.0, "0"),
        (1234567, "1,234,567"),
        (2598.0, "2,598"),
        (1336.1005, "1,336"),
        (12.056361135698221, "12.06"),
        (-0.0233676, "-0.02337"),
        (0.5, "0.5"),
        (0.00001234567, "1.235e-05"),
        (float("inf"), "inf"),
        (10**20, "1e+20"),
    ],
)
def test_numbers_are_for_people(value: Any, shown: str) -> None:
    assert report._number(value) == shown


@pytest.mark.parametrize(
    "losses", [[(0.5, 0.5)], [(2.0, 1.5), (0.01, 0.1)], [(1e-9, 0.0), (0.3, 0.2)], [(5e4, 1.0)]]
)
def test_any_training_can_be_drawn(world: World, losses: list[tuple[float, float]]) -> None:
    with_data(world, PASSED)
    world.make("split", {"split.parquet": b""}, values={"train": 1, "validation": 1, "test": 1})
    world.make("preflight")
    folder = world.workspace.stage_folder(NAME, "network") / records.OUTPUT
    folder.mkdir(parents=True)
    with (folder / report.TRAINING).open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [("epoch", "train_loss", "validation_loss"), *((n, *both) for n, both in enumerate(losses, 1))]
        )
    content = (folder / report.TRAINING).read_bytes()
    world.make("network", {report.TRAINING: content}, values={"best_epoch": 1, "roc_auc_network": None})
    page = world.report()
    points = re.findall(r'polyline points="([^"]*)"', page)
    places = [tuple(map(float, point.split(","))) for line in points for point in line.split()]
    assert len(places) == 2 * len(losses)
    assert all(0 <= x <= 640 and 0 <= y <= 280 for x, y in places)


def test_a_report_loads_no_heavy_library() -> None:
    code = (
        "import sys; import gristmill.report; "
        "print({'torch', 'pandas', 'numpy', 'matplotlib', 'ibis', 'dagster', 'sklearn'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_file_names_are_those_that_the_stages_write() -> None:
    from gristmill import baseline, evaluation, model, network, split, validation

    assert validation.FILE_NAME == report.VALIDATION
    assert baseline.FILE_NAME == report.BASELINE
    assert network.HISTORY_FILE_NAME == report.TRAINING
    assert evaluation.FILE_NAME == report.METRICS
    assert model.LINEAGE_FILE_NAME == report.LINEAGE
    assert {*split.PARTS, split.GAP, split.NO_TARGET} == report._PARTS.keys()
