"""What a declaration may say: one frozen tree, extra keys forbidden, a sentence for each field."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)

from gristmill.spec.base import (
    ColumnType,
    Count,
    InsidePath,
    Model,
    Name,
    Number,
    PartShare,
    Seed,
    UserCode,
    is_asset_key,
    is_cron,
    is_duration,
    is_owner,
    is_timezone,
    is_version,
)
from gristmill.spec.validation import Validation

Kind = Literal["binary", "multiclass", "regression"]

# Which way a score gets better: True where more is better. The names are scikit-learn's, the
# averaging of a multiclass score is always in its name.
BETTER_WHEN_HIGHER = {
    "roc_auc": True,
    "average_precision": True,
    "accuracy": True,
    "balanced_accuracy": True,
    "f1": True,
    "f1_macro": True,
    "roc_auc_ovr": True,
    "log_loss": False,
    "brier_score": False,
    "rmse": False,
    "mae": False,
    "r2": True,
}
METRICS: dict[Kind, tuple[str, ...]] = {
    "binary": (
        "roc_auc",
        "average_precision",
        "log_loss",
        "brier_score",
        "accuracy",
        "balanced_accuracy",
        "f1",
    ),
    "multiclass": ("accuracy", "balanced_accuracy", "f1_macro", "log_loss", "roc_auc_ovr"),
    "regression": ("rmse", "mae", "r2"),
}

# Source


class PathSource(Model):
    """Files under the workspace: CSV, TSV, JSON lines or Parquet, compressed with gzip or not."""

    path: InsidePath
    """A file, or a glob of files that are read in the order of their names."""
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None
    """The files' format; taken from the file name when left out."""
    separator: Annotated[StrictStr, Field(min_length=1, max_length=1)] | None = None
    """The character between two fields of a CSV; a comma, or a tab for TSV, when left out."""
    encoding: Literal["utf-8", "utf-16", "latin-1"] = "utf-8"
    """The text encoding of a CSV or TSV; a UTF-8 byte order mark is accepted."""
    na_values: tuple[StrictStr, ...] = ("",)
    """The texts that mean 'missing'; nothing else does, but null in JSON lines, where an empty text is a text."""
    types: dict[Name, ColumnType] = {}
    """Types of columns whose text alone does not say them, such as an id with leading zeros."""


class AssetSource(Model):
    """The table that a Dagster asset of the workspace makes (see assets/)."""

    asset: Annotated[StrictStr, AfterValidator(is_asset_key)]
    """The asset's key, its parts joined by /."""


class SqlSource(Model):
    """The rows of a query on a DuckDB or SQLite file."""

    sql: Name
    """The query; the rows' order is made stable by sorting them."""
    connection: Name
    """duckdb:///FILE or sqlite:///FILE; may be {{ env.NAME }} so that no secret is written down."""
    order_by: tuple[Name, ...] = ()
    """Columns that order the rows; all columns, from the left, when left out."""


def _source_kind(value: Any) -> str | None:
    keys = value if isinstance(value, dict) else vars(value) if isinstance(value, Model) else {}
    return next((kind for kind in ("path", "asset", "sql") if kind in keys), None)


Source = Annotated[
    Annotated[PathSource, Tag("path")]
    | Annotated[AssetSource, Tag("asset")]
    | Annotated[SqlSource, Tag("sql")],
    Discriminator(
        _source_kind,
        custom_error_type="source_kind",
        custom_error_message="must name one of path, asset or sql",
    ),
]


# Task


class Accept(Model):
    """What the champion must reach on the test part to become a model."""

    at_least: Number | None = None
    """The lowest score accepted, for a metric that is better when higher."""
    at_most: Number | None = None
    """The highest score accepted, for a metric that is better when lower."""
    above_baseline: Number | None = None
    """By how much the champion must be better than the best baseline; 0 accepts a tie, or the baseline itself."""


class _Task(Model):
    target: Name
    """The column to predict."""
    target_missing: Literal["refuse", "drop"] = "refuse"
    """What to do with rows whose target is missing: refuse the data, or leave them out, counted."""
    accept: Accept
    """The gate between an evaluated model and an accepted one."""

    @model_validator(mode="after")
    def _limit_has_direction(self) -> Self:
        metric = self.metric  # type: ignore[attr-defined]
        higher = BETTER_WHEN_HIGHER[metric]
        if self.accept.at_least is None and self.accept.at_most is None:
            wanted = "at_least" if higher else "at_most"
            raise ValueError(f"accept.{wanted} is required: the {metric} a model must reach")
        if higher and self.accept.at_most is not None:
            raise ValueError(f"{metric} is better when higher: declare accept.at_least")
        if not higher and self.accept.at_least is not None:
            raise ValueError(f"{metric} is better when lower: declare accept.at_most")
        return self


class BinaryTask(_Task):
    """One of two classes."""

    kind: Literal["binary"]
    """The kind of task; declared, never guessed."""
    positive: StrictBool | StrictInt | StrictStr
    """The value of the target that counts as positive."""
    metric: Literal[
        "roc_auc",
        "average_precision",
        "log_loss",
        "brier_score",
        "accuracy",
        "balanced_accuracy",
        "f1",
    ]
    """The score that selects and accepts."""


class MulticlassTask(_Task):
    """One of several classes."""

    kind: Literal["multiclass"]
    """The kind of task; declared, never guessed."""
    metric: Literal["accuracy", "balanced_accuracy", "f1_macro", "log_loss", "roc_auc_ovr"]
    """The score that selects and accepts."""


class RegressionTask(_Task):
    """A number."""

    kind: Literal["regression"]
    """The kind of task; declared, never guessed."""
    metric: Literal["rmse", "mae", "r2"]
    """The score that selects and accepts."""


Task = Annotated[BinaryTask | MulticlassTask | RegressionTask, Field(discriminator="kind")]


# Features and contract


class Features(Model):
    """Which columns the model may see; the target and the split's columns never are among them."""

    include: tuple[Name, ...] = ()
    """The only columns to use; all of the table when left out."""
    exclude: tuple[Name, ...] = ()
    """Columns to leave out, such as what is known only afterwards."""
    categorical: tuple[Name, ...] = ()
    """Columns of numbers whose values are names (a code, a month), not amounts."""

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if both := sorted(set(self.include) & set(self.exclude)):
            raise ValueError(f"{both[0]!r} is both included and excluded")
        return self


class ColumnContract(Model):
    """What one column must hold."""

    type: ColumnType
    """The column's type."""
    nullable: StrictBool = False
    """Whether values may be missing."""
    min: Number | None = None
    """The smallest value allowed, itself included."""
    max: Number | None = None
    """The largest value allowed, itself included."""
    allowed: tuple[StrictStr | StrictInt | StrictBool, ...] | None = None
    """The only values allowed."""
    pattern: StrictStr | None = None
    """A regular expression that each value must match from its start."""
    unique: StrictBool = False
    """Whether a value may stand only once."""
    known: Literal["before", "after"] = "before"
    """Whether the value is known before the prediction is needed; one known only after cannot be a feature."""
    description: StrictStr = ""
    """What the column means, with its unit."""


class InlineContract(Model):
    """A contract written in the declaration."""

    columns: Annotated[dict[Name, ColumnContract], Field(min_length=1)]
    """The columns, by name, and what each must hold."""


class SuiteContract(Model):
    """A Great Expectations suite, as JSON."""

    suite: InsidePath
    """The suite's file, as Great Expectations writes it."""


def _contract_kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "code"
    keys = value if isinstance(value, dict) else vars(value) if isinstance(value, Model) else {}
    return next((kind for kind in ("columns", "suite") if kind in keys), None)


Contract = Annotated[
    Annotated[UserCode, Tag("code")]
    | Annotated[InlineContract, Tag("columns")]
    | Annotated[SuiteContract, Tag("suite")],
    Discriminator(
        _contract_kind,
        custom_error_type="contract_kind",
        custom_error_message="must be module:name of a pandera model, or name columns or a suite",
    ),
]


# Split


class Split(Model):
    """How rows are divided; what is left after test and validation is for training."""

    test: PartShare
    """The share of rows that only the final evaluation sees."""
    validation: PartShare
    """The share of rows that selects epochs, settings and the champion."""
    time_on: Name | None = None
    """A date or timestamp: training is before validation, validation before test, ties on one side."""
    gap: Annotated[StrictStr, AfterValidator(is_duration)] | None = None
    """Time left out between two parts (12h, 1d, 2w), as long as a label or a feature looks ahead or back."""
    group_on: Name | None = None
    """Rows with the same value stay in one part."""
    stratify_on: Name | None = None
    """Each part gets the values of this column in the same shares."""
    seed: Seed = 0
    """The seed of the random choice."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.test + self.validation >= 1:
            total = self.test + self.validation
            raise ValueError(f"test and validation add up to {total:g}; nothing is left to train on")
        if self.gap is not None and self.time_on is None:
            raise ValueError("gap needs time_on: a gap in time needs a time")
        if self.time_on is not None and (self.group_on or self.stratify_on):
            other = "group_on" if self.group_on else "stratify_on"
            raise ValueError(f"time_on and {other} together are not offered; declare one of them")
        return self


# Models and training


class Baseline(Model):
    """The plain models a network has to beat: a dummy and a linear model always, and boosted trees."""

    model: Literal["xgboost"] = "xgboost"
    """The boosted trees' library."""
    rounds: Count = 500
    """The most trees to grow; the best round on the validation part is kept."""
    learning_rate: Annotated[Number, Field(gt=0, le=1)] = 0.1
    """How much each tree may add."""
    max_depth: Count = 6
    """The deepest a tree may grow."""
    patience: Count = 25
    """Rounds without a better validation loss before growing stops."""
    seed: Seed = 0
    """The seed of the fits."""


class Mlp(Model):
    """A multilayer perceptron; each category has an embedding."""

    model: Literal["mlp"] = "mlp"
    """The network's kind."""
    hidden: Annotated[tuple[Count, ...], Field(min_length=1)] = (256, 128)
    """The widths of the hidden layers."""
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.1
    """The share of hidden units dropped in training."""


class AdamW(Model):
    """AdamW (Loshchilov and Hutter 2019); biases, norms and embeddings do not decay."""

    name: Literal["adamw"] = "adamw"
    """The optimizer's kind."""
    lr: Annotated[Number, Field(gt=0)] = 1e-3
    """The largest learning rate."""
    weight_decay: Annotated[Number, Field(ge=0)] = 1e-2
    """The decoupled weight decay."""


class WarmupCosine(Model):
    """A linear rise, then half a cosine to zero, stepped at each optimizer step."""

    name: Literal["warmup_cosine"] = "warmup_cosine"
    """The schedule's kind."""
    warmup: Annotated[Number, Field(ge=0, lt=1)] = 0.05
    """The share of all steps that rise."""


class Constant(Model):
    """One learning rate throughout."""

    name: Literal["constant"]
    """The schedule's kind."""


class EarlyStopping(Model):
    """When to stop before the last epoch."""

    patience: Count = 8
    """Epochs without a better validation loss before training stops."""


class Training(Model):
    """How the network is trained; the best epoch's weights are the ones kept."""

    epochs: Count = 40
    """The most passes over the training part."""
    batch_size: Annotated[StrictInt, Field(ge=2)] = 512
    """Rows in one step."""
    optimizer: AdamW = AdamW()
    """What turns gradients into steps."""
    schedule: Annotated[WarmupCosine | Constant, Field(discriminator="name")] = WarmupCosine()
    """The learning rate over the steps."""
    clip_norm: Annotated[Number, Field(gt=0)] | None = 1.0
    """The largest gradient norm; null for no clipping."""
    early_stopping: EarlyStopping = EarlyStopping()
    """When to stop before the last epoch."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train: auto takes a GPU when there is one."""
    seed: Seed = 0
    """The seed of weights, order and dropout."""


class Evaluation(Model):
    """How the test part is judged."""

    resamples: Annotated[StrictInt, Field(ge=100)] = 500
    """Bootstrap resamples behind each interval."""
    confidence: Annotated[Number, Field(gt=0, lt=1)] = 0.95
    """The intervals' level."""
    seed: Seed = 0
    """The seed of the resamples."""


class Retrain(Model):
    """When the pipeline runs by itself."""

    cron: Annotated[StrictStr, AfterValidator(is_cron)]
    """A cron expression of five fields, for Dagster's schedule."""
    timezone: Annotated[StrictStr, AfterValidator(is_timezone)] = "UTC"
    """The time zone the expression is read in."""


class PipelineSpec(Model):
    """One pipeline: the whole way from data to a model."""

    version: Annotated[StrictInt, AfterValidator(is_version)] = 1
    """The version of this declaration's grammar."""
    description: StrictStr = ""
    """What the pipeline is for, shown in Dagster and in the model card."""
    owners: tuple[Annotated[StrictStr, AfterValidator(is_owner)], ...] = ()
    """Who answers for it: e-mail addresses or team:NAME."""
    source: Source
    """Where the rows come from."""
    task: Task
    """What is predicted, how it is scored and what is accepted."""
    features: Features = Features()
    """Which columns the model may see."""
    contract: Contract | None = None
    """What the data must be: a pandera model (module:name), columns written here, or a Great Expectations suite."""
    validation: Validation = Validation()
    """The limits of the data checks."""
    split: Split
    """How rows are divided."""
    baseline: Baseline = Baseline()
    """The plain models to beat."""
    network: Mlp = Mlp()
    """The deep network."""
    training: Training = Training()
    """How the network is trained."""
    evaluation: Evaluation = Evaluation()
    """How the test part is judged."""
    retrain: Retrain | None = None
    """When the pipeline runs by itself."""

    @classmethod
    def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
        """The JSON Schema, in which a number may also be text such as 1e-3.

        That is a number to YAML 1.2 and text to the YAML 1.1 that `dg check yaml` reads the file with.
        """
        schema = super().model_json_schema(*arguments, **options)
        _allow_scientific(schema)
        return schema

    @model_validator(mode="after")
    def _columns_have_one_role(self) -> Self:
        target = self.task.target
        if target in self.features.include or target in self.features.categorical:
            raise ValueError(f"{target!r} is both target and feature")
        roles = {"group_on": self.split.group_on, "time_on": self.split.time_on}
        for role, column in roles.items():
            if column is not None and column in self.features.include:
                raise ValueError(f"{column!r} is both split.{role} and a feature")
            if column == target:
                raise ValueError(f"{target!r} is both target and split.{role}")
        return self


# pydantic writes the limits of a number that has a validator before it under names no reader of schemas knows.
_LIMITS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}


def _allow_scientific(schema: Any) -> None:
    """Let each number of a JSON Schema be in scientific notation as well, within its limits."""
    if isinstance(schema, dict):
        if schema.get("type") == "number":
            schema |= {"type": ["number", "string"], "pattern": r"^[+-]?[0-9]+[eE][+-]?[0-9]+$"}
            schema |= {_LIMITS[name]: schema.pop(name) for name in _LIMITS if name in schema}
        for value in list(schema.values()):
            _allow_scientific(value)
    elif isinstance(schema, list):
        for value in schema:
            _allow_scientific(value)
