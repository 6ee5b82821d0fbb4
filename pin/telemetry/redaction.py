"""What must not be read in a log, taken out of it: credentials, and the values that a database's error quotes (J24).

The last net, not the first: nothing of the project logs a header, a body or a value of a row on purpose. What slips
through comes in the texts of exceptions, ours and the libraries'.
"""

import re
from collections.abc import MutableMapping
from typing import Any

HIDDEN = "***"

_RULES = (
    # A JSON Web Token, signed or not, wherever it stands.
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?"), HIDDEN),
    (re.compile(r"(\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1{HIDDEN}"),
    # Up to the last @ of the word: a password that was not escaped may hold anything.
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@?#]*):[^\s'\"]*@", re.IGNORECASE), rf"\1:{HIDDEN}@"),
    (re.compile(r"(\bpass(?:word|wd)\s*[=:]\s*)('[^']*'|\"[^\"]*\"|[^\s&,;]+)", re.IGNORECASE), rf"\1{HIDDEN}"),
    # PostgreSQL's DETAIL quotes the failing row, SQLAlchemy the statement's parameters: both hold users' ids.
    (re.compile(r"(\bDETAIL:\s*).*"), rf"\1{HIDDEN}"),
    (re.compile(r"(\[parameters: ).*?\](?=\s*$|\n)", re.DOTALL | re.MULTILINE), rf"\1{HIDDEN}]"),
)


_SIGNS = ("eyj", "://", "bearer", "basic", "passw", "detail:", "[parameters")
"""One of these, in lower case, is in every text that a rule changes; looking for them costs 1% of the rules."""


def is_plain(text: str) -> bool:
    """Whether no rule can change the text."""
    low = text.lower()
    return not any(sign in low for sign in _SIGNS)


def redacted(text: str) -> str:
    """`text` without tokens, passwords and quoted rows; everything else as it stands."""
    if is_plain(text):
        return text
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return text


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: every text of the line, one level deep, is redacted."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = redacted(value)
    return event
