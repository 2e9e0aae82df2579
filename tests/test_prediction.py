from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill import parts, prediction, tables
from gristmill.bundle import load_model
from gristmill.errors import DataError, InputError
from gristmill.prediction import predict_file

if TYPE_CHECKING:
    from tests.conftest import Build, Mill, Milled

KINDS = ("binary", "multiclass", "regression")
HEADER = "amount,visits,code,month,member\n"


def rows(mill: Mill) -> pd.DataFrame:
    """All rows of the snapshot, typed as they were trained on."""
    work = mill.work("evaluation")
    return parts.frame_of(work, pa.array(range(480)))


def answer(mill: Mill, content: str, tmp_path: Path, suffix: str = "csv") -> pd.DataFrame:
    """What is predicted of a CSV's text."""
    (tmp_path / "in.csv").write_text(content)
    output = tmp_path / f"out.{suffix}"
    predict_file(mill.output("model"), tmp_path / "in.csv", output)
    return pd.read_csv(output) if suffix == "csv" else pd.read_parquet(output)


def refused(mill: Mill, content: str | bytes, tmp_path: Path, wanted: str) -> None:
    """The rows are refused in these words, and nothing is left behind."""
    file = tmp_path / "in.csv"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    for name in ("out.csv", "out.parquet"):
        with pytest.raises(DataError, match=wanted):
            predict_file(mill.output("model"), file, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_that_was_trained_on_is_answered_as_its_snapshot_is(
    milled: Milled, tmp_path: Path, kind: str
) -> None:
    mill = milled(kind)
    model, frame = load_model(mill.output("model")), rows(mill)
    assert (
        predict_file(mill.output("model"), mill.workspace.root / "data" / "x.csv", tmp_path / "out.parquet")
        == 480
    )
    found = pd.read_parquet(tmp_path / "out.parquet")
    assert found.iloc[:, 0].tolist() == model.predict(frame).tolist()
    if kind == "regression":
        assert list(found.columns) == ["price"]
    else:
        sure = model.predict_proba(frame)
        assert list(found.columns)[1:] == [f"probability_{name}" for name in sure.columns]
        assert np.array_equal(found.iloc[:, 1:].to_numpy(), sure.to_numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_csv_and_parquet_come_in_and_go_out_alike(milled: Milled, tmp_path: Path, kind: str) -> None:
    mill = milled(kind)
    csv = mill.workspace.root / "data" / "x.csv"
    parquet = tmp_path / "in.parquet"
    pq.write_table(
        tables.read(mill.output("snapshot"), [*HEADER.strip().split(",")]), parquet, row_group_size=100
    )
    found = {}
    for source in (csv, parquet):
        for suffix in ("csv", "parquet"):
            output = tmp_path / f"{source.suffix[1:]}.{suffix}"
            assert predict_file(mill.output("model"), source, output) == 480
            found[output.name] = pd.read_csv(output) if suffix == "csv" else pd.read_parquet(output)
    for frame in found.values():
        pd.testing.assert_frame_equal(frame, found["csv.parquet"], check_dtype=False, check_exact=True)


def test_codes_keep_their_leading_zeros(milled: Milled, tmp_path: Path) -> None:
    mill = milled("binary")
    found = answer(mill, HEADER + "50,3,007,2,True\n50,3,7,2,True\n", tmp_path)
    frame = pd.DataFrame({"amount": 50.0, "visits": 3, "code": ["007", "7"], "month": 2, "member": True})
    assert (
        found["probability_yes"].tolist()
        == load_model(mill.output("model")).predict_proba(frame)["yes"].tolist()
    )
    assert found["probability_yes"][0] > found["probability_yes"][1] + 0.1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("50,3,A1,2,True", "50,3,A1,2,true"),
        ("50,3,A1,2,True", "50,3,A1,2,TRUE"),
        ("50,3,A1,2,True", "+50.0,3.0,A1,+2,True"),
        ("50,3,A1,2,", '50,3,"A1",2,""'),
        (",3,,2,True", '"",3,"",2,True'),
    ],
)
def test_k18_one_value_in_two_spellings_is_one_value(
    milled: Milled, tmp_path: Path, one: str, other: str
) -> None:
    for kind in KINDS:
        found = answer(milled(kind), f"{HEADER}{one}\n{other}\n", tmp_path, "parquet")
        assert found.iloc[0].tolist() == found.iloc[1].tolist()


def test_k02_only_an_empty_field_is_missing(milled: Milled, tmp_path: Path) -> None:
    found = answer(
        milled("binary"), HEADER + "".join(f"50,3,{text},2,True\n" for text in ("NA", "zz", "")), tmp_path
    )
    assert found["probability_yes"][0] == found["probability_yes"][1] != found["probability_yes"][2]


def test_k02_the_texts_that_were_missing_in_training_are_missing(build: Build, tmp_path: Path) -> None:
    from tests.conftest import table

    csv = "".join(line.replace(",,", ",?,") + "\n" for line in table("binary").splitlines())
    (tmp_path / "work").mkdir()
    mill = build("binary", csv, source={"path": "data/x.csv", "na_values": ["?", ""]})
    mill.through("model")
    found = answer(mill, HEADER + "50,3,?,2,True\n50,3,,2,True\n?,3,A1,2,?\n,3,A1,2,\n", tmp_path)
    assert found.iloc[0].tolist() == found.iloc[1].tolist()
    assert found.iloc[2].tolist() == found.iloc[3].tolist()


def test_k19_columns_may_come_in_another_order_and_with_others(milled: Milled, tmp_path: Path) -> None:
    for kind in KINDS:
        mill = milled(kind)
        plain = answer(mill, HEADER + "50,3,007,2,True\n", tmp_path)
        content = "member,note,month,code,visits,amount\nTrue,x,2,007,3,50\n"
        assert answer(mill, content, tmp_path).equals(plain)
        assert answer(mill, "\ufeff" + HEADER + "50,3,007,2,True\n", tmp_path).equals(plain)


def test_every_row_is_answered_in_its_order_over_many_batches(
    milled: Milled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill = milled("binary")
    lines = (mill.workspace.root / "data" / "x.csv").read_text().splitlines()
    content = "\n".join([lines[0], *lines[1:] * 3]) + "\n"
    whole = answer(mill, content, tmp_path)
    monkeypatch.setattr(prediction, "BATCH_ROWS", 7)
    monkeypatch.setattr(prediction, "_BLOCK_BYTES", 512)
    assert len(whole) == 1440
    for suffix in ("csv", "parquet"):
        assert answer(mill, content, tmp_path, suffix).equals(whole)


def test_the_answer_goes_to_standard_output(
    milled: Milled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mill = milled("multiclass")
    (tmp_path / "in.csv").write_text(HEADER + "50,3,007,2,True\n50,8,7,1,\n")
    assert predict_file(mill.output("model"), tmp_path / "in.csv", None) == 2
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "species,probability_10,probability_11,probability_12"
    predict_file(mill.output("model"), tmp_path / "in.csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == shown


# Refusals: one line, and no file


def test_m09_a_missing_column_is_named(milled: Milled, tmp_path: Path) -> None:
    refused(milled("binary"), "amount,visits,code,member\n1,2,A1,True\n", tmp_path, "missing 'month'")
    refused(milled("binary"), "a,b\n1,2\n", tmp_path, "missing 'amount', 'visits'")


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("", "in.csv: Empty CSV file"),
        (HEADER, "in.csv must have at least 1 row, however it has 0"),
        (HEADER + "50,3,007,2\n", "in.csv: CSV parse error: Expected 5 columns, got 4"),
        (HEADER + "50,3,007,2,True,9\n", "in.csv: CSV parse error: Expected 5 columns, got 6"),
        (HEADER + "1,1,7,2,True\nmuch,3,007,2,True\n", "amount row 1: 'much' is not a number"),
        (
            HEADER + "1,1,7,2,True\n2,3,007,2,yes\n",
            "member row 1: 'yes' is not of the type bool that was trained on",
        ),
        (HEADER + "1,1,7,2.5,True\n", "month row 0: '2.5' is not of the type int64 that was trained on"),
        (HEADER + "inf,1,7,2,True\n", "amount row 0: must be finite, however it is inf"),
        ("amount,amount," + HEADER + "1,2,50,3,007,2,True\n", "in.csv: column name 'amount' appears 3 times"),
        (HEADER.encode() + b"50,3,\xff,2,True\n", "in.csv: .*invalid UTF8 data"),
    ],
)
def test_rows_that_cannot_be_read_leave_no_output(
    milled: Milled, tmp_path: Path, content: str | bytes, wanted: str
) -> None:
    refused(milled("binary"), content, tmp_path, wanted)


def test_a_fault_late_in_the_file_leaves_no_output_and_names_its_row(
    milled: Milled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "BATCH_ROWS", 100)
    content = HEADER + "50,3,007,2,True\n" * 950 + "x,3,007,2,True\n"
    refused(milled("binary"), content, tmp_path, "amount row 950: 'x' is not a number")


def test_an_answer_that_was_there_stays_when_the_new_one_fails(milled: Milled, tmp_path: Path) -> None:
    mill = milled("binary")
    answer(mill, HEADER + "50,3,007,2,True\n", tmp_path)
    before = (tmp_path / "out.csv").read_bytes()
    with pytest.raises(DataError, match="'x' is not a number"):
        answer(mill, HEADER + "x,3,007,2,True\n", tmp_path)
    assert (tmp_path / "out.csv").read_bytes() == before


def test_a09_what_is_no_parquet_is_refused(milled: Milled, tmp_path: Path) -> None:
    file = tmp_path / "in.parquet"
    for content in (b"", b"PAR1 and no more", b"amount\n1\n"):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"in.parquet: .*Parquet"):
            predict_file(milled("binary").output("model"), file, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_arguments_that_do_not_fit_are_refused(milled: Milled, tmp_path: Path) -> None:
    model = milled("binary").output("model")
    (tmp_path / "in.csv").write_text(HEADER + "50,3,007,2,True\n")
    with pytest.raises(
        InputError, match=r"FILE must be a CSV or Parquet file, however .*none.csv is not there"
    ):
        predict_file(model, tmp_path / "none.csv", None)
    with pytest.raises(InputError, match=r"--output must end in .csv or .parquet, got .*out.json"):
        predict_file(model, tmp_path / "in.csv", tmp_path / "out.json")
    with pytest.raises(
        InputError, match=r"--output must lie in a folder that exists, however .*nowhere is none"
    ):
        predict_file(model, tmp_path / "in.csv", tmp_path / "nowhere" / "out.csv")
    with pytest.raises(InputError, match=r"must be a model's folder, however it has no model.json"):
        predict_file(tmp_path, tmp_path / "in.csv", None)
