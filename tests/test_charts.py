import struct
from pathlib import Path

import numpy as np
import pytest

from gristmill import charts

Case = tuple[np.ndarray, np.ndarray, list[str] | None]


def case(task: str, rows: int = 300, seed: int = 0) -> Case:
    random = np.random.default_rng(seed)
    if task == "regression":
        truth = random.normal(size=rows)
        return truth, truth + random.normal(0, 0.3, rows), None
    classes = 2 if task == "binary" else 14
    truth = random.integers(classes, size=rows)
    truth[:classes] = range(classes)
    return truth, random.dirichlet(np.ones(classes), rows), [f"class {n}" for n in range(classes)]


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("binary", ["confusion.png", "roc.png", "precision_recall.png", "calibration.png"]),
        ("multiclass", ["confusion.png", "calibration.png"]),
        ("regression", ["predicted.png", "residuals.png"]),
    ],
)
def test_each_task_has_its_pictures_of_equal_bytes_for_equal_numbers(
    tmp_path: Path, task: str, names: list[str]
) -> None:
    for place in ("once", "twice"):
        (tmp_path / place).mkdir()
        assert charts.draw(tmp_path / place, *case(task), "network") == names
    assert sorted(path.name for path in (tmp_path / "once").iterdir()) == sorted(names)
    for name in names:
        content = (tmp_path / "once" / name).read_bytes()
        assert content == (tmp_path / "twice" / name).read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", content[16:24])
        assert (width, height) == (506, 418)
        # No version and no date: another Matplotlib may draw otherwise, but not because of its name.
        assert b"Software" not in content
        assert b"tIME" not in content


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_other_numbers_are_another_picture(tmp_path: Path, task: str) -> None:
    for seed in (0, 1):
        (tmp_path / str(seed)).mkdir()
        names = charts.draw(tmp_path / str(seed), *case(task, seed=seed), "network")
    for name in names:
        assert (tmp_path / "0" / name).read_bytes() != (tmp_path / "1" / name).read_bytes()


def test_k29_curves_of_one_class_are_left_out(tmp_path: Path) -> None:
    _, predicted, classes = case("binary")
    drawn = charts.draw(tmp_path, np.ones(300, dtype=int), predicted, classes, "linear")
    assert drawn == ["confusion.png", "calibration.png"]


def test_a_half_counts_as_positive_in_the_confusion_too(tmp_path: Path) -> None:
    truth, classes = np.array([0, 1, 1, 0]), ["no", "yes"]
    pictures = []
    for positive in (0.5, 0.51, 0.49):
        predicted = np.tile([1 - positive, positive], (4, 1))
        charts.draw(tmp_path, truth, predicted, classes, "dummy")
        pictures.append((tmp_path / "confusion.png").read_bytes())
    assert pictures[0] == pictures[1] != pictures[2]


def test_few_rows_and_a_class_without_any_are_drawn(tmp_path: Path) -> None:
    predicted = np.array([[0.2, 0.3, 0.5], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])
    assert charts.draw(tmp_path, np.array([0, 0, 1]), predicted, ["a", "b", "c"], "linear")
    assert charts.draw(tmp_path, np.array([1.0]), np.array([2.0]), None, "linear")


def test_a_million_rows_are_a_picture_of_a_few_thousand_points(tmp_path: Path) -> None:
    truth, predicted, _ = case("regression", 1_000_000)
    charts.draw(tmp_path, truth, predicted, None, "linear")
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 200_000


def test_names_are_text_and_not_markup(tmp_path: Path) -> None:
    truth, predicted, _ = case("binary")
    assert charts.draw(tmp_path, truth, predicted, ["$\\frac{$", "<img>"], "network")
