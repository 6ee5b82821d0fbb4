"""Reading is open, writing is closed (G26): what a newer release wrote is read as text, whatever it is.

An enumeration closes a set where a request is validated. Everywhere else a word that this release does not know is one
like any other: it is shown, passed on and compared, and breaks no page, list or answer.
"""

from enum import StrEnum
from typing import TypeVar

Word = TypeVar("Word", bound=StrEnum)


def known(kind: type[Word], text: str) -> Word | str:
    """The member of `kind` with this value, or the text itself where this release knows none."""
    return kind(text) if text in kind._value2member_map_ else text
