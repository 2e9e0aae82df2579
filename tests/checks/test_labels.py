import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter

from gristmill import tables
from gristmill.checks import labels
from gristmill.records import MAX_CASES, Check
from gristmill.spec import MulticlassTask
from gristmill.spec.validation import LabelsCheck
from tests.conftest import work_on

ROOT = Path(__file__).parents[2]
REVIEWED = ROOT.parent / "shared" / "data" / "label_errors"
RANDOM = np.random.default_rng(0)
ROWS = 600
CLASS = RANDOM.integers(0, 3, ROWS)
X = np.eye(3)[CLASS] * 4 + RANDOM.normal(size=(ROWS, 3))
COLUMNS: dict[str, Any] = {f"x{n}": X[:, n] for n in range(3)}


def judged(root: Path, columns: dict[str, Any], group: str | None = None, **limits: Any) -> Check:
    task = {
        "kind": "multiclass",
        "target": "y",
        "metric": "accuracy",
        "accept": {"at_least": 0.5},
        "target_missing": "drop",
    }
    split = {"test": 0.2, "validation": 0.1} | ({"group_on": group} if group else {})
    work = work_on(root, columns, task=task, split=split)
    roles = tables.roles(work.spec, tables.schema_of(work.snapshot))
    declared = TypeAdapter(MulticlassTask).validate_python(task)
    return labels.check(work.snapshot, roles, declared, LabelsCheck(**limits), group)


def flipped(share: float) -> tuple[np.ndarray, set[int]]:
    rows = np.random.default_rng(1).choice(ROWS, int(share * ROWS), replace=False)
    wrong = CLASS.copy()
    wrong[rows] = (wrong[rows] + 1) % 3
    return wrong, set(rows.tolist())


def test_flipped_labels_are_found_with_the_class_they_should_have(tmp_path: Path) -> None:
    wrong, rows = flipped(0.05)
    found = judged(tmp_path, COLUMNS | {"y": np.array(["a", "b", "c"])[wrong]}, max_suspect_share=0.02)
    assert (found.code, found.verdict, found.evaluated, found.limit) == ("GM118", "warned", ROWS, 0.02)
    assert len(found.cases) == MAX_CASES
    hits = [case for case in found.cases if case["row"] in rows]
    assert len(hits) >= 18
    assert all(case["suggested"] == "abc"[CLASS[case["row"]]] for case in hits)
    assert all(case["label"] == "abc"[wrong[case["row"]]] for case in found.cases)
    scores = [case["score"] for case in found.cases]
    assert scores == sorted(scores)
    assert 0 <= scores[0] < 0.2


def test_clean_labels_pass_and_the_same_data_say_the_same(tmp_path: Path) -> None:
    found = judged(tmp_path, COLUMNS | {"y": CLASS})
    assert found.verdict == "passed"
    assert float(found.value or 0) < 0.02
    assert judged(tmp_path, COLUMNS | {"y": CLASS}) == found


def test_a_sample_is_drawn_and_said_and_rows_without_a_label_are_none(tmp_path: Path) -> None:
    y = [None if row < 100 else f"c{label}" for row, label in enumerate(CLASS)]
    found = judged(tmp_path, COLUMNS | {"y": y}, rows=300)
    assert found.evaluated == 300
    assert found.text.endswith(", in a sample of 300 of 500 rows")
    assert all(case["row"] >= 100 for case in found.cases)


def test_rows_of_one_group_do_not_vouch_for_each_other(tmp_path: Path) -> None:
    # Each of 60 groups has an address of its own, and one label that is right or wrong for all its rows.
    group = np.arange(ROWS) // 10
    label = np.random.default_rng(2).integers(0, 2, 60)[group]
    columns = {"address": group.astype(float), "noise": X[:, 0], "member": group, "y": label}
    alone = judged(tmp_path, columns, "member", max_suspect_share=0)
    (tmp_path / "b").mkdir()
    together = judged(tmp_path / "b", columns, max_suspect_share=0)
    assert float(alone.value or 0) > 5 * float(together.value or 0)


def test_a_class_of_fewer_rows_than_folds_is_left_out_and_said(tmp_path: Path) -> None:
    y = [f"c{label}" for label in CLASS[:-4]] + ["rare"] * 4
    found = judged(tmp_path, COLUMNS | {"y": y})
    assert found.evaluated == ROWS - 4
    assert found.text.endswith("; left out, with fewer than 5 independent rows: 'rare'")


def test_one_class_and_too_many_classes_are_not_judged(tmp_path: Path) -> None:
    found = judged(tmp_path, COLUMNS | {"y": ["a"] * ROWS})
    assert (found.verdict, found.evaluated) == ("warned", 0)
    assert found.text == "not judged: 2 to 200 classes can be, and there are 1"
    assert judged(tmp_path, COLUMNS | {"y": ["a"] * ROWS}, severity="fail").verdict == "not verified"
    assert judged(tmp_path, {"x": [1.0], "y": [None]}).verdict == "not verified"


def test_sentences_are_judged_by_their_words(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    words = [["cheap", "offer", "win", "prize"], ["meeting", "report", "project", "agenda"]]
    label = random.integers(0, 2, 400)
    texts = [" ".join([*random.choice(words[c], 3), f"number {n}"]) for n, c in enumerate(label)]
    wrong = np.where(np.arange(400) < 8, 1 - label, label)
    found = judged(tmp_path, {"text": texts, "y": wrong})
    assert {case["row"] for case in found.cases} == set(range(8))


@pytest.mark.parametrize("column", [np.full(ROWS, np.inf), np.full(ROWS, np.nan), np.arange(ROWS) * 1e300])
def test_columns_of_no_use_are_no_obstacle(tmp_path: Path, column: np.ndarray) -> None:
    assert judged(tmp_path, COLUMNS | {"odd": column, "y": CLASS}).verdict == "passed"


@pytest.mark.skipif(not REVIEWED.is_dir(), reason="needs the reviewed labels of shared/data/label_errors")
@pytest.mark.parametrize("name", ["MNIST", "CIFAR-10"])
def test_the_precision_in_the_docs_is_that_on_reviewed_labels(name: str) -> None:
    stem = name.lower().replace("-", "")
    probabilities = np.load(REVIEWED / f"{stem}_test_set_pyx.npy")
    given = np.load(REVIEWED / f"{stem}_test_set_original_labels.npy").astype(int)
    votes = json.loads((REVIEWED / f"{stem}_mturk.json").read_text())
    wrong = {entry["id"]: entry["mturk"]["given"] < 3 for entry in votes}
    found = labels.suspects(given, probabilities)
    reviewed = [wrong[row] for row in found.rows.tolist() if row in wrong]
    precision = [f"{np.mean(reviewed[:k]):.2f}" if k <= len(reviewed) else "" for k in (10, 25, 50, 100)]
    known = f"{sum(reviewed)} of the {sum(wrong.values())} that are known"
    row = [name, f"{len(given):,}", str(len(found.rows)), str(len(reviewed)), known, *precision]
    lines = (ROOT / "docs" / "checks" / "GM118.md").read_text().splitlines()
    [documented] = [line for line in lines if line.startswith(f"| {name} ")]
    assert [cell.strip() for cell in re.split(r"\|", documented)[1:-1]] == row


def test_pandas_categories_and_truth_values_are_read(tmp_path: Path) -> None:
    columns = COLUMNS | {"flag": CLASS == 1, "kind": pd.Series(CLASS).map({0: "p", 1: "q", 2: None})}
    assert judged(tmp_path, columns | {"y": CLASS == 1}).verdict == "passed"
