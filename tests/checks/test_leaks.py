import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.checks import leaks
from gristmill.checks.missing import Stretch
from gristmill.spec.validation import OneClassOnlyCheck, RowOrderCheck, SingleFeatureCheck

ROWS = 2_000
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=ROWS)
NOISE = RANDOM.normal(size=ROWS)


def skill(feature: object, target: object, *, are_classes: bool) -> float:
    column = pa.chunked_array([pa.array(feature)])
    answers = leaks.Answers.of(pa.chunked_array([pa.array(target)]), are_classes=are_classes)
    return leaks.skill(column, answers, *leaks.halves(ROWS, 0))


def test_a_copy_of_the_answer_tells_all_of_it() -> None:
    classes = np.where(X > 0, "yes", "no")
    assert skill(classes, classes, are_classes=True) == 1
    assert skill(X > 0, classes, are_classes=True) == 1
    assert skill(np.where(X > 0, 3.5, -1), classes, are_classes=True) == 1
    assert skill(2 * X + 1, X, are_classes=False) == pytest.approx(1)
    # Curved: by the rank, or by the mean of many small stretches.
    assert skill(np.exp(3 * X), X, are_classes=False) > 0.98
    assert skill(X, np.exp(3 * X), are_classes=False) > 0.98


def test_noise_tells_nothing_and_a_good_feature_not_all() -> None:
    assert abs(skill(NOISE, np.where(X > 0, 1, 0), are_classes=True)) < 0.1
    assert abs(skill(NOISE, X, are_classes=False)) < 0.1
    assert 0.3 < skill(X + NOISE, X, are_classes=False) < 0.6
    assert 0.3 < skill(X + NOISE, np.where(X > 0, 1, 0), are_classes=True) < 0.7


def test_a_name_that_each_row_has_to_itself_tells_nothing_of_others() -> None:
    names = [f"n{row}" for row in range(ROWS)]
    assert skill(names, np.where(X > 0, 1, 0), are_classes=True) == 0
    assert abs(skill(names, X, are_classes=False)) < 0.01


def test_where_only_missing_tells_it_is_seen_as_well() -> None:
    classes = X > 0
    assert skill([1.0 if yes else None for yes in classes], classes, are_classes=True) == 1
    assert (
        skill(
            [NOISE[row] if classes[row] else float("nan") for row in range(ROWS)], classes, are_classes=True
        )
        > 0.98
    )


def test_infinite_and_constant_values_are_no_obstacle() -> None:
    infinite = np.where(X > 1, np.inf, X)
    assert 0.5 < skill(infinite, X, are_classes=False) <= 1
    assert skill(np.ones(ROWS), X, are_classes=False) <= 0
    assert skill(X, np.ones(ROWS), are_classes=False) == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 6))
def test_skill_does_not_depend_on_the_classes_names(seed: int, classes: int) -> None:
    random = np.random.default_rng(seed)
    target = random.integers(0, classes, ROWS)
    feature = target + random.normal(scale=random.uniform(0.01, 3), size=ROWS)
    names = np.array(random.permutation([f"c{n}" for n in range(classes)]))[target]
    first = skill(feature, target, are_classes=True)
    assert first <= 1
    # Of classes that are equally frequent another may be the constant's answer.
    assert skill(feature, names, are_classes=True) == pytest.approx(first, abs=0.05)


def test_a_feature_that_alone_tells_the_target_fails() -> None:
    skills = {"age": 0.2, "refund": 0.99, "status": 1.0}
    found = leaks.single_feature(skills, 1_000, 5_000, SingleFeatureCheck())
    assert (found.code, found.verdict, found.evaluated, found.value) == ("GM123", "failed", 1000, 1.0)
    assert found.text == (
        "2 of 3 features alone tell the target: status (100.0%), refund (99.0%) (a sample of 1,000 of 5,000 rows)"
    )
    assert found.cases == ({"column": "status", "skill": 1.0}, {"column": "refund", "skill": 0.99})
    found = leaks.single_feature({"age": 0.2}, 1_000, 1_000, SingleFeatureCheck())
    assert (found.verdict, found.text) == (
        "passed",
        "no feature alone tells the target; age tells most (20.0%)",
    )


def test_few_rows_are_not_judged() -> None:
    found = leaks.single_feature({}, 49, 49, SingleFeatureCheck())
    assert (found.verdict, found.text) == ("not verified", "not judged: 49 rows have a target, 50 are needed")
    assert leaks.single_feature({}, 49, 49, SingleFeatureCheck(severity="warn")).verdict == "warned"
    assert leaks.row_order(0.0, 49, RowOrderCheck()).verdict == "warned"


def test_an_order_that_tells_the_target_warns() -> None:
    found = leaks.row_order(0.8, 100, RowOrderCheck())
    assert (found.code, found.verdict, found.text) == (
        "GM124", "warned", "a row's place in the source tells 80.0% of the target",
    )  # fmt: skip
    assert (
        leaks.row_order(-0.1, 100, RowOrderCheck()).text
        == "a row's place in the source tells 0.0% of the target"
    )


def test_a_feature_that_only_one_class_fills_warns_unless_chance_may_do_it() -> None:
    classes = [
        Stretch("stayed", 500, {"reason": 500, "fee": 0, "note": 500}),
        Stretch("left", 500, {"reason": 480, "fee": 499, "note": 495}),
    ]
    found = leaks.one_class_only(classes, ["fee", "note", "reason"], OneClassOnlyCheck())
    assert (found.code, found.verdict, found.value) == ("GM125", "warned", 1)
    # Five values of one of two equal classes come about by chance in 3 of 100 data sets, twenty in none.
    assert found.text == "1 of 3 features are filled for one class only: reason for left"
    assert found.cases == ({"column": "reason", "class": "left", "values": 20},)
    found = leaks.one_class_only(classes, ["fee"], OneClassOnlyCheck(severity="fail"))
    assert (found.verdict, found.text) == ("passed", "none of 1 features is filled for one class only")
