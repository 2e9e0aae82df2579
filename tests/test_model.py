from __future__ import annotations

import json
import pickletools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from safetensors.numpy import load_file, save_file

from gristmill import files, plan
from gristmill.errors import GateRefused
from gristmill.model import CARD_FILE_NAME, LINEAGE_FILE_NAME

if TYPE_CHECKING:
    from tests.conftest import Mill, Milled

KINDS = ("binary", "multiclass", "regression")
CHAMPIONS = {"binary": "linear", "multiclass": "xgboost", "regression": "network"}
FILES = {
    "binary": {"linear.safetensors"},
    "multiclass": {"xgboost.ubj"},
    "regression": {"mlp.safetensors", "mlp.json"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_champions_files_and_its_encoder_are_the_model(milled: Milled, kind: str) -> None:
    mill = milled(kind)
    output = mill.output("model")
    assert {path.name for path in output.iterdir()} == FILES[kind] | {
        "encoder.json",
        "model.json",
        CARD_FILE_NAME,
    }
    source = mill.output("network" if kind == "regression" else "baseline")
    for name in FILES[kind] | {"encoder.json"}:
        assert (output / name).read_bytes() == (source / name).read_bytes()
    body = json.loads((output / "model.json").read_text())
    assert body["champion"] == CHAMPIONS[kind] == mill.record("model").values["champion"]
    assert body["files"] == {
        name: files.file_digest(output / name) for name in FILES[kind] | {"encoder.json"}
    }
    assert (
        body["test"]
        == json.loads((mill.output("evaluation") / "metrics.json").read_text())["test"][CHAMPIONS[kind]]
    )
    assert body["snapshot"] == mill.record("snapshot").output_digest


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_process_predicts_every_test_row_bit_for_bit(milled: Milled, kind: str) -> None:
    [check] = milled(kind).record("model").checks
    assert (check.code, check.verdict, check.evaluated, check.value) == ("GM601", "passed", 120, 0)
    assert check.text == "0 of 120 test rows predicted otherwise in a fresh process from raw rows"


def tampered(mill: Mill, kind: str) -> None:
    """Another model than the one that was scored, with a record that agrees with it."""
    stage = "network" if kind == "regression" else "baseline"
    if kind == "multiclass":
        from gristmill.models import xgboost

        model = xgboost.load(mill.output(stage))
        xgboost.Trees(model.booster[: model.booster.num_boosted_rounds() - 1]).save(mill.output(stage))
    else:
        file = mill.output(stage) / next(name for name in FILES[kind] if name.endswith("safetensors"))
        weights = load_file(file)
        name = "head.bias" if kind == "regression" else "intercept"
        weights[name][0] += 0.001
        save_file(weights, file)
    mill.forge(stage)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_not_the_one_that_was_scored_fails(copied: Milled, kind: str) -> None:
    mill = copied(kind)
    tampered(mill, kind)
    outcome = mill.make("model", force=True)
    assert not outcome.reused
    [check] = outcome.record.checks
    assert (check.code, check.verdict, check.evaluated) == ("GM601", "failed", 120)
    assert isinstance(check.value, int)
    assert check.value > 60
    assert (
        check.way_out == "the model that is kept is not the model that was scored; do not use it, report it"
    )
    with pytest.raises(GateRefused, match=r"toy/model: GM601 parity failed: .* rows predicted otherwise"):
        plan.refuse_failed(outcome.record)


def test_other_data_than_was_scored_fails(copied: Milled) -> None:
    mill = copied("regression")
    file = mill.output("evaluation") / "predictions.parquet"
    import pyarrow.parquet as pq

    seen = pq.read_table(file).to_pandas()
    seen.loc[5, "prediction"] += 1e-9
    seen.to_parquet(file, index=False)
    mill.forge("evaluation")
    [check] = mill.make("model", force=True).record.checks
    assert (check.verdict, check.value) == ("failed", 1)


def test_a_bundle_that_a_fresh_process_cannot_load_fails_with_its_reason(copied: Milled) -> None:
    mill = copied("regression")
    (mill.output("network") / "mlp.safetensors").write_bytes(b"\0" * 100)
    mill.forge("network")
    [check] = mill.make("model", force=True).record.checks
    assert (check.verdict, check.evaluated) == ("failed", 120)
    assert check.text.startswith("the fresh process failed: safetensors._safetensors_rust.SafetensorError")


@pytest.mark.parametrize("kind", KINDS)
def test_no_output_holds_a_pickle_or_a_program(milled: Milled, kind: str) -> None:
    mill = milled(kind)
    found = [path for stage in plan.STAGES for path in mill.output(stage.name).rglob("*") if path.is_file()]
    suffixes = {".csv", ".json", ".md", ".parquet", ".png", ".safetensors", ".ubj"}
    assert {path.suffix for path in found} <= suffixes
    for path in found:
        content = path.read_bytes()
        assert not content.startswith((b"\x80", b"PK", b"\x7fELF", b"#!", b"\x1f\x8b")), path
        assert path.stat().st_mode & 0o111 == 0
        with pytest.raises((ValueError, KeyError, IndexError, UnicodeDecodeError)):
            list(pickletools.genops(content))


def test_the_card_has_the_scores_the_data_and_the_way_to_use_it(milled: Milled) -> None:
    mill = milled("regression")
    card = (mill.output("model") / CARD_FILE_NAME).read_text()
    said = json.loads((mill.output("evaluation") / "metrics.json").read_text())
    assert card.startswith("---\nlibrary_name: gristmill\ntags: [tabular-regression]\n---\n# toy\n")
    assert "Predicts `price` (regression) from 5 columns." in card
    assert "The champion on the validation rows is `network`; the best plain model is `xgboost`." in card
    for name, of in said["test"].items():
        bounds = said["intervals"][name]["rmse"]
        assert f"| {name} | {of['rmse']:.4f} | {bounds['low']:.4f} to {bounds['high']:.4f} |" in card
    snapshot = mill.record("snapshot").output_digest[:16]
    assert (
        f"Data: 480 rows, snapshot `{snapshot}`. Split: 264 train, 96 validation, 120 test rows, seed 1."
        in card
    )
    assert 'gristmill.load_model("pipelines/toy/data/model").predict(frame)' in card
    assert (mill.workspace.reports("toy") / CARD_FILE_NAME).read_text() == card


def test_lineage_lies_beside_the_output_and_names_all_it_was_made_of(milled: Milled) -> None:
    mill = milled("binary")
    found = json.loads((mill.output("model").parent / LINEAGE_FILE_NAME).read_text())
    assert not (mill.output("model") / LINEAGE_FILE_NAME).exists()
    assert found["run"] == "run"
    assert found["snapshot"] == mill.record("snapshot").output_digest
    assert found["declaration"] == mill.declaration.spec.model_dump(mode="json")
    assert found["seeds"] == {"split": 1, "baseline": 0, "training": 0, "evaluation": 0}
    assert found["stages"].keys() == set(plan.stage("model").upstream)
    for name, of in found["stages"].items():
        record = mill.record(name)
        assert (of["fingerprint"], of["output"]) == (record.fingerprint, record.output_digest)
        assert of["code"] == record.code
        assert of["run"]["seconds"] > 0
    assert {"commit", "head", "dirty"} <= found["code"].keys()
    assert found["environment"]["packages"]["torch"]


def test_the_same_champion_is_the_same_bytes(milled: Milled, copied: Milled) -> None:
    for kind in KINDS:
        again = copied(kind).make("model", force=True)
        assert not again.reused
        assert again.record.output == milled(kind).record("model").output


def test_nothing_is_left_in_the_private_folder(milled: Milled) -> None:
    mill = milled("binary")
    left = [path for path in (mill.workspace.private / "work").rglob("*") if path.is_file()]
    assert left == []
    assert isinstance(mill.workspace.root, Path)
