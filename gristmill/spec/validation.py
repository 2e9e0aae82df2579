"""The limits of the data checks: a model a check, its fields and defaults."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt

from gristmill.spec.base import Count, Model, Name, Number, Seed, Severity, Share

PositiveShare = Annotated[Number, Field(gt=0, le=1)]


class DuplicatesCheck(Model):
    """Rows that stand more than once (NaN equals NaN, -0.0 equals 0.0)."""

    max_share: Share = 0.0
    """The largest share of rows that may repeat an earlier row."""
    key: tuple[Name, ...] = ()
    """Columns whose values together may stand only once, such as a customer and a month; a repeat always fails."""
    severity: Severity = "fail"
    """Whether more than that fails the data or warns."""


class ConflictsCheck(Model):
    """Rows that equal another row in every feature and have another class."""

    max_share: Share = 0.05
    """The largest share of such rows among those with a target."""
    severity: Severity = "warn"
    """Whether more than that fails the data or warns."""


class MissingCheck(Model):
    """Missing values, column by column."""

    max_share: Share = 0.3
    """The largest share of missing values a feature may have."""
    columns: dict[Name, Share] = {}
    """Other limits for single columns."""
    severity: Severity = "fail"
    """Whether more than that fails the data or warns."""


class MissingByClassCheck(Model):
    """Missing values that depend on the class."""

    max_difference: Share = 0.3
    """The largest difference of a feature's missing shares between two classes."""
    severity: Severity = "warn"
    """Whether more than that fails the data or warns."""


class MissingOverTimeCheck(Model):
    """Missing values that depend on the time (split.time_on) or the group (split.group_on)."""

    max_difference: Share = 0.3
    """The largest difference of a feature's missing shares between two stretches of time, or two groups."""
    severity: Severity = "warn"
    """Whether more than that fails the data or warns."""


class BalanceCheck(Model):
    """The classes' shares; for a regression, that the target takes more than one value."""

    min_share: Share = 0.01
    """The smallest share of rows a class may have."""
    severity: Severity = "fail"
    """Whether less than that fails the data or warns."""


class TargetShapeCheck(Model):
    """The shape of a regression's target: a mass at one value, and outliers."""

    max_mass: Share = 0.5
    """The largest share of rows that may have one and the same target, such as zero or a cap."""
    max_outlier_share: Share = 0.05
    """The largest share of targets more than three interquartile ranges outside the quartiles (Tukey 1977)."""
    severity: Severity = "warn"
    """Whether more than that fails the data or warns."""


class EffectiveRowsCheck(Model):
    """How many independent rows the groups (split.group_on) are worth, by the design effect (Kish 1965)."""

    min_rows: Count | None = None
    """The fewest effective rows; there is no default, for it depends on the question: none is reported only."""
    severity: Severity = "warn"
    """Whether less than that fails the data or warns."""


class ConstantCheck(Model):
    """Features that hold one value only, or nearly so."""

    max_share: PositiveShare = 0.9999
    """The largest share of rows that one value of a feature may have."""
    severity: Severity = "warn"
    """Whether a constant feature fails the data or warns."""


class SingleFeatureCheck(Model):
    """A feature that alone predicts the target: most often the answer under another name."""

    max_skill: PositiveShare = 0.98
    """The most of the gap between a constant prediction (0) and a perfect one (1) that one feature may close."""
    rows: Count = 100_000
    """The most rows to look at, drawn at random where there are more."""
    seed: Seed = 0
    """The seed of that draw."""
    severity: Severity = "fail"
    """Whether more than that fails the data or warns."""


class RowOrderCheck(Model):
    """A row's place in the source that predicts its target: a sorted file, or an id in disguise."""

    max_skill: PositiveShare = 0.5
    """The most of the gap between a constant prediction (0) and a perfect one (1) that the place may close."""
    severity: Severity = "warn"
    """Whether more than that fails the data or warns."""


class OneClassOnlyCheck(Model):
    """A feature that is filled for one class only: it was written down after the answer was known."""

    severity: Severity = "warn"
    """Whether such a feature fails the data or warns."""


class TimeGapsCheck(Model):
    """Stretches of time (split.time_on) without a row."""

    max_factor: Annotated[Number, Field(gt=1)] = 4
    """The longest stretch without a row, in multiples of an ordinary week's longest one."""
    severity: Severity = "warn"
    """Whether a longer stretch fails the data or warns."""


class LabelsCheck(Model):
    """Labels that a model, fitted without the row, finds unlikely: confident learning (Northcutt et al. 2021)."""

    max_suspect_share: Share = 0.1
    """The largest share of rows whose label may be suspect."""
    rows: Count = 20_000
    """The most rows to look at, drawn at random where there are more."""
    folds: Annotated[StrictInt, Field(ge=2)] = 5
    """Folds of the out-of-fold probabilities; equal rows and groups are in one fold."""
    seed: Seed = 0
    """The seed of the draw, the folds and the fits."""
    severity: Severity = "warn"
    """Whether more than that fails the data or warns."""


class Validation(Model):
    """The limits of the data checks."""

    duplicates: DuplicatesCheck = DuplicatesCheck()
    """Repeated rows."""
    conflicts: ConflictsCheck = ConflictsCheck()
    """Equal features with different classes."""
    missing: MissingCheck = MissingCheck()
    """Missing values."""
    missing_by_class: MissingByClassCheck = MissingByClassCheck()
    """Missing values that depend on the class."""
    missing_over_time: MissingOverTimeCheck = MissingOverTimeCheck()
    """Missing values that depend on the time or the group."""
    balance: BalanceCheck = BalanceCheck()
    """The target's classes."""
    target_shape: TargetShapeCheck = TargetShapeCheck()
    """The distribution of a regression's target."""
    effective_rows: EffectiveRowsCheck = EffectiveRowsCheck()
    """What the groups leave of the number of rows."""
    constant: ConstantCheck = ConstantCheck()
    """Constant columns."""
    single_feature: SingleFeatureCheck = SingleFeatureCheck()
    """A feature that alone predicts the target."""
    row_order: RowOrderCheck = RowOrderCheck()
    """The order of the rows and the target."""
    one_class_only: OneClassOnlyCheck = OneClassOnlyCheck()
    """Features that are filled for one class only."""
    time_gaps: TimeGapsCheck = TimeGapsCheck()
    """Stretches of time without a row."""
    labels: LabelsCheck | None = None
    """Suspect labels; looked for where declared, for a model is fitted."""
