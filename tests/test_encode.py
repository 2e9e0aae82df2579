import decimal
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.encode import MISSING, OTHER, Encoded, Encoder, Target
from gristmill.errors import DataError

NAN = float("nan")


def codes(train: Any, served: Any) -> list[int]:
    """The codes that a category's served values get after training on others."""
    encoder = Encoder.fit(pd.DataFrame({"c": train}), [], ["c"])
    encoded: list[int] = encoder.transform(pd.DataFrame({"c": served})).categorical[:, 0].tolist()
    return encoded


def numbers(train: Any, served: Any) -> list[list[float]]:
    encoder = Encoder.fit(pd.DataFrame({"n": train}), ["n"], [])
    encoded: list[list[float]] = encoder.transform(pd.DataFrame({"n": served})).numeric.tolist()
    return encoded


def same(one: Encoded, other: Encoded) -> bool:
    return np.array_equal(one.numeric, other.numeric) and np.array_equal(one.categorical, other.categorical)


# Numbers


def test_numbers_are_standardised_by_the_training_rows() -> None:
    assert numbers([1.0, 3.0], [1.0, 3.0, 5.0, 2.0]) == [[-1.0], [1.0], [3.0], [0.0]]


def test_missing_numbers_are_the_mean_and_are_flagged_where_training_rows_miss_some() -> None:
    assert numbers([1.0, 3.0, NAN], [3.0, None]) == [[1.0, 0.0], [0.0, 1.0]]
    # Never missing in training: no input of its own, and none learned for it.
    assert numbers([1.0, 3.0], [3.0, None]) == [[1.0], [0.0]]


def test_flags_stand_behind_the_numbers_in_the_order_of_their_columns() -> None:
    train = pd.DataFrame({"a": [0.0, 2.0, NAN], "b": [0.0, 2.0, 1.0], "c": [NAN, 0.0, 2.0]})
    encoder = Encoder.fit(train, ["a", "b", "c"], [])
    assert encoder.num_numeric == 5
    row = pd.DataFrame({"a": [2.0], "b": [1.0], "c": [NAN]})
    assert encoder.transform(row).numeric.tolist() == [[1.0, 0.0, 0.0, 0.0, 1.0]]


@pytest.mark.parametrize("values", [[5.0, 5.0], [0.1] * 7, [1e300] * 3, [-0.0, 0.0]])
def test_a_constant_column_keeps_its_distances(values: list[float]) -> None:
    """The deviation of seven times 0.1 is 1e-17, by rounding; as a scale it would blow up what comes."""
    assert numbers(values, [values[0]]) == [[0.0]]
    [column] = Encoder.fit(pd.DataFrame({"n": values}), ["n"], []).numeric
    assert (column.mean, column.scale) == (values[0], 1.0)


def test_a_column_without_any_value_is_flagged_and_zero() -> None:
    assert numbers([NAN, None], [NAN, 3.0]) == [[0.0, 1.0], [3.0, 0.0]]


@pytest.mark.parametrize(
    "served",
    [
        pd.Series([True, False]),
        pd.Series([True, False], dtype=object),
        pd.Series([True, False], dtype="boolean"),
        pd.Series([1, 0]),
        pd.Series([1, 0], dtype="Int64"),
        pd.Series([1.0, 0.0], dtype="float32"),
        pd.Series([1, 0], dtype="category"),
        pd.Series(["1", "0"]),
        pd.Series([decimal.Decimal(1), decimal.Decimal(0)], dtype=object),
    ],
)
def test_a_number_is_the_same_in_every_dtype(served: pd.Series) -> None:
    assert numbers([0.0, 1.0], served) == [[1.0], [-1.0]]
    assert numbers(served, [0.0, 1.0]) == [[-1.0], [1.0]]


@pytest.mark.parametrize("dtype", [object, "boolean"])
def test_k04_a_missing_truth_value_is_missing(dtype: Any) -> None:
    train = pd.Series([True, False, None], dtype=dtype)
    assert numbers(train, train) == [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]


def test_what_is_no_number_is_refused_with_its_row() -> None:
    with pytest.raises(DataError, match="n row 1: 'many' is not a number"):
        numbers([1.0, 2.0], ["1", "many", "x"])
    with pytest.raises(DataError, match="n row 1: 'many' is not a number"):
        numbers(["1", "many"], ["1"])


# Categories


def test_categories_are_numbered_in_sorted_order_behind_other_and_missing() -> None:
    assert (OTHER, MISSING) == (0, 1)
    assert codes(["b", "a", "b", None], ["a", "b"]) == [2, 3]
    encoder = Encoder.fit(pd.DataFrame({"c": ["b", "a"], "d": ["x", None]}), [], ["c", "d"])
    assert encoder.cardinalities == (4, 3)


def test_k18_a_value_that_training_did_not_have_is_other_and_counted() -> None:
    encoder = Encoder.fit(pd.DataFrame({"c": ["a", "b"], "d": ["x", "y"]}), [], ["c", "d"])
    served = pd.DataFrame({"c": ["zz", "a", "q", None], "d": ["x", "x", None, "y"]})
    encoded = encoder.transform(served)
    assert encoded.categorical.tolist() == [[OTHER, 2], [2, 2], [OTHER, MISSING], [MISSING, 3]]
    assert encoder.unknown(encoded) == {"c": 2}


def test_k18_missing_is_no_unseen_value_also_where_training_missed_none() -> None:
    assert codes(["a", "b"], [None, NAN, pd.NA]) == [MISSING] * 3


def test_k16_none_and_nan_are_one_missing() -> None:
    assert codes(["a", None, NAN, pd.NA], ["a", None, NAN, pd.NA]) == [2, MISSING, MISSING, MISSING]


def test_k16_truth_values_are_the_same_beside_missing_ones_and_alone() -> None:
    assert codes([True, False, NAN], [True, True, False]) == [3, 3, 2]
    assert codes([True, False], pd.Series([True, None], dtype="boolean")) == [3, MISSING]
    assert codes([True, False], ["true", "false"]) == [3, 2]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["a", 1, "b"], r"c must hold values of one type, however it holds 'a' \(text\) and 1 \(number\)"),
        ([1, "1", 1.0], r"1 \(number\) and '1' \(text\)"),
        ([None, True, 1], r"True \(truth\) and 1 \(number\)"),
    ],
)
def test_k16_k23_mixed_types_are_refused_with_an_example_of_each(values: list[Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        codes(values, ["a"])
    with pytest.raises(DataError, match=words):
        codes(["a"], values)


SPELLINGS = [
    pd.Series([3, 12]),
    pd.Series([3.0, 12.0]),
    pd.Series([3.0, 12.0], dtype="float32"),
    pd.Series([3, 12], dtype="Int64"),
    pd.Series([3.0, 12.0], dtype="Float64"),
    pd.Series([3, 12], dtype=object),
    pd.Series([3.0, 12], dtype=object),
    pd.Series(["3", "12"]),
    pd.Series(["3", "12"], dtype=object),
    pd.Series([3, 12], dtype="category"),
    pd.Series([3.0, 12.0], dtype="category"),
    pd.Series(["3", "12"], dtype="category"),
]


@pytest.mark.parametrize("train", SPELLINGS, ids=lambda series: str(series.dtype))
@pytest.mark.parametrize("served", SPELLINGS, ids=lambda series: str(series.dtype))
def test_a_whole_number_is_the_same_category_in_every_dtype(train: pd.Series, served: pd.Series) -> None:
    # Sorted as text: 12 before 3.
    assert codes(train, served) == [3, 2]
    # A missing value beside it turns whole numbers into floats.
    with_missing = pd.concat(
        [served, pd.Series([None], dtype=served.dtype if served.dtype != "int64" else float)]
    )
    assert codes(train, with_missing) == [3, 2, MISSING]


def test_a_fraction_among_the_rows_does_not_respell_the_others() -> None:
    assert codes([3.0, 3.5], [3.0]) == [2]
    assert codes([3.0, 3.5], [3.5, 3.0]) == [3, 2]
    assert codes([3.0, np.inf], [np.inf, -0.0]) == [3, OTHER]


def test_k18_a_frame_with_other_category_lists_gets_the_same_codes() -> None:
    train = pd.Categorical(["a", "b"], categories=["b", "a"])
    served = pd.Categorical(["b", "zz", "a", None], categories=["zz", "never", "a", "b"])
    assert codes(train, served) == [3, OTHER, 2, MISSING]


def test_k03_large_ids_stay_distinct() -> None:
    ids = [9007199254740993, 9007199254740992]
    assert codes(ids, ids) == [3, 2]
    assert codes(pd.Series([*ids, None], dtype="Int64"), ids) == [3, 2]
    assert codes(pd.Series([*ids, None], dtype=object), ids) == [3, 2]


def test_a_category_without_any_value_knows_other_and_missing_only() -> None:
    assert codes([None, NAN], ["a", None]) == [OTHER, MISSING]
    assert codes(pd.Series([None, None], dtype="float64"), ["a", None]) == [OTHER, MISSING]


# The whole encoder

FRAME = pd.DataFrame({"n": [1.0, 2.0, 4.0, NAN], "c": ["a", "b", None, "a"], "k": [3, 12, 3, 7]})
NUMERIC, CATEGORICAL = ["n"], ["c", "k"]


def test_the_features_are_the_columns_it_needs() -> None:
    encoder = Encoder.fit(FRAME, NUMERIC, CATEGORICAL)
    assert encoder.features == ("n", "c", "k")
    encoded = encoder.transform(FRAME)
    assert (encoded.numeric.shape, encoded.numeric.dtype) == ((4, 2), np.float32)
    assert (encoded.categorical.shape, encoded.categorical.dtype) == ((4, 2), np.int64)
    assert len(encoded) == 4


def test_codes_are_below_the_cardinalities() -> None:
    encoder = Encoder.fit(FRAME, NUMERIC, CATEGORICAL)
    served = pd.DataFrame({"n": [0.0] * 3, "c": ["zz", None, "b"], "k": [12, 99, 7]})
    highest = encoder.transform(pd.concat([FRAME, served])).categorical.max(axis=0)
    assert (highest < np.array(encoder.cardinalities)).all()


def test_k19_columns_are_matched_by_name_and_others_ignored() -> None:
    encoder = Encoder.fit(FRAME, NUMERIC, CATEGORICAL)
    served = FRAME.assign(extra="x")[["k", "extra", "n", "c"]]
    assert same(encoder.transform(served), encoder.transform(FRAME))


def test_k19_m09_a_column_that_is_not_there_is_refused() -> None:
    encoder = Encoder.fit(FRAME, NUMERIC, CATEGORICAL)
    with pytest.raises(DataError, match="missing 'n', 'k': the model needs these columns"):
        encoder.transform(FRAME[["c"]])


def test_k18_the_order_and_the_number_of_the_rows_do_not_matter() -> None:
    encoder = Encoder.fit(FRAME, NUMERIC, CATEGORICAL)
    whole = encoder.transform(FRAME)
    order = np.array([2, 0, 3, 1])
    assert same(encoder.transform(FRAME.iloc[order]), whole.take(order))
    for row in range(4):
        assert same(encoder.transform(FRAME.iloc[[row]]), whole.take(slice(row, row + 1)))
    assert Encoder.fit(FRAME.iloc[order], NUMERIC, CATEGORICAL) == encoder


def test_no_row_is_encoded_to_no_row() -> None:
    encoder = Encoder.fit(FRAME, NUMERIC, CATEGORICAL)
    encoded = encoder.transform(FRAME.iloc[:0])
    assert (encoded.numeric.shape, encoded.categorical.shape) == ((0, 2), (0, 2))


finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(st.none() | finite, st.none() | text, st.integers()), min_size=1, max_size=20))
def test_saved_and_loaded_it_is_the_same(rows: list[tuple[Any, Any, int]]) -> None:
    numeric, words, whole = zip(*rows, strict=True)
    frame = pd.DataFrame(
        {
            "n": pd.Series(numeric, dtype=float),
            "c": pd.Series(words, dtype="str"),
            "k": pd.Series(whole, dtype=object),
        }
    )
    encoder = Encoder.fit(frame, ["n"], ["c", "k"])
    with tempfile.TemporaryDirectory() as folder:
        encoder.save(Path(folder))
        loaded = Encoder.load(Path(folder))
    assert loaded == encoder
    assert same(loaded.transform(frame), encoder.transform(frame))
    assert np.isfinite(encoder.transform(frame).numeric).all()
    # No training row is unknown to the encoder it was fitted with.
    assert encoder.unknown(encoder.transform(frame)) == {}


def test_it_is_saved_as_json_that_a_person_can_read(tmp_path: Path) -> None:
    Encoder.fit(pd.DataFrame({"n": [1.0, 3.0], "c": ["é", None]}), ["n"], ["c"]).save(tmp_path)
    content = (tmp_path / "encoder.json").read_text()
    assert json.loads(content) == {
        "version": 1,
        "numeric": [{"name": "n", "mean": 2.0, "scale": 1.0, "flagged": False}],
        "categorical": [{"name": "c", "values": ["é"]}],
    }
    assert "é" in content


# Targets


@pytest.mark.parametrize(
    ("values", "positive", "classes"),
    [
        ([True, False, True], True, (False, True)),
        ([True, False, True], False, (True, False)),
        ([1, 0, 0], 0, (1, 0)),
        (["no", "yes"], "no", ("yes", "no")),
        ([1.0, 0.0], 1, (0.0, 1)),
    ],
)
def test_the_positive_class_is_the_last(values: list[Any], positive: Any, classes: tuple[Any, ...]) -> None:
    column = pd.Series(values, name="y")
    target = Target.fit(column, positive)
    assert (target.classes, target.num_outputs) == (classes, 2)
    assert target.encode(column).tolist() == [int(value == positive) for value in values]


def test_classes_are_sorted_whatever_the_order_of_the_rows() -> None:
    for values in (["b", "c", "a", "b"], ["c", "b", "b", "a"]):
        assert Target.fit(pd.Series(values)).classes == ("a", "b", "c")
    target = Target.fit(pd.Series([10, 9, 2]))
    assert target.classes == (2, 9, 10)
    encoded = target.encode(pd.Series([9, 10, 2]))
    assert (encoded.tolist(), encoded.dtype) == ([1, 2, 0], np.int64)


@pytest.mark.parametrize("value", ["zz", None])
def test_a_class_that_training_did_not_have_is_refused(value: Any) -> None:
    target = Target.fit(pd.Series(["a", "b"], dtype=object))
    with pytest.raises(DataError, match=r"y: class .* is not among the training rows"):
        target.encode(pd.Series(["a", value], name="y", dtype=object))


def test_a_regression_is_standardised_and_restored() -> None:
    target = Target.fit(pd.Series([1, 3], name="y"), regression=True)
    assert (target.classes, target.mean, target.scale, target.num_outputs) == (None, 2.0, 1.0, 1)
    target = Target.fit(pd.Series([10.0, 30.0]), regression=True)
    assert target.encode(pd.Series([10, 50], name="y")).tolist() == [10.0, 50.0]
    assert target.standardise(np.array([10.0, 50.0])).tolist() == [-1.0, 3.0]
    assert target.restore(np.array([-1.0, 3.0])).tolist() == [10.0, 50.0]


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_restoring_undoes_standardising(values: list[float]) -> None:
    target = Target.fit(pd.Series(values), regression=True)
    column = np.array(values)
    assert np.allclose(target.restore(target.standardise(column)), column, rtol=1e-9, atol=1e-6)


def test_a_regression_target_that_is_no_number_is_refused() -> None:
    with pytest.raises(DataError, match="y row 1: 'x' is not a number"):
        Target.fit(pd.Series(["1", "x"], name="y"), regression=True)
