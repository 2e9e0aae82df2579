import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import parts, split
from gristmill.work import Work
from tests.conftest import finished, work_on

REGRESSION = {"kind": "regression", "target": "y", "metric": "rmse", "accept": {"at_most": 1}}
BINARY = {"kind": "binary", "target": "y", "positive": "yes", "metric": "f1", "accept": {"at_least": 0.5}}
ROWS = 60


def columns(rows: int = ROWS) -> dict[str, Any]:
    """A number and a category that say which row it is, and a number as the target."""
    return {
        "n": [float(row) if row % 7 else None for row in range(rows)],
        "c": [f"c{row:02}" for row in range(rows)],
        "y": [row * 10.0 for row in range(rows)],
    }


def ready(root: Path, table: dict[str, Any], task: dict[str, Any] = REGRESSION, **declared: Any) -> Work:
    """The work of a stage that reads a snapshot and its split."""
    work = work_on(root, table, task=task, **declared)
    split.make(work)
    return replace(work, inputs=work.inputs | {"split": finished("split", work.output)})


def rows_of(work: Work) -> dict[str, list[int]]:
    return {name: rows.to_pylist() for name, rows in split.read(work.inputs["split"].folder).items()}


def test_training_holds_the_rows_of_training_and_validation_and_no_test_row(tmp_path: Path) -> None:
    work = ready(tmp_path, columns())
    wanted = rows_of(work)
    found = parts.training(work)
    assert found.train.rows.tolist() == wanted["train"]
    assert found.validation.rows.tolist() == wanted["validation"]
    assert not set(wanted["test"]) & {*found.train.rows.tolist(), *found.validation.rows.tolist()}
    # Arrays and targets are those of the same rows.
    assert found.train.target.tolist() == [row * 10.0 for row in wanted["train"]]
    assert found.validation.target.tolist() == [row * 10.0 for row in wanted["validation"]]
    assert len(found.train) == len(found.train.encoded) == 42
    assert len(found.validation) == len(found.validation.encoded) == 6


def test_test_holds_the_test_rows_encoded_as_training_was(tmp_path: Path) -> None:
    work = ready(tmp_path, columns())
    found = parts.training(work)
    tested = parts.test(work, found.encoder, found.target)
    wanted = rows_of(work)["test"]
    assert tested.rows.tolist() == wanted
    assert tested.target.tolist() == [row * 10.0 for row in wanted]
    # No training row has a category of theirs.
    assert found.encoder.unknown(tested.encoded) == {"c": len(wanted)}
    [number] = found.encoder.numeric
    present = [place for place, row in enumerate(wanted) if row % 7]
    expected = [(wanted[place] - number.mean) / number.scale for place in present]
    assert tested.encoded.numeric[present, 0] == pytest.approx(expected, rel=1e-6)


def test_k26_what_is_fitted_has_seen_training_rows_only(tmp_path: Path) -> None:
    work = ready(tmp_path, columns())
    found, wanted = parts.training(work), rows_of(work)
    train = [float(row) for row in wanted["train"] if row % 7]
    [number] = found.encoder.numeric
    assert (number.mean, number.scale) == (pytest.approx(np.mean(train)), pytest.approx(np.std(train)))
    assert found.encoder.categorical[0].values == tuple(f"c{row:02}" for row in wanted["train"])
    assert found.target.mean == pytest.approx(10 * np.mean(wanted["train"]))


def test_k26_other_validation_and_test_rows_fit_the_same_encoder(tmp_path: Path) -> None:
    """The row-id spy: whatever stands in the rows outside training, encoder, target and arrays are equal."""
    table = columns()
    work = ready(tmp_path, table)
    found, wanted = parts.training(work), rows_of(work)
    for row in (*wanted["validation"], *wanted["test"]):
        table["n"][row], table["c"][row], table["y"][row] = 1e9 + row, f"other{row}", -1e9
    other = work_on(tmp_path, table)
    changed = parts.training(replace(work, inputs=other.inputs | {"split": work.inputs["split"]}))
    assert changed.encoder == found.encoder
    assert changed.target == found.target
    assert np.array_equal(changed.train.encoded.numeric, found.train.encoded.numeric)
    assert np.array_equal(changed.train.encoded.categorical, found.train.encoded.categorical)
    assert not np.array_equal(changed.validation.encoded.numeric, found.validation.encoded.numeric)


def test_k26_another_training_row_fits_another_encoder(tmp_path: Path) -> None:
    table = columns()
    work = ready(tmp_path, table)
    found, wanted = parts.training(work), rows_of(work)
    table["n"][wanted["train"][1]] = 1e9
    other = work_on(tmp_path, table)
    changed = parts.training(replace(work, inputs=other.inputs | {"split": work.inputs["split"]}))
    assert changed.encoder != found.encoder


def test_a_binary_target_is_one_for_the_positive_class(tmp_path: Path) -> None:
    table = columns() | {"y": ["yes" if row % 3 == 0 else "zero" for row in range(ROWS)]}
    work = ready(tmp_path, table, BINARY)
    found = parts.training(work)
    assert found.target.classes == ("zero", "yes")
    assert found.train.target.tolist() == [int(row % 3 == 0) for row in rows_of(work)["train"]]


def test_k11_rows_without_a_target_are_in_no_part(tmp_path: Path) -> None:
    table = columns() | {"y": [None if row % 5 == 0 else row % 2 for row in range(ROWS)]}
    task = BINARY | {"positive": 1, "target_missing": "drop"}
    work = ready(tmp_path, table, task)
    found = parts.training(work)
    tested = parts.test(work, found.encoder, found.target)
    every = [*found.train.rows, *found.validation.rows, *tested.rows]
    assert sorted(every) == [row for row in range(ROWS) if row % 5]
    # Whole numbers stay whole, although the column is one of floats where values are missing.
    assert json.dumps(found.target.classes) == "[0, 1]"


def test_k03_large_ids_are_categories_of_their_own_beside_missing_ones(tmp_path: Path) -> None:
    ids = [9007199254740992 + row if row % 10 else None for row in range(ROWS)]
    work = ready(tmp_path, columns() | {"id": ids}, features={"categorical": ["id"]})
    found, wanted = parts.training(work), rows_of(work)
    values = {column.name: column.values for column in found.encoder.categorical}["id"]
    assert set(values) == {str(ids[row]) for row in wanted["train"] if row % 10}


def test_only_features_and_the_target_are_in_a_users_frame(tmp_path: Path) -> None:
    table = columns() | {"left": [0] * ROWS, "g": list(range(ROWS))}
    declared = {"test": 0.2, "validation": 0.1, "group_on": "g"}
    work = ready(tmp_path, table, features={"exclude": ["left"]}, split=declared)
    rows = split.read(work.inputs["split"].folder)["validation"]
    frame = parts.frame_of(work, rows)
    assert sorted(frame.columns) == ["c", "n", "y"]
    assert frame["y"].tolist() == [row * 10.0 for row in rows.to_pylist()]
