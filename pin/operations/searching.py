"""The search line: tokens that narrow a list of entries, each a condition; what is no token is refused by name."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import UUID

from db.views.entries import OF_SNAPSHOT, Condition
from pin.config.timespan import parse_timespan
from pin.rules.contract import Reason
from pin.rules.outbox import Status

TOKENS = ("state:", "post:", "snapshot:", "id:", "error:", "reason:", "age:", "kind:")
"""What a search line may hold; docs/cli.md explains each."""

_PART = re.compile(r'(?P<name>[A-Za-z]+):(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s"]*))(?=\s|$)|(?P<free>\S+)')
_AGE = re.compile(r"(>=?|<=?)?(.+)")


class SearchError(ValueError):
    """A token that cannot be understood; `token` is it as it was written."""

    def __init__(self, token: str, rule: str) -> None:
        super().__init__(f"{token!r}: {rule}")
        self.token = token


def conditions(query: str, now: datetime) -> dict[str, Condition]:
    """The conditions of a search line, by token name. Raises SearchError naming the first bad token.

    `state:Pending post:<id> snapshot:<id> id:<id> error:"HTTP 503" reason:PostDeleted age:>5m kind:guard`, in any
    order, each at most once; an id by itself finds the entry, or those of the snapshot or post.
    """
    found: dict[str, Condition] = {}
    for part in _PART.finditer(query.replace("\0", " ")):
        token, name = part[0], (part["name"] or "").lower()
        if part["free"] is not None:
            name, made = "any", _free(token)
        elif name in _MAKERS:
            value = part["quoted"] if part["quoted"] is not None else part["plain"]
            if not value:
                raise SearchError(token, "a value is missing")
            made = _MAKERS[name](token, value, now)
        else:
            raise SearchError(token, f"no such token; known are {' '.join(TOKENS)}")
        if name in found:
            raise SearchError(token, "is given twice")
        found[name] = made
    return found


def _free(token: str) -> Condition:
    if '"' in token:
        raise SearchError(token, 'quotes belong around a whole value, as in error:"HTTP 503"')
    if ":" in token:
        raise SearchError(token, f"no such token; known are {' '.join(TOKENS)}")
    id_ = _uuid(token, token, f"neither an id nor a token; tokens are {' '.join(TOKENS)}")
    found = OF_SNAPSHOT.replace(":snapshot", ":any")  # a name of its own: snapshot: may be given beside it
    return Condition(f"(id = :any OR post_id = :any OR {found})", {"any": id_})


def _uuid(token: str, value: str, rule: str = "must be a whole id") -> UUID:
    try:
        return UUID(value)
    except ValueError:
        raise SearchError(token, rule) from None


def _one_of(token: str, value: str, kinds: type[Status] | type[Reason]) -> str:
    for kind in kinds:
        if kind.value.lower() == value.lower():
            return kind.value
    raise SearchError(token, f"must be one of {', '.join(kind.value for kind in kinds)}")


def _state(token: str, value: str, _: datetime) -> Condition:
    # A literal of our own: the planner must see it to use the partial indexes.
    return Condition(f"status = '{_one_of(token, value, Status)}'", {})


def _reason(token: str, value: str, _: datetime) -> Condition:
    return Condition("reason = :reason", {"reason": _one_of(token, value, Reason)})


def _error(_token: str, value: str, _: datetime) -> Condition:
    return Condition("position(lower(CAST(:error AS text)) IN lower(last_error)) > 0", {"error": value})


def _age(token: str, value: str, now: datetime) -> Condition:
    match = _AGE.fullmatch(value)
    sign, length = (match[1], match[2]) if match else (None, value)
    if sign is None:
        raise SearchError(token, "say age:>5m or age:<1h")
    try:
        span: timedelta = parse_timespan(length)
        moment = now - span
    except (ValueError, OverflowError):
        raise SearchError(token, "must be a span of time, such as 5m, 1h30m or 00:05:00") from None
    older = sign.startswith(">")
    return Condition(f"created_at {'<' if older else '>'} :age", {"age": moment})


def _kind(token: str, value: str, _: datetime) -> Condition:
    if value.lower() not in {"guard", "intent"}:
        raise SearchError(token, "must be guard or intent")
    return Condition("is_guard" if value.lower() == "guard" else "NOT is_guard", {})


def _snapshot(token: str, value: str, _: datetime) -> Condition:
    return Condition(OF_SNAPSHOT, {"snapshot": _uuid(token, value)})


def _id_in(column: str) -> Callable[[str, str, datetime], Condition]:
    def made(token: str, value: str, _: datetime) -> Condition:
        values: dict[str, Any] = {f"of_{column}": _uuid(token, value)}
        return Condition(f"{column} = :of_{column}", values)

    return made


_MAKERS: Mapping[str, Callable[[str, str, datetime], Condition]] = MappingProxyType(
    {
        "state": _state,
        "post": _id_in("post_id"),
        "snapshot": _snapshot,
        "id": _id_in("id"),
        "error": _error,
        "reason": _reason,
        "age": _age,
        "kind": _kind,
    }
)
