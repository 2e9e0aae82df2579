import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gristmill import files, records
from gristmill.errors import GateRefused, InputError
from gristmill.records import Check, Record, Verdict

PASSED = Check("GM001", "readable", "passed", 3, "3 rows", value=3, cases=({"row": 1, "x": None},))
FULL = Record(
    pipeline="flights",
    stage="split",
    inputs={"snapshot": "a" * 64, "validation": "b" * 64},
    declaration={"split": {"test": 0.2, "seed": 7}, "task.target": "late"},
    code={"gristmill:split.py": "c" * 64, "checks/flights.py": "d" * 64},
    packages={"python": "3.11", "numpy": "2.4.0"},
)


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A finished stage: output/a.txt, output/sub/b.txt and a record of them that passed."""
    folder = tmp_path / "split"
    (folder / "output" / "sub").mkdir(parents=True)
    (folder / "output" / "a.txt").write_text("a")
    (folder / "output" / "sub" / "b.txt").write_text("b")
    made(folder, PASSED).write(folder)
    return folder


def made(folder: Path, *checks: Check) -> Record:
    return FULL.with_result(files.tree_digests(folder / "output"), checks, {"rows": 3, "score": None})


def test_a_record_is_read_as_it_was_written(stage: Path) -> None:
    assert records.read(stage) == made(stage, PASSED)


def test_equal_work_gives_equal_bytes(stage: Path) -> None:
    before = (stage / "record.json").read_bytes()
    turned = replace(made(stage, PASSED), inputs={"validation": "b" * 64, "snapshot": "a" * 64})
    turned.write(stage)
    assert (stage / "record.json").read_bytes() == before


def test_where_there_is_none_there_is_none(tmp_path: Path) -> None:
    assert records.read(tmp_path) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("checks", 0, "verdict"), "warned"),
        (("passed",), False),
        (("output", "a.txt"), "e" * 64),
        (("values", "rows"), 4),
        (("declaration", "task.target"), "early"),
    ],
)
def test_m07_an_edited_record_is_refused(stage: Path, path: tuple[Any, ...], value: Any) -> None:
    file = stage / "record.json"
    body = json.loads(file.read_text())
    part = body
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    file.write_text(json.dumps(body))
    with pytest.raises(InputError, match=r"record.json: the record's hash is wrong, it was edited; make the"):
        records.read(stage)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "5", '{"digest": "x", "version": 1}', "\0"])
def test_what_is_no_record_is_refused_in_a_line(stage: Path, text: str) -> None:
    (stage / "record.json").write_text(text)
    with pytest.raises(
        InputError, match=r"record.json must be a record, however it is not: .*; make the stage"
    ):
        records.read(stage)


def test_half_a_record_is_refused(stage: Path) -> None:
    file = stage / "record.json"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"record.json must be a record, however it is not"):
        records.read(stage)


def test_m05_a_record_of_another_version_is_named(stage: Path) -> None:
    file = stage / "record.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 2, "news": 1}))
    with pytest.raises(InputError, match=r"is a record of version 2, however this gristmill reads version 1"):
        records.read(stage)


def test_a_record_never_holds_what_json_cannot_say(stage: Path) -> None:
    before = (stage / "record.json").read_bytes()
    with pytest.raises(ValueError, match="Out of range float values"):
        FULL.with_result({}, (), {"score": float("nan")}).write(stage)
    assert (stage / "record.json").read_bytes() == before


# The output


def test_files_are_as_the_record_says(stage: Path) -> None:
    record = made(stage, PASSED)
    assert records.first_difference(record, stage) is None
    (stage / "output" / "new.txt").write_text("n")
    assert records.first_difference(record, stage) == "new.txt was added"
    (stage / "output" / "new.txt").unlink()
    (stage / "output" / "sub" / "b.txt").write_text("B")
    assert records.first_difference(record, stage) == "sub/b.txt is not the file in the record"
    (stage / "output" / "sub" / "b.txt").unlink()
    assert records.first_difference(record, stage) == "sub/b.txt is missing"


def test_an_output_that_is_gone_is_missing_its_first_file(stage: Path) -> None:
    record = made(stage, PASSED)
    (stage / "output").rename(stage / "moved")
    assert records.first_difference(record, stage) == "a.txt is missing"


# The gate


def test_a_passed_stage_is_handed_over(stage: Path) -> None:
    found = records.demand(stage, "flights", "split")
    assert found.folder == stage / "output"
    assert found.record.values["rows"] == 3


def test_k57_no_record_is_a_refusal(tmp_path: Path) -> None:
    words = r"flights/split must have a passed record, however it has none; run `gristmill run flights --to split`"
    with pytest.raises(GateRefused, match=words):
        records.demand(tmp_path, "flights", "split")


@pytest.mark.parametrize(
    ("verdict", "enters"), [("warned", True), ("failed", False), ("not verified", False)]
)
def test_k57_only_what_passed_or_warned_enters(stage: Path, verdict: Verdict, enters: bool) -> None:
    checks = (PASSED, Check("GM101", "contract", verdict, 0, "…"))
    made(stage, *checks).write(stage)
    if enters:
        assert records.demand(stage, "flights", "split").record.checks == checks
        return
    with pytest.raises(
        GateRefused, match=r"must have passed, however it did not \(GM101 contract\); see .*record.json"
    ):
        records.demand(stage, "flights", "split")


def test_a_changed_file_behind_a_passed_record_is_refused(stage: Path) -> None:
    (stage / "output" / "a.txt").write_text("A")
    with pytest.raises(InputError, match=r"however a.txt is not the file in the record; run `gristmill run"):
        records.demand(stage, "flights", "split")


@pytest.mark.parametrize(
    ("ok", "severity", "evaluated", "verdict"),
    [
        (True, "fail", 9, "passed"),
        (False, "fail", 9, "failed"),
        (False, "warn", 9, "warned"),
        (True, "fail", 0, "not verified"),
        (True, "warn", 0, "not verified"),
    ],
)
def test_k09_nothing_looked_at_is_not_a_pass(
    ok: bool, severity: Any, evaluated: int, verdict: Verdict
) -> None:
    assert records.judge(ok, severity, evaluated) == verdict
    assert Check("GM101", "x", verdict, evaluated, "").passed == (verdict in ("passed", "warned"))


# What a result depends on


def test_the_fingerprint_is_of_what_goes_in() -> None:
    assert FULL.fingerprint == FULL.with_result({"a": "x"}, (PASSED,), {"rows": 1}).fingerprint
    assert replace(FULL, pipeline="renamed").fingerprint == FULL.fingerprint


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"inputs": FULL.inputs | {"validation": "0" * 64}}, "its input validation changed"),
        ({"inputs": {"snapshot": "a" * 64}}, "its input validation changed"),
        (
            {"declaration": {"split": {"test": 0.2, "seed": 8}, "task.target": "late"}},
            "the declaration changed: split.seed: 7 -> 8",
        ),
        (
            {"declaration": {"split": {"test": 0.2}, "task.target": "late"}},
            "the declaration changed: split.seed: 7 -> none",
        ),
        ({"code": FULL.code | {"checks/flights.py": "0" * 64}}, "code changed: checks/flights.py"),
        (
            {"code": FULL.code | {"checks/new.py": "0123456789" * 6 + "abcd"}},
            "code changed: checks/new.py: none -> 0123456789012345678901234567890123456...",
        ),
        ({"packages": FULL.packages | {"numpy": "2.5.0"}}, "the environment changed: numpy: 2.4.0 -> 2.5.0"),
        ({"packages": {"python": "3.11"}}, "the environment changed: numpy: 2.4.0 -> none"),
    ],
)
def test_the_first_cause_is_named(changed: dict[str, Any], cause: str) -> None:
    new = replace(FULL, **changed)
    assert records.first_cause(FULL, new) == cause
    assert new.fingerprint != FULL.fingerprint


def test_without_a_change_there_is_no_cause() -> None:
    assert records.first_cause(FULL, FULL.with_result({"a": "x"}, (), {})) is None


def test_an_input_is_named_before_the_declaration_and_code() -> None:
    new = replace(FULL, inputs={}, declaration={}, code={}, packages={})
    assert records.first_cause(FULL, new) == "its input snapshot changed"
    assert records.first_cause(FULL, replace(new, inputs=FULL.inputs)) == (
        "the declaration changed: split: {'test': 0.2, 'seed': 7} -> none"
    )
