from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import gristmill
from gristmill import bundle, metrics, models, parts
from gristmill.bundle import Bundle, load_model
from gristmill.encode import Encoder, Target
from gristmill.errors import DataError, InputError
from gristmill.models.dummy import Dummy

if TYPE_CHECKING:
    from tests.conftest import Mill, Milled

KINDS = ("binary", "multiclass", "regression")
CLASSES = {"binary": ["no", "yes"], "multiclass": [10, 11, 12]}
FEATURES = ["amount", "visits", "member", "code", "month"]


def frame(mill: Mill) -> pd.DataFrame:
    """The test rows as a user's frame, under an index of its own."""
    work = mill.work("evaluation")
    found = parts.frame_of(work, parts.split.read(mill.output("split"))["test"])
    return found.drop(columns=mill.declaration.spec.task.target).set_axis(
        [f"customer {n}" for n in range(len(found))]
    )


def answers(model: Bundle, rows: pd.DataFrame) -> np.ndarray:
    found = model.predict(rows) if model.target.classes is None else model.predict_proba(rows)
    return found.to_numpy()


@pytest.fixture
def folder(milled: Milled, tmp_path: Path) -> Path:
    """A copy of an accepted network's bundle."""
    return shutil.copytree(milled("regression").output("model"), tmp_path / "model")


def edit(folder: Path, **changed: Any) -> None:
    body = json.loads((folder / bundle.FILE_NAME).read_text())
    (folder / bundle.FILE_NAME).write_text(json.dumps(body | changed))


# Answers


@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_what_evaluation_saw(milled: Milled, kind: str) -> None:
    mill = milled(kind)
    model = load_model(mill.output("model"))
    seen = pd.read_parquet(mill.output("evaluation") / "predictions.parquet").iloc[:, 2:]
    assert np.array_equal(answers(model, frame(mill)), seen.to_numpy().squeeze())


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_a_class_is_predicted_with_its_own_value_and_probabilities(milled: Milled, kind: str) -> None:
    mill = milled(kind)
    model, rows = load_model(mill.output("model")), frame(mill)
    sure, said = model.predict_proba(rows), model.predict(rows)
    assert list(sure.columns) == CLASSES[kind]
    assert sure.sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-6)
    assert ((sure >= 0) & (sure <= 1)).all(axis=None)
    assert said.tolist() == [CLASSES[kind][code] for code in sure.to_numpy().argmax(axis=1)]
    assert set(said) == set(CLASSES[kind])
    assert said.name == mill.declaration.spec.task.target


def test_a_number_is_predicted_in_the_targets_unit(milled: Milled) -> None:
    mill = milled("regression")
    found = load_model(mill.output("model")).predict(frame(mill))
    assert (found.name, found.dtype) == ("price", np.float64)
    assert 90 < found.mean() < 130


def test_a_number_has_no_probability(milled: Milled) -> None:
    model = load_model(milled("regression").output("model"))
    with pytest.raises(
        InputError, match="predict_proba needs a classification, however this model predicts a number"
    ):
        model.predict_proba(frame(milled("regression")))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_keep_their_index(milled: Milled, kind: str) -> None:
    model, rows = load_model(milled(kind).output("model")), frame(milled(kind))
    assert model.predict(rows).index.equals(rows.index)
    if kind != "regression":
        assert model.predict_proba(rows).index.equals(rows.index)
    twice = rows.set_axis(["same"] * len(rows))
    assert model.predict(twice).index.equals(twice.index)


def test_k19_columns_are_found_by_name(milled: Milled) -> None:
    for kind in KINDS:
        model, rows = load_model(milled(kind).output("model")), frame(milled(kind))
        wanted = answers(model, rows)
        assert np.array_equal(answers(model, rows[rows.columns[::-1]]), wanted)
        assert np.array_equal(answers(model, rows.assign(colour="red", price=1)), wanted)


def test_k19_m09_a_missing_column_is_refused(milled: Milled) -> None:
    model, rows = load_model(milled("binary").output("model")), frame(milled("binary"))
    with pytest.raises(DataError, match="missing 'amount', 'month': the model needs these columns"):
        model.predict(rows.drop(columns=["amount", "month"]))


@pytest.mark.parametrize("rows", [np.zeros((2, 5)), [[1, 2, 3, 4, 5]], {"amount": [1]}, None])
def test_k19_rows_without_named_columns_are_refused(milled: Milled, rows: Any) -> None:
    model = load_model(milled("binary").output("model"))
    wanted = f"must come as a pandas DataFrame, whose columns have names, got {type(rows).__name__}"
    for call in (model.predict, model.predict_proba):
        with pytest.raises(InputError, match=wanted):
            call(rows)


def test_k18_the_order_and_the_company_of_rows_do_not_matter(milled: Milled) -> None:
    for kind in KINDS:
        model, rows = load_model(milled(kind).output("model")), frame(milled(kind))
        wanted = answers(model, rows)
        assert answers(model, rows[::-1])[::-1] == pytest.approx(wanted, rel=1e-5)
        assert answers(model, rows.iloc[7:8]) == pytest.approx(wanted[7:8], rel=1e-5)


def test_k18_the_dtypes_of_columns_do_not_matter(milled: Milled) -> None:
    for kind in KINDS:
        model, rows = load_model(milled(kind).output("model")), frame(milled(kind))
        wanted = answers(model, rows)
        for other in (
            rows.astype({"code": "category", "month": "float64"}),
            rows.astype({"code": object, "month": "int8", "visits": "float32", "member": "boolean"}),
            rows.astype({"code": pd.CategoricalDtype(["zz", "7", "A1", "007"]), "month": "Int64"}),
            rows.convert_dtypes(),
        ):
            assert np.array_equal(answers(model, other), wanted)


def test_k18_a_value_that_no_training_row_had_is_one_value_whatever_it_is(milled: Milled) -> None:
    for kind in KINDS:
        model, rows = load_model(milled(kind).output("model")), frame(milled(kind))
        assert np.array_equal(answers(model, rows.assign(code="zz")), answers(model, rows.assign(code="0")))
        assert not np.array_equal(answers(model, rows.assign(code="zz")), answers(model, rows))
        assert np.array_equal(
            answers(model, rows.assign(code=None)), answers(model, rows.assign(code=np.nan))
        )


def test_no_row_has_no_answer(milled: Milled) -> None:
    for kind in KINDS:
        model, none = load_model(milled(kind).output("model")), frame(milled(kind)).iloc[:0]
        assert model.predict(none).empty
        if kind != "regression":
            assert model.predict_proba(none).shape == (0, len(CLASSES[kind]))


def test_a14_an_amount_that_is_not_finite_is_refused_and_not_answered(milled: Milled) -> None:
    for kind in KINDS:
        model, rows = load_model(milled(kind).output("model")), frame(milled(kind))
        rows.loc["customer 3", "amount"] = np.inf
        with pytest.raises(DataError, match="amount row customer 3: must be finite, however it is inf"):
            model.predict(rows)


def test_an_amount_that_is_text_is_refused_with_its_row(milled: Milled) -> None:
    model, rows = load_model(milled("binary").output("model")), frame(milled("binary"))
    rows["amount"] = rows["amount"].astype(object)
    rows.loc["customer 3", "amount"] = "much"
    with pytest.raises(DataError, match="amount row customer 3: 'much' is not a number"):
        model.predict(rows)


def test_a_half_is_predicted_as_the_scores_count_it(tmp_path: Path) -> None:
    target = Target(("no", "yes"))
    Dummy.fit(np.array([0, 1]), target).save(tmp_path)
    rows = pd.DataFrame({"x": [1.0, 2.0]})
    Encoder.fit(rows, ["x"], []).save(tmp_path)
    bundle.write(tmp_path, {"kind": "dummy", "target": "y"}, target, ["dummy.json", "encoder.json"])
    model = load_model(tmp_path)
    assert model.predict(rows).tolist() == ["yes", "yes"]
    truth = np.array([1, 1])
    assert metrics.score("accuracy", truth, model.predict_proba(rows).to_numpy()) == 1.0


@pytest.mark.parametrize("kind", models.KINDS)
@pytest.mark.parametrize("task", KINDS)
def test_every_kind_of_model_makes_a_bundle(milled: Milled, tmp_path: Path, task: str, kind: str) -> None:
    mill = milled(task)
    source = mill.output("network" if kind == "mlp" else "baseline")
    kept = [file.name for file in source.iterdir() if file.stem in (kind, "encoder")]
    for name in kept:
        shutil.copyfile(source / name, tmp_path / name)
    data = parts.training(mill.work("baseline"))
    bundle.write(tmp_path, {"kind": kind, "target": "y"}, data.target, kept)
    rows = frame(mill)
    wanted = models.load(kind, source).predict(data.encoder.transform(rows))
    assert np.array_equal(answers(load_model(tmp_path), rows), wanted)


# Files


def test_a_bundle_says_what_it_is(milled: Milled) -> None:
    facts = load_model(milled("binary").output("model")).facts
    assert (facts["version"], facts["pipeline"], facts["task"], facts["kind"]) == (
        1,
        "toy",
        "binary",
        "linear",
    )
    assert sorted(facts["features"]) == sorted(FEATURES)
    assert facts["classes"] == ["no", "yes"]
    assert facts["files"].keys() == {"encoder.json", "linear.safetensors"}


def test_it_is_found_by_its_folder_its_stage_and_its_path_as_text(milled: Milled) -> None:
    output = milled("binary").output("model")
    rows = frame(milled("binary"))
    wanted = answers(load_model(output), rows)
    for path in (output.parent, str(output), str(output.parent)):
        assert np.array_equal(answers(gristmill.load_model(path), rows), wanted)


def test_it_may_be_moved(folder: Path, milled: Milled) -> None:
    rows = frame(milled("regression"))
    wanted = answers(load_model(milled("regression").output("model")), rows)
    assert np.array_equal(answers(load_model(folder.rename(folder.parent / "elsewhere")), rows), wanted)


@pytest.mark.parametrize("name", ["mlp.safetensors", "mlp.json", "encoder.json"])
def test_m02_m03_a_file_that_was_edited_or_cut_is_refused_before_it_is_parsed(
    folder: Path, name: str
) -> None:
    content = (folder / name).read_bytes()
    middle = len(content) // 2
    for damaged in (
        content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        content[:-1],
        b"",
        content + b"\n",
    ):
        (folder / name).write_bytes(damaged)
        with pytest.raises(InputError, match=f"{name} is not the file in the record"):
            load_model(folder)


@pytest.mark.parametrize("name", ["mlp.safetensors", "mlp.json", "encoder.json"])
def test_a_file_that_is_gone_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"{name} must be there, however it is missing"):
        load_model(folder)


@pytest.mark.parametrize("name", ["mlp.safetensors", "mlp.json", "encoder.json"])
def test_a_file_without_a_digest_is_refused(folder: Path, name: str) -> None:
    listed = json.loads((folder / bundle.FILE_NAME).read_text())["files"]
    edit(folder, files={key: value for key, value in listed.items() if key != name})
    with pytest.raises(
        InputError, match=f"{name} must stand in model.json with its digest, however it does not"
    ):
        load_model(folder)


@pytest.mark.parametrize(
    "entry", ["../secret", "/etc/passwd", "sub/file", "..", "%2e%2e/x/../../secret", "file:///etc/passwd"]
)
def test_m06_an_entry_that_leaves_the_folder_is_refused_unread(folder: Path, entry: str) -> None:
    (folder.parent / "secret").write_text("secret")
    edit(folder, files={entry: "0" * 64})
    with pytest.raises(
        InputError, match=r"refused: it leaves the folder|must be there, however it is missing"
    ):
        load_model(folder)


def test_m05_a_newer_bundle_is_refused_by_its_version(folder: Path) -> None:
    edit(folder, version=2)
    with pytest.raises(
        InputError, match=r"written by a newer gristmill \(bundle version 2, this one reads 1\)"
    ):
        load_model(folder)


def test_m01_a_kind_of_model_nobody_knows_is_refused(folder: Path) -> None:
    for kind in ("pickle", "os", "../mlp", "mlp.load"):
        edit(folder, kind=kind)
        with pytest.raises(InputError, match="model kind must be one of dummy, linear, xgboost, mlp, got"):
            load_model(folder)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"version": "new", "files": {}, "kind": "mlp", "classes": null}',
        '{"version": 1, "files": [1], "kind": "mlp", "classes": null}',
        '{"version": null, "files": {}, "kind": "mlp", "classes": null}',
    ],
)
def test_what_does_not_describe_a_model_is_refused(folder: Path, content: str) -> None:
    (folder / bundle.FILE_NAME).write_text(content)
    with pytest.raises(InputError, match=r"model.json must describe a model, however it does not"):
        load_model(folder)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(
            InputError, match=r"must be a model's folder, however it has no model.json; run the pipeline"
        ):
            load_model(path)


# Alone


@pytest.mark.parametrize("kind", KINDS)
def test_it_serves_in_a_process_of_its_own_without_orchestrators_and_tables(
    milled: Milled, tmp_path: Path, kind: str
) -> None:
    mill = milled(kind)
    rows = frame(mill)
    rows.to_parquet(tmp_path / "rows.parquet")
    # XGBoost imports scikit-learn where it is installed; it has to do without it here.
    code = (
        "import sys\n"
        "for name in ('dagster', 'duckdb', 'dvc', 'ibis', 'pandera', 'pydantic', 'sklearn', 'yaml'):\n"
        "    sys.modules[name] = None\n"
        "import gristmill, numpy, pandas\n"
        "model = gristmill.load_model(sys.argv[1])\n"
        "rows = pandas.read_parquet(sys.argv[2])\n"
        "found = model.predict(rows) if model.target.classes is None else model.predict_proba(rows)\n"
        "numpy.save(sys.argv[3], found.to_numpy())\n"
    )
    paths = (mill.output("model"), tmp_path / "rows.parquet", tmp_path / "found.npy")
    ran = subprocess.run([sys.executable, "-c", code, *map(str, paths)], cwd=tmp_path, check=False)
    assert ran.returncode == 0
    assert np.array_equal(np.load(tmp_path / "found.npy"), answers(load_model(mill.output("model")), rows))
