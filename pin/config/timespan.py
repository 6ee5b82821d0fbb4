"""A span of time as people write it in a setting: .NET's, ISO 8601's, or short."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SHORT = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_CLOCK = re.compile(r"(?:(\d+)\.)?(\d{1,2}):([0-5]\d):([0-5]\d)(?:\.(\d{1,7}))?")
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_MAX_SPAN = timedelta(days=366)
_LEAST_AGE, _MAX_AGE = timedelta(hours=1), timedelta(days=3660)


def parse_timespan(value: object) -> timedelta:
    """A span of time: `00:05:00` (hours first, optionally `d.` before), `PT5M`, or `5m`, `90s`, `1h30m`, `250ms`.

    Raises ValueError for anything else; `05:00` and bare numbers are refused as ambiguous.
    """
    if isinstance(value, timedelta):
        return value
    try:
        return _span_of(str(value).strip())
    except OverflowError:
        raise ValueError("is longer than any span of time") from None


def _span_of(text: str) -> timedelta:
    rule = "use 00:05:00 (hours:minutes:seconds), PT5M or 5m"
    if match := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds, fraction = match.groups()
        span = timedelta(days=int(days or 0), hours=int(hours), minutes=int(minutes), seconds=int(seconds))
        return span + timedelta(seconds=float(f"0.{fraction or 0}"))
    if (match := _ISO.fullmatch(text)) and any(match.groups()):
        days, hours, minutes, seconds = match.groups()
        return timedelta(
            days=int(days or 0), hours=int(hours or 0), minutes=int(minutes or 0), seconds=float(seconds or 0)
        )
    if _SHORT.sub("", text) == "" and (parts := _SHORT.findall(text)):
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
    if re.fullmatch(r"\d+:\d{2}", text):
        raise ValueError(f"is ambiguous (hours:minutes or minutes:seconds?): {rule}")
    raise ValueError(f"is not a span of time: {rule}")


def _positive(span: timedelta) -> timedelta:
    if not timedelta(0) < span <= _MAX_SPAN:
        raise ValueError("must be longer than 0 and at most 366 days")
    return span


def _kept_long_enough(span: timedelta) -> timedelta:
    if not _LEAST_AGE <= span <= _MAX_AGE:
        raise ValueError("must be at least 1 hour and at most 3660 days, or off")
    return span


def _or_off(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() == "off" else value


TimeSpan = Annotated[timedelta, BeforeValidator(parse_timespan), AfterValidator(_positive)]
"""A setting's type: longer than 0, at most 366 days."""

_Age = Annotated[timedelta, BeforeValidator(parse_timespan), AfterValidator(_kept_long_enough)]

Retention = Annotated[_Age | None, BeforeValidator(_or_off)]
"""How long something is kept: 1 hour to 3660 days, or `off` (None) for ever."""
