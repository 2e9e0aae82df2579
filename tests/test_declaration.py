import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gristmill import declaration
from gristmill.errors import DeclarationError, InputError
from tests.conftest import Declare

# 14 lines; what a test adds to it starts on line 15.
GOOD = """\
type: gristmill.Pipeline
attributes:
  source:
    path: data/x.csv
  task:
    kind: binary
    target: late
    positive: 1
    metric: roc_auc
    accept:
      at_least: 0.7
  split:
    test: 0.2
    validation: 0.1
"""


def problems(file: Path) -> list[tuple[int, str, str]]:
    """What is wrong with a declaration: line, path and text."""
    with pytest.raises(DeclarationError, match=r"defs\.yaml:\d+: ") as caught:
        declaration.read(file)
    assert all("\n" not in problem.text for problem in caught.value.problems)
    return [(problem.line, problem.path, problem.text) for problem in caught.value.problems]


def test_a_good_file_becomes_a_declaration_named_as_its_folder(declare: Declare) -> None:
    file = declare(GOOD)
    found = declaration.read(file)
    assert (found.name, found.folder) == ("flights", file.parent)
    assert found.spec.task.target == "late"
    assert found.spec.training.seed == 0


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf" + GOOD.encode(), GOOD.replace("\n", "\r\n").encode()])
def test_a_byte_order_mark_and_windows_line_ends_change_nothing(declare: Declare, content: bytes) -> None:
    plain = declaration.read(declare(GOOD)).spec
    assert declaration.read(declare(content)).spec == plain


# The text


@pytest.mark.parametrize("content", ["", "# nothing yet\n", "---\n"])
def test_d01_an_empty_file_says_where_to_start(declare: Declare, content: str) -> None:
    line, path, text = problems(declare(content))[0]
    assert (line, path) == (1, "")
    assert "gristmill init" in text or "must be a mapping" in text


def test_d02_a_tab_is_named_with_its_line(declare: Declare) -> None:
    file = declare(GOOD.replace("    kind", "\tkind"))
    assert problems(file) == [(6, "", "tab used for indentation; use spaces")]


def test_d03_a_key_given_twice_is_named_with_both_lines(declare: Declare) -> None:
    file = declare(GOOD + "  training:\n    seed: 1\n    epochs: 3\n    seed: 1\n")
    assert problems(file) == [(18, "training.seed", "'seed' given on lines 16 and 18")]


@pytest.mark.parametrize(
    "value", ["!!python/object/apply:os.system [id]", "!!python/name:os.system x", "!!str 5", "!mine {a: 1}"]
)
def test_d09_tags_are_refused(declare: Declare, value: str) -> None:
    [(line, _, text)] = problems(declare(GOOD + f"  description: {value}\n"))
    assert line == 15
    assert text.startswith("tags are not allowed, got ")


def test_d10_an_alias_bomb_is_refused_before_it_expands(declare: Declare) -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10))
    assert problems(declare("l0: &l0 [x]\n" + levels)) == [
        (1, "", "too many aliases: 81, at most 20 are allowed")
    ]


def test_a_few_aliases_are_allowed(declare: Declare) -> None:
    file = declare(GOOD + "  evaluation: {seed: &seed 7}\n  baseline: {seed: *seed}\n")
    assert declaration.read(file).spec.baseline.seed == 7


def test_an_alias_of_itself_is_refused(declare: Declare) -> None:
    assert problems(declare("a: 1\nb: &b [*b]\n")) == [(2, "", "*b stands inside what it names")]


def test_nesting_without_end_is_refused(declare: Declare) -> None:
    text = "nested too deeply; at most 50 levels are allowed"
    assert problems(declare("a: " + "[" * 5000 + "]" * 5000)) == [(1, "", text)]


def test_a_file_above_1_mib_is_refused(declare: Declare) -> None:
    [(line, _, text)] = problems(declare(GOOD + "#" * (1 << 20)))
    assert line == 1
    assert text.startswith("a declaration may have at most 1 MiB, got ")


def test_merge_keys_are_refused(declare: Declare) -> None:
    found = problems(declare(GOOD + "  network:\n    <<: {dropout: 0.2}\n"))
    assert (16, "network", "merge keys are not allowed") in found


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (GOOD.encode("utf-16"), 1, "must be UTF-8, however byte 0 is not"),
        (GOOD + '  description: "a\0b"\n', 15, "character #x0000"),
        (GOOD + '  description: "never closed\n', 16, "found unexpected end of stream"),
        (GOOD + "---\na: 1\n", 15, "another document"),
        (GOOD + "  description: *nobody\n", 15, "undefined alias"),
        ("%YAML 1.1\n---\n" + GOOD, 2, "must be YAML 1.2; remove the %YAML line"),
        ("- a\n", 1, "must be a mapping with type: gristmill.Pipeline and attributes"),
        ("5\n", 1, "must be a mapping with type: gristmill.Pipeline and attributes"),
    ],
)
def test_what_is_no_yaml_mapping_is_told_in_one_line(
    declare: Declare, content: str | bytes, line: int, words: str
) -> None:
    [(found, _, text)] = problems(declare(content))
    assert found == line
    assert words in text


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"defs.yaml must be a declaration, however there is no such file"):
        declaration.read(tmp_path / "defs.yaml")


# Dagster reads YAML 1.1, DVC reads YAML 1.2


@pytest.mark.parametrize(
    ("value", "new", "old"),
    [
        ("no", "'no'", "false"),
        ("Yes", "'Yes'", "true"),
        ("off", "'off'", "false"),
        ("010", "10", "8"),
        ("0o17", "15", "'0o17'"),
        ("08", "8", "'08'"),
        ("0b101", "'0b101'", "5"),
        ("22:22", "'22:22'", "1342"),
        ("1:30.5", "'1:30.5'", "90.5"),
        ("2024-01-02", "'2024-01-02'", "the date 2024-01-02"),
        ("=", "'='", "not readable"),
    ],
)
def test_k17_a_scalar_with_two_meanings_is_refused(declare: Declare, value: str, new: str, old: str) -> None:
    way_out = "write 10 or 8" if value == "010" else "quote it"
    text = f"{value} is {new} to YAML 1.2 (DVC) and {old} to YAML 1.1 (Dagster); {way_out}"
    assert problems(declare(GOOD + f"  description: {value}\n")) == [(15, "description", text)]
    quoted = declaration.read(declare(GOOD + f"  description: '{value}'\n"))
    assert quoted.spec.description == value


def test_a_key_with_two_meanings_is_refused(declare: Declare) -> None:
    found = problems(declare(GOOD + "  contract:\n    columns:\n      no: {type: string}\n"))
    assert [(line, path) for line, path, _ in found] == [(17, "contract.columns.no")]


def test_a_number_that_no_one_can_read_is_refused(declare: Declare) -> None:
    [(line, path, text)] = problems(declare(GOOD + f"  training: {{seed: {'9' * 5000}}}\n"))
    assert (line, path) == (15, "training.seed")
    assert text.endswith("quote it")
    assert len(text) < 300


@pytest.mark.parametrize("lr", ["1e-5", "1.0e-5", "0.00001", "'1e-5'"])
def test_k17_scientific_notation_is_the_number_to_every_reader(declare: Declare, lr: str) -> None:
    file = declare(GOOD + f"  training: {{optimizer: {{lr: {lr}}}}}\n")
    assert declaration.read(file).spec.training.optimizer.lr == 0.00001
    # Dagster's reader hands 1e-5 over as text.
    attributes = yaml.safe_load(file.read_text())["attributes"]
    assert declaration.PipelineSpec.model_validate(attributes).training.optimizer.lr == 0.00001


# What the text says


def test_d04_an_unknown_key_is_told_with_the_nearest(declare: Declare) -> None:
    file = declare(GOOD.replace("    target: late", "    target: late\n    traget: late"))
    assert problems(file) == [(8, "task.traget", "unknown key 'traget'; did you mean 'target'?")]


@pytest.mark.parametrize(
    ("added", "line", "path", "text"),
    [
        ("  trainig: {}", 15, "trainig", "unknown key 'trainig'; did you mean 'training'?"),
        ("  training:\n    gammas: 0.1", 16, "training.gammas", "unknown key 'gammas'"),
        (
            "  training:\n    schedule:\n      name: constant\n      warm_up: 0.1",
            18,
            "training.schedule.warm_up",
            "unknown key 'warm_up'; did you mean 'warmup'?",
        ),
        (
            "  training:\n    schedule:\n      name: constant\n      constant: 1",
            18,
            "training.schedule.constant",
            "unknown key 'constant'",
        ),
        (
            "  training:\n    schedule:\n      name: constant\n      warmup: 0.1",
            18,
            "training.schedule.warmup",
            "'warmup' does not go with 'constant'",
        ),
        (
            "  contract:\n    columns:\n      age:\n        type: integer\n        nulable: true",
            19,
            "contract.columns.age.nulable",
            "unknown key 'nulable'; did you mean 'nullable'?",
        ),
        (
            "  contract:\n    columns:\n      columns:\n        type: integer\n        nulable: true",
            19,
            "contract.columns.columns.nulable",
            "unknown key 'nulable'; did you mean 'nullable'?",
        ),
        (
            "  contract:\n    suite: a.json\n    suit: b.json",
            17,
            "contract.suit",
            "unknown key 'suit'; did you mean 'suite'?",
        ),
    ],
)
def test_an_unknown_key_is_found_in_every_place(
    declare: Declare, added: str, line: int, path: str, text: str
) -> None:
    assert problems(declare(GOOD + added + "\n")) == [(line, path, text)]


@pytest.mark.parametrize(
    ("source", "line", "path", "text"),
    [
        (
            "path: a.csv\n    seperator: ;",
            5,
            "source.seperator",
            "unknown key 'seperator'; did you mean 'separator'?",
        ),
        ("path: a.csv\n    asset: raw", 5, "source.asset", "'asset' does not go with 'path'"),
        ("asset: raw\n    query: x", 5, "source.query", "unknown key 'query'"),
        ("pth: a.csv", 3, "source", "must name one of path, asset or sql, got {'pth': 'a.csv'}"),
        (
            "path: a.csv\n    separator: ;;",
            5,
            "source.separator",
            "string should have at most 1 character, got ';;'",
        ),
        (
            "path: a.csv\n    types: {a: strng}",
            5,
            "source.types.a",
            "must be 'integer', 'number', 'string', 'boolean', 'date' or 'timestamp', got 'strng'; "
            "did you mean 'string'?",
        ),
    ],
)
def test_a_source_is_one_kind_with_its_own_keys(
    declare: Declare, source: str, line: int, path: str, text: str
) -> None:
    assert problems(declare(GOOD.replace("path: data/x.csv", source))) == [(line, path, text)]


def test_d05_a_missing_key_is_told_where_it_should_stand(declare: Declare) -> None:
    file = declare(GOOD.replace("    target: late\n", ""))
    assert problems(file) == [(5, "task.target", "'target' is required")]


@pytest.mark.parametrize(
    ("lr", "text"),
    [
        ('"fast"', "must be a number, got 'fast'"),
        ("true", "must be a number, got true"),
        ("null", "must be a number, got None"),
        ("0", "must be > 0, got 0"),
        ("-1", "must be > 0, got -1"),
        (".nan", "must be finite, got nan"),
        (".inf", "must be finite, got inf"),
        ("1e400", "must be finite, got inf"),
    ],
)
def test_d06_d07_a_learning_rate_is_a_finite_number_above_0(declare: Declare, lr: str, text: str) -> None:
    file = declare(GOOD + f"  training:\n    optimizer:\n      lr: {lr}\n")
    assert problems(file) == [(17, "training.optimizer.lr", text)]


@pytest.mark.parametrize(
    ("epochs", "shown"), [("2.5", "2.5"), ("true", "true"), ('"3"', "'3'"), ("3.0", "3.0"), ("1e3", "1000.0")]
)
def test_d08_a_count_is_a_whole_number(declare: Declare, epochs: str, shown: str) -> None:
    file = declare(GOOD + f"  training: {{epochs: {epochs}}}\n")
    assert problems(file) == [(15, "training.epochs", f"must be a whole number, got {shown}")]


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "a/../../b.csv"])
def test_d11_a_path_stays_in_the_project(declare: Declare, path: str) -> None:
    [(line, where, text)] = problems(declare(GOOD.replace("data/x.csv", path)))
    assert (line, where) == (4, "source.path")
    assert text == f"leaves the project; it must be a path under the workspace, got {path!r}"


@pytest.mark.parametrize("name", ["a;rm", "a b", "-a", "$(id)", "a\nb", ".hidden"])
def test_d12_a_name_has_plain_letters(declare: Declare, name: str) -> None:
    [(line, _, text)] = problems(declare(GOOD, name))
    assert line == 1
    assert text.endswith(f"may use letters, digits, - and _, got {name!r}")


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        ("rmse", "rmse needs kind: regression; binary has "),
        ("f1_macro", "f1_macro needs kind: multiclass; binary has "),
        ("rocauc", "must be 'roc_auc', "),
    ],
)
def test_d13_d18_k13_a_metric_belongs_to_the_declared_kind(declare: Declare, metric: str, text: str) -> None:
    [(line, path, found)] = problems(declare(GOOD.replace("roc_auc", metric)))
    assert (line, path) == (9, "task.metric")
    assert found.startswith(text)


def test_k13_the_kind_of_task_is_declared_never_guessed(declare: Declare) -> None:
    file = declare(GOOD.replace("    kind: binary\n", ""))
    assert problems(file) == [(5, "task", "'kind' is required")]
    file = declare(GOOD.replace("binary", "ordinal"))
    text = "'kind' must be one of 'binary', 'multiclass', 'regression', got 'ordinal'"
    assert problems(file) == [(5, "task", text)]


def test_d14_sizes_add_up(declare: Declare) -> None:
    file = declare(GOOD.replace("test: 0.2", "test: 0.95"))
    text = "test and validation add up to 1.05; nothing is left to train on"
    assert problems(file) == [(12, "split", text)]


def test_d15_an_unknown_model_is_told_with_the_nearest(declare: Declare) -> None:
    file = declare(GOOD + "  baseline: {model: xgbost}\n")
    text = "must be 'xgboost', got 'xgbost'; did you mean 'xgboost'?"
    assert problems(file) == [(15, "baseline.model", text)]


def test_d16_a_newer_version_is_told(declare: Declare) -> None:
    file = declare(GOOD + "  version: 3\n")
    assert problems(file) == [(15, "version", "declaration version 3; this gristmill reads version 1")]


@pytest.mark.parametrize(("key", "value"), [("contract: {columns", "{}}"), ("network: {hidden", "[]}")])
def test_d17_what_needs_an_entry_may_not_be_empty(declare: Declare, key: str, value: str) -> None:
    [(line, _, text)] = problems(declare(GOOD + f"  {key}: {value}\n"))
    assert (line, text) == (15, "must not be empty")


def test_one_name_where_a_list_is_wanted_is_told_in_words_of_yaml(declare: Declare) -> None:
    file = declare(GOOD + "  validation: {duplicates: {key: customer}}\n")
    found = (15, "validation.duplicates.key", "must be a list, such as [a, b], got 'customer'")
    assert problems(file) == [found]


def test_d19_a_target_is_no_feature(declare: Declare) -> None:
    file = declare(GOOD + "  features: {include: [late, a]}\n")
    assert problems(file) == [(2, "", "'late' is both target and feature")]


@pytest.mark.parametrize("value", ["1.5", "{a: 1}", "null"])
def test_a_value_that_fits_no_alternative_is_told_once(declare: Declare, value: str) -> None:
    [(line, path, text)] = problems(declare(GOOD.replace("positive: 1", f"positive: {value}")))
    assert (line, path) == (8, "task.positive")
    assert text.startswith("must be text, a whole number, true or false, got ")


def test_acceptance_needs_the_metrics_own_limit(declare: Declare) -> None:
    file = declare(GOOD.replace("      at_least: 0.7", "      above_baseline: 0.0"))
    text = "accept.at_least is required: the roc_auc a model must reach"
    assert problems(file) == [(5, "task", text)]
    file = declare(GOOD.replace("at_least", "at_most"))
    assert problems(file) == [(5, "task", "roc_auc is better when higher: declare accept.at_least")]


@pytest.mark.parametrize(
    ("content", "line", "path", "text"),
    [
        (GOOD.replace("gristmill.Pipeline", "gristmill.Pipline"), 1, "type", "got 'gristmill.Pipline'"),
        (GOOD.replace("type: gristmill.Pipeline\n", ""), 1, "type", "must be gristmill.Pipeline, got None"),
        ("type: gristmill.Pipeline\nattributes:\n", 2, "attributes", "must be a mapping"),
        (GOOD + "atributes: {}\n", 15, "", "unknown key 'atributes'; did you mean 'attributes'?"),
    ],
)
def test_the_frame_is_dagsters(declare: Declare, content: str, line: int, path: str, text: str) -> None:
    [(found, where, said)] = problems(declare(content))
    assert (found, where) == (line, path)
    assert text in said


def test_all_problems_of_a_file_are_told_together(declare: Declare) -> None:
    file = declare(
        GOOD.replace("positive: 1", "positive: no")
        + "  country: NA\n"
        + "  training:\n    epochs: 2.5\n    seed: 1\n    gammas: 0.1\n    seed: 1\n"
        + "  split:\n    test: 2\n    validation: 010\n"
    )
    assert [(line, path) for line, path, _ in problems(file)] == [
        (8, "task.positive"),
        (15, "country"),
        (17, "training.epochs"),
        (19, "training.gammas"),
        (20, "training.seed"),
        (21, "split"),
        (22, "split.test"),
        (23, "split.validation"),
    ]


# The environment


def test_a_template_takes_its_value_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "WAREHOUSE", "data/w.duckdb")
    assert declaration.resolve_environment("duckdb:///{{ env.WAREHOUSE }}") == "duckdb:///data/w.duckdb"
    assert declaration.resolve_environment("duckdb:///plain") == "duckdb:///plain"


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAREHOUSE", raising=False)
    with pytest.raises(InputError, match="environment variable WAREHOUSE must be set, however it is not"):
        declaration.resolve_environment("{{env.WAREHOUSE}}")


def test_a_template_without_quotes_is_told(declare: Declare) -> None:
    source = "sql: select 1\n    connection: {{ env.WAREHOUSE }}"
    file = declare(GOOD.replace("path: data/x.csv", source))
    text = 'a key must be text; quote a template: "{{ env.NAME }}"'
    assert problems(file) == [(5, "source.connection", text)]


# The schema for editors


def test_the_json_schema_takes_a_good_file(declare: Declare) -> None:
    schema = declaration.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    contract = "  contract:\n    columns:\n      age: {type: integer, min: 0, allowed: [1, 2]}\n"
    text = GOOD + contract + "  training: {schedule: {name: constant}}\nrequirements: {env: [X]}\n"
    declaration.read(declare(text))
    jsonschema.validate(yaml.safe_load(text), schema)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (GOOD + "  traget: x\n", "'traget'"),
        (GOOD.replace("    target: late\n", ""), "is not valid|'target' is a required property"),
        (GOOD.replace("roc_auc", "rmse"), "is not valid|'rmse' is not one of"),
        (GOOD + "  training: {epochs: 0}\n", "0 is less than the minimum of 1"),
        (GOOD.replace("gristmill.Pipeline", "other.Thing"), "'gristmill.Pipeline' was expected"),
        (GOOD + "more: 1\n", "'more' was unexpected"),
    ],
)
def test_the_json_schema_refuses_a_bad_file(content: str, words: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=words):
        jsonschema.validate(yaml.safe_load(content), declaration.json_schema())


def test_the_schema_offers_every_section() -> None:
    def described(part: dict[str, Any]) -> set[str]:
        return set(part["properties"])

    attributes = declaration.json_schema()["properties"]["attributes"]
    assert described(attributes) == set(declaration.PipelineSpec.model_fields)


def test_k17_a_number_that_yaml_1_1_takes_for_text_fits_the_schema_that_dagster_checks_with() -> None:
    number = declaration.json_schema()["$defs"]["AdamW"]["properties"]["lr"]
    assert jsonschema.Draft202012Validator(number).is_valid("1e-3")
    assert not jsonschema.Draft202012Validator(number).is_valid("fast")
    assert not jsonschema.Draft202012Validator(number).is_valid(0)
