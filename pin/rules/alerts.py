"""The alert of a quarantine, one event and one sink at a time: its states, and what a failed try says (G27, J15).

Untold      the sink has not taken it yet; tried again for as long as it takes
Told        the sink has taken it
GivenUp     an operator has decided that this sink need not be told
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

LOG = "log"
"""A sink like the others, and the first: what takes an event up writes the log and makes the rows of the rest."""
SINKS = (LOG, "alertmanager", "webhook")

MOST_AT_ONCE = 100
"""Events in one request to a sink."""
_SHRINKS = 4
"""Each failed try makes the next request a quarter as large, so that after four an event goes alone."""
_NOT_ABOUT_THE_EVENT = {401, 403, 404, 405, 407, 408, 410, 426, 429}


class AlertState(StrEnum):
    """A closed set."""

    UNTOLD = "Untold"
    TOLD = "Told"
    GIVEN_UP = "GivenUp"


class Failure(StrEnum):
    """What a failed request says, and so how it goes on."""

    AWAY = "Away"
    """No answer: this sink is left alone until the next tick."""
    REFUSED = "Refused"
    """The answer is about what was sent: it is split until the refused event stands alone."""
    BROKEN = "Broken"
    """A fault of the sink's, which one event may have caused: split for as long as some part is taken."""
    CLOSED = "Closed"
    """Everything is refused, whatever it is."""


@dataclass(frozen=True, slots=True)
class QuarantinedEvent:
    """`SnapshotDetachQuarantinedEvent {snapshotId, postId, reason, attempts}` (J15), with what helps at once."""

    id: UUID
    entry_id: UUID
    snapshot_id: UUID
    post_id: UUID
    reason: str
    attempts: int
    last_error: str | None
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class Telling:
    """One event that one sink is to be told of; `tries` counts the requests that have failed so far."""

    sink: str
    tries: int
    event: QuarantinedEvent


def failure_of(status: int | None) -> Failure:
    """What an answer that is no success says; None is no answer."""
    if status is None:
        return Failure.AWAY
    if status >= 500:  # noqa: PLR2004
        return Failure.BROKEN
    if status < 400 or status in _NOT_ABOUT_THE_EVENT:  # noqa: PLR2004
        return Failure.CLOSED
    return Failure.REFUSED


def portions(tellings: Sequence[Telling]) -> list[Sequence[Telling]]:
    """What goes together in one request: those with few failed tries first, and ever fewer of the others.

    An event that makes a sink hang or fail is so told apart from its neighbours, though the answer names no culprit.
    """
    found: list[Sequence[Telling]] = []
    for tries in sorted({telling.tries for telling in tellings}):
        alike = [telling for telling in tellings if telling.tries == tries]
        size = max(1, MOST_AT_ONCE // _SHRINKS ** min(tries, _SHRINKS))
        found += [alike[start : start + size] for start in range(0, len(alike), size)]
    return found
