"""Tell one sink of events: in few requests, and apart from each other where one of them is refused (G27, A44).

Each event's outcome is written as soon as it is known. What was not called when the time is up, or when the sink turned
out to be away, is due at once: the next tick hands it over again, and it has cost no try.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import random

from sqlalchemy import Engine

from db.outbox import alerts
from pin.outgoing.alert_sinks import SinkError
from pin.rules.alerts import AlertState, Failure, QuarantinedEvent, Telling, failure_of, portions
from pin.rules.outbox import Policy
from pin.telemetry import metrics
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

NOT_CONFIGURED = "NOT_CONFIGURED"
_IN_A_ROW = 9
"""So many broken requests with none taken between them are the sink and no event: 100 events are split seven times."""

Send = Callable[[Sequence[QuarantinedEvent]], None]
"""Tells them in one request, within a bound of its own. Raises SinkError."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What every telling of one worker has in common."""

    engine: Engine
    policy: Policy
    clock: Callable[[], datetime]


@dataclass(slots=True)
class _Round:
    """One sink being told. `until` is monotonic."""

    sink: str
    send: Send
    terms: Terms
    until: float
    stopping: Callable[[], bool]
    over: bool = False
    broken: int = 0
    uncalled: list[Telling] = field(default_factory=list)

    def tell(self, some: Sequence[Telling]) -> None:
        if self.over or self.stopping() or time.monotonic() >= self.until:
            self.uncalled += some
            return
        try:
            self.send([telling.event for telling in some])
        except SinkError as error:
            self._failed(some, error)
            return
        self.broken = 0
        _told(self.terms, self.sink, some)

    def _failed(self, some: Sequence[Telling], error: SinkError) -> None:
        failure = failure_of(error.status)
        self.broken += failure is Failure.BROKEN
        self.over = failure in {Failure.AWAY, Failure.CLOSED}
        if self.over or len(some) == 1 or self.broken >= _IN_A_ROW:
            self.over = self.over or self.broken >= _IN_A_ROW
            not_told(self.terms, self.sink, some, str(error))
            return
        middle = len(some) // 2
        self.tell(some[:middle])
        self.tell(some[middle:])


def tell(
    sink: str, tellings: Sequence[Telling], send: Send, terms: Terms, *, until: float, stopping: Callable[[], bool]
) -> bool:
    """Tell `sink` of them until the monotonic `until`; answers whether it may be asked again before the next tick.

    Raises sqlalchemy.exc.DBAPIError where an outcome cannot be written: what was told is told again after its lease.
    """
    this = _Round(sink, send, terms, until, stopping)
    for some in portions(tellings):
        this.tell(some)
    give_back(terms, sink, this.uncalled)
    return not this.over


def give_back(terms: Terms, sink: str, tellings: Sequence[Telling]) -> None:
    """What was not called is due at once, and has cost no try."""
    if not tellings:
        return
    with terms.engine.begin() as connection:
        alerts.make_due(connection, [(telling.event.id, sink) for telling in tellings], terms.clock())
    metrics.ALERTS.labels(sink, "not_called").inc(len(tellings))


def not_told(terms: Terms, sink: str, tellings: Sequence[Telling], error: str) -> None:
    """One try more of each has failed; the outbox's own backoff says when the next one is (G17)."""
    now = terms.clock()
    again = {one.event.id: now + terms.policy.delay(one.tries + 1, random()) for one in tellings}  # noqa: S311 - jitter
    with terms.engine.begin() as connection:
        alerts.failed(connection, tellings, error, again)
    metrics.ALERTS.labels(sink, "failed").inc(len(tellings))
    log.warning("alert not sent", sink=sink, entries=len(tellings), error=error)


def _told(terms: Terms, sink: str, tellings: Sequence[Telling]) -> None:
    named = [(telling.event.id, sink) for telling in tellings]
    with terms.engine.begin() as connection:
        alerts.end(connection, named, AlertState.TOLD, terms.clock())
    metrics.ALERTS.labels(sink, "sent").inc(len(tellings))
