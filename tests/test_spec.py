from datetime import timedelta
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from gristmill import spec
from gristmill.spec import BETTER_WHEN_HIGHER, METRICS, Model, PipelineSpec
from gristmill.spec.base import duration

REQUIRED = {
    "Accept": set(),
    "AssetSource": {"asset"},
    "BinaryTask": {"kind", "target", "positive", "metric", "accept"},
    "ColumnContract": {"type"},
    "Constant": {"name"},
    "InlineContract": {"columns"},
    "MulticlassTask": {"kind", "target", "metric", "accept"},
    "PathSource": {"path"},
    "PipelineSpec": {"source", "task", "split"},
    "RegressionTask": {"kind", "target", "metric", "accept"},
    "Retrain": {"cron"},
    "Split": {"test", "validation"},
    "SqlSource": {"sql", "connection"},
    "SuiteContract": {"suite"},
}


def models() -> list[type[Model]]:
    def below(kind: type[Model]) -> list[type[Model]]:
        return [kind, *(model for child in kind.__subclasses__() for model in below(child))]

    return [model for model in below(Model)[1:] if not model.__name__.startswith("_")]


def attributes(**more: Any) -> dict[str, Any]:
    task = {"kind": "binary", "target": "late", "positive": 1, "metric": "roc_auc"}
    return {
        "source": {"path": "data/x.csv"},
        "task": task | {"accept": {"at_least": 0.7}},
        "split": {"test": 0.2, "validation": 0.1},
    } | more


def declared(**more: Any) -> PipelineSpec:
    return PipelineSpec.model_validate(attributes(**more))


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_each_field_has_a_sentence(model: type[Model]) -> None:
    silent = [
        name for name, field in model.model_fields.items() if not (field.description or "").endswith(".")
    ]
    assert silent == []


def test_each_field_has_its_sentence_in_the_json_schema() -> None:
    schema = PipelineSpec.model_json_schema()
    parts = {"PipelineSpec": schema, **schema["$defs"]}
    # A field whose sentence is that of its model says it once, in the model.
    silent = [
        f"{name}.{key}"
        for name, part in parts.items()
        for key, value in part.get("properties", {}).items()
        if not value.get("description") and not parts[value["$ref"].split("/")[-1]].get("description")
    ]
    assert silent == []


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_only_what_has_no_sensible_default_is_required(model: type[Model]) -> None:
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    assert required == REQUIRED.get(model.__name__, set())


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_each_model_is_frozen_and_knows_its_keys(model: type[Model]) -> None:
    assert model.model_config["frozen"]
    assert model.model_config["extra"] == "forbid"
    assert not {"on", "off", "yes", "no", "y", "n"} & set(model.model_fields)


def test_each_metric_has_a_direction_and_belongs_to_a_kind() -> None:
    assert {metric for metrics in METRICS.values() for metric in metrics} == set(BETTER_WHEN_HIGHER)
    for kind, task in (
        ("binary", spec.BinaryTask),
        ("multiclass", spec.MulticlassTask),
        ("regression", spec.RegressionTask),
    ):
        assert get_args(task.model_fields["metric"].annotation) == METRICS[kind]  # type: ignore[index]


def test_defaults_are_visible() -> None:
    shown = declared().model_dump(mode="json")
    assert shown["training"]["optimizer"] == {"name": "adamw", "lr": 0.001, "weight_decay": 0.01}
    assert shown["validation"]["duplicates"] == {"max_share": 0.0, "key": [], "severity": "fail"}
    assert PipelineSpec.model_validate(shown) == declared()


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="Instance is frozen"):
        declared().split.seed = 1


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90s", timedelta(seconds=90)),
        ("90m", timedelta(minutes=90)),
        ("12h", timedelta(hours=12)),
        ("1d", timedelta(days=1)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, length: timedelta) -> None:
    assert duration(text) == length


@pytest.mark.parametrize("text", ["", "1", "d", "1.5d", "-1d", "1 d", "1y", "1d12h"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a whole number and a unit"):
        duration(text)


@pytest.mark.parametrize("cron", ["0 3 * * 1", "*/15 0-6,18 1 1-12/2 7"])
def test_a_cron_expression_has_five_fields(cron: str) -> None:
    assert declared(retrain={"cron": cron}).retrain == spec.Retrain(cron=cron)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 3 * *", "five fields"),
        ("@daily", "five fields"),
        ("0 24 * * *", "'24' must stay within 0-23"),
        ("60 * * * *", "'60' must stay within 0-59"),
        ("*/0 * * * *", r"'\*/0' must stay within"),
        ("0 3 * * MON", "'MON' must stay within 0-7"),
    ],
)
def test_other_cron_expressions_are_refused(cron: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        declared(retrain={"cron": cron})


def test_a_schedule_needs_a_time_zone_that_exists() -> None:
    with pytest.raises(ValidationError, match="must be a time zone such as Europe/Paris"):
        declared(retrain={"cron": "0 3 * * 1", "timezone": "Mars/Olympus"})


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ({"test": 0.8, "validation": 0.3}, "add up to 1.1"),
        ({"test": 0.5, "validation": 0.5}, "add up to 1; nothing is left"),
        ({"test": 0.0, "validation": 0.1}, "greater than 0"),
        ({"test": 0.2, "validation": 0.1, "gap": "1d"}, "gap needs time_on"),
        ({"test": 0.2, "validation": 0.1, "time_on": "t", "gap": "1 day"}, "a whole number and a unit"),
        ({"test": 0.2, "validation": 0.1, "time_on": "t", "group_on": "g"}, "time_on and group_on together"),
        ({"test": 0.2, "validation": 0.1, "time_on": "t", "stratify_on": "s"}, "time_on and stratify_on"),
        ({"test": 0.2, "validation": 0.1, "time_on": "late"}, "both target and split.time_on"),
        ({"test": 0.2, "validation": 0.1, "group_on": "late"}, "both target and split.group_on"),
    ],
)
def test_a_split_that_cannot_be_is_refused(split: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        declared(split=split)


def test_a_gap_goes_with_a_time() -> None:
    split = declared(split={"test": 0.2, "validation": 0.1, "time_on": "t", "gap": "2w"}).split
    assert (split.time_on, split.gap) == ("t", "2w")


@pytest.mark.parametrize("section", ["split", "baseline", "training", "evaluation"])
@pytest.mark.parametrize("seed", [True, "1", 1.5, None])
def test_a_seed_is_a_whole_number(section: str, seed: Any) -> None:
    part = attributes()["split"] if section == "split" else {}
    assert declared(**{section: part | {"seed": 7}}).model_dump()[section]["seed"] == 7
    with pytest.raises(ValidationError, match="valid integer"):
        declared(**{section: part | {"seed": seed}})


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({"include": ["late", "a"]}, "'late' is both target and feature"),
        ({"categorical": ["late"]}, "'late' is both target and feature"),
        ({"include": ["a"], "exclude": ["a"]}, "'a' is both included and excluded"),
    ],
)
def test_a_column_has_one_role(features: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        declared(features=features)


def test_a_split_column_is_no_feature() -> None:
    split = {"test": 0.2, "validation": 0.1, "group_on": "tail"}
    with pytest.raises(ValidationError, match=r"'tail' is both split.group_on and a feature"):
        declared(features={"include": ["tail"]}, split=split)


@pytest.mark.parametrize(
    ("metric", "accept", "words"),
    [
        ("roc_auc", {}, "accept.at_least is required"),
        ("log_loss", {}, "accept.at_most is required"),
        ("roc_auc", {"at_most": 0.7}, "better when higher: declare accept.at_least"),
        ("log_loss", {"at_least": 0.7}, "better when lower: declare accept.at_most"),
    ],
)
def test_acceptance_looks_the_way_the_metric_does(metric: str, accept: dict[str, float], words: str) -> None:
    task = attributes()["task"] | {"metric": metric, "accept": accept}
    with pytest.raises(ValidationError, match=words):
        declared(task=task)


@pytest.mark.parametrize(
    "path", ["../x.csv", "a/../../x", "/etc/passwd", "file:///x", "C:\\x", "..\\x", "a\0b"]
)
def test_a_path_stays_in_the_workspace(path: str) -> None:
    with pytest.raises(ValidationError, match="leaves the project"):
        declared(source={"path": path})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"owners": ["bob"]}, "an e-mail address or team:NAME"),
        ({"contract": "checks.flights"}, "must be module:name"),
        ({"contract": "os:system; rm"}, "must be module:name"),
        ({"source": {"asset": "raw/../x"}}, "must be an asset key"),
        ({"version": 3}, "declaration version 3; this gristmill reads version 1"),
    ],
)
def test_names_have_a_form(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        declared(**more)


@pytest.mark.parametrize("positive", [True, 1, "yes"])
def test_the_positive_class_keeps_its_type(positive: Any) -> None:
    task = declared(task=attributes()["task"] | {"positive": positive}).task
    assert isinstance(task, spec.BinaryTask)
    assert task.positive == positive
    assert type(task.positive) is type(positive)
