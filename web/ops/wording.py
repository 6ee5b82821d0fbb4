"""How the console writes what it shows: text from outside made inert, times and spans for people (A22)."""

import hashlib
import shlex
import unicodedata
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from markupsafe import Markup

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_KEPT_CATEGORIES = {"Zs"}  # spaces other than ours are written, as what they are


def inert(value: object) -> object:
    """`value` without anything that a terminal or a reader could take for more than text.

    Control characters, escapes, bidirectional overrides and lone surrogates become U+FFFD, as in the command line's
    tables; a page's text may be copied into a terminal. Applied to every value that a template writes.
    """
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(char if _is_text(char) else "\N{REPLACEMENT CHARACTER}" for char in value)


def stamp(moment: datetime | None) -> str:
    """A moment to the second, in UTC."""
    return "—" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def span(length: timedelta | float | None) -> str:
    """A length of time in at most two units: `4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if length is None:
        return "—"
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))} ms"
    total = round(max(0.0, seconds))
    for unit, name, smaller, small_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if total >= unit:
            rest = total % unit // smaller
            return f"{total // unit} {name} {rest} {small_name}" if rest else f"{total // unit} {name}"
    return f"{total} s"


def since(moment: datetime | None, now: datetime) -> str:
    """How long ago, or how long until."""
    if moment is None:
        return "—"
    return f"{span(now - moment)} ago" if moment <= now else f"in {span(moment - now)}"


def number(value: int | None) -> str:
    """A count with narrow spaces between thousands."""
    return "—" if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def short(value: object) -> str:
    """The end of an id, where ids made together differ."""
    return f"…{str(value)[-8:]}"


def tag(text: str | None) -> str:
    """A word that stands for a text from outside in a URL and in a form, where the text itself would be made inert."""
    return hashlib.sha256(b"none" if text is None else b"text" + text.encode("utf-8", "replace")).hexdigest()[:16]


def command(*words: object) -> str:
    """A command line that a shell reads as these words."""
    return shlex.join(str(inert(str(word))) for word in words)


def in_url(value: object) -> str:
    """A value as a part of a query."""
    return quote(str(value), safe="")


def _is_text(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) in _KEPT_CATEGORIES
