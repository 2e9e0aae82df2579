"""The limits of the data checks: a model a check, its fields and defaults."""

from __future__ import annotations

from gristmill.spec.base import Model, Name, Severity, Share


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


class BalanceCheck(Model):
    """The classes' shares; for a regression, that the target takes more than one value."""

    min_share: Share = 0.01
    """The smallest share of rows a class may have."""
    severity: Severity = "fail"
    """Whether less than that fails the data or warns."""


class ConstantCheck(Model):
    """Features that hold one value only."""

    severity: Severity = "warn"
    """Whether a constant feature fails the data or warns."""


class Validation(Model):
    """The limits of the data checks."""

    duplicates: DuplicatesCheck = DuplicatesCheck()
    """Repeated rows."""
    conflicts: ConflictsCheck = ConflictsCheck()
    """Equal features with different classes."""
    missing: MissingCheck = MissingCheck()
    """Missing values."""
    balance: BalanceCheck = BalanceCheck()
    """The target's classes."""
    constant: ConstantCheck = ConstantCheck()
    """Constant columns."""
