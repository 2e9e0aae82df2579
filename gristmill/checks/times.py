"""GM126: no stretch of time without a row that is far longer than those the data is used to."""

from __future__ import annotations

import numpy as np

from gristmill.records import MAX_CASES, Check, judge, unseen
from gristmill.spec.validation import TimeGapsCheck

CODE, NAME = "GM126", "time gaps"
_USUAL = 0.99
_FEW = 10
_WEEK = np.timedelta64(7 * 86_400_000_000, "us")


def gaps(moments: np.ndarray, column: str, limits: TimeGapsCheck) -> Check:
    """Judge the stretches between neighbouring moments: datetime64[us] (n,), distinct and in order.

    The measure is the longest stretch of an ordinary week (the median of the weeks' longest), so that nights
    and weekends without rows are none; of coarser data the longest but for the rarest hundredth.
    """
    if len(moments) < _FEW:
        text = f"not judged: {column} has {len(moments)} moments, {_FEW} are needed"
        return Check(CODE, NAME, unseen(limits.severity), 0, text, way_out="give it more rows")
    stretches = np.diff(moments)
    usual = _usual(moments, stretches)
    factors = stretches / usual
    longest = int(factors.argmax())
    over = np.flatnonzero(factors > limits.max_factor)
    shown = f"{_said(stretches[longest])} from {_moment(moments[longest])}"
    text = (
        f"{len(over)} stretches of {column} without a row; the longest is {shown}, usual is {_said(usual)}"
        if len(over)
        else f"the longest stretch of {column} without a row is {shown}; usual is {_said(usual)}"
    )
    cases = tuple(
        {
            "from": _moment(moments[place]),
            "to": _moment(moments[place + 1]),
            "length": _said(stretches[place]),
        }
        for place in sorted(over, key=lambda place: (-factors[place], place))[:MAX_CASES]
    )
    way_out = (
        "look for deliveries that are lacking; raise validation.time_gaps.max_factor if there was nothing"
    )
    verdict = judge(len(over) == 0, limits.severity, len(stretches))
    return Check(
        CODE,
        NAME,
        verdict,
        len(stretches),
        text,
        round(float(factors[longest]), 6),
        limits.max_factor,
        cases,
        way_out,
    )


def _usual(moments: np.ndarray, stretches: np.ndarray) -> np.timedelta64:
    lengths = stretches.astype(np.int64)
    weeks = (moments[:-1] - moments[0]) // _WEEK
    firsts = np.flatnonzero(np.diff(weeks, prepend=-1))
    weekly = np.maximum.reduceat(lengths, firsts)
    longest = np.quantile(lengths, _USUAL, method="inverted_cdf"), np.median(weekly)
    return np.timedelta64(int(max(longest)), "us")


def _moment(moment: np.datetime64) -> str:
    return str(moment.astype("datetime64[s]"))


_UNITS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000))


def _said(stretch: np.timedelta64) -> str:
    """A length of time in its largest unit, as a declaration writes it where it is whole."""
    microseconds = int(stretch.astype("timedelta64[us]").astype(np.int64))
    for unit, size in _UNITS:
        if microseconds >= size:
            return f"{microseconds / size:.4g}{unit}"
    return f"{microseconds}us"
