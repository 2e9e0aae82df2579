"""The words of a declaration: numbers, shares, names, durations, paths, and the rules that all models share."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr

ColumnType = Literal["integer", "number", "string", "boolean", "date", "timestamp"]
_DURATION = re.compile(r"(\d+)(s|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def duration(text: str) -> timedelta:
    """A length of time such as `90m`, `12h`, `1d` or `2w` (seconds, minutes, hours, days, weeks)."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("must be a whole number and a unit (s, m, h, d, w), such as 12h or 1d")
    return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])


def not_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def is_duration(text: str) -> str:
    duration(text)
    return text


def is_user_code(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise ValueError("must be module:name, such as checks.flights:Flights")
    return text


def is_owner(text: str) -> str:
    if not re.fullmatch(r"team:[A-Za-z0-9_. -]+|[^@\s]+@[^@\s]+\.[^@\s]+", text):
        raise ValueError("must be an e-mail address or team:NAME")
    return text


def is_asset_key(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*", text):
        raise ValueError("must be an asset key such as raw/flights (letters, digits, - and _)")
    return text


def is_version(number: int) -> int:
    if number != 1:
        raise ValueError(f"declaration version {number}; this gristmill reads version 1")
    return number


def stays_inside(text: str) -> str:
    parts = text.replace("\\", "/").split("/")
    if text.startswith("/") or ".." in parts or "\0" in text or ":" in parts[0]:
        raise ValueError("leaves the project; it must be a path under the workspace")
    return text


def is_timezone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ValueError("must be a time zone such as Europe/Paris") from None
    return text


_CRON_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_CRON_PART = re.compile(r"(\*|\d+(?:-\d+)?)(?:/(\d+))?")


def is_cron(text: str) -> str:
    fields = text.split()
    if len(fields) != len(_CRON_RANGES):
        raise ValueError("must be a cron expression of five fields, such as '0 3 * * 1'")
    for field, (low, high) in zip(fields, _CRON_RANGES, strict=True):
        for part in field.split(","):
            match = _CRON_PART.fullmatch(part)
            numbers = [int(n) for n in match[1].split("-") if n != "*"] if match else []
            if match is None or any(not low <= n <= high for n in numbers) or match[2] == "0":
                raise ValueError(f"cron field '{field}' must stay within {low}-{high}")
    return text


Number = Annotated[float, BeforeValidator(not_boolean), Field(allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0, le=1)]
PartShare = Annotated[Number, Field(gt=0, lt=1)]
Count = Annotated[StrictInt, Field(ge=1)]
Seed = Annotated[StrictInt, Field(ge=0)]
Name = Annotated[StrictStr, Field(min_length=1)]
UserCode = Annotated[StrictStr, AfterValidator(is_user_code)]
InsidePath = Annotated[StrictStr, Field(min_length=1), AfterValidator(stays_inside)]
Severity = Literal["warn", "fail"]


class Model(BaseModel):
    """The common rules of the tree: immutable, and a key nobody declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
