"""Alerts: what no sink has taken yet; try it now, or give it up (G27, J29).

A sink is tried again for as long as it takes. An operator may only bring the next try forward, or decide that a sink
need not be told; giving up the log, which makes the rows of the others, gives up the event.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Engine

from db.outbox import alerts, quarantine
from db.outbox.alerts import AlertRow, Untold
from db.outbox.quarantine import AuditRow
from pin.clock import new_id
from pin.operations import audit
from pin.rules.alerts import SINKS, AlertState

LATE = 1800.0
"""Seconds after which an untold alert is told of, as by the alert rule."""
MOST = 10_000
"""The largest number of alerts that one command changes."""

_Moved = Mapping[tuple[UUID, str], tuple[int, str | None]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which alerts: of these events (None: of all), at this sink (None: at each)."""

    ids: tuple[UUID, ...] | None = None
    sink: str | None = None

    def __post_init__(self) -> None:
        if self.sink is not None and self.sink not in SINKS:
            raise ValueError(f"no sink is called {self.sink}: {', '.join(SINKS)}")


def list_alerts(
    engine: Engine, *, sink: str | None = None, with_ended: bool = False, limit: int = 100
) -> list[AlertRow]:
    """What is untold first, by sink and the oldest first; then, where wanted, what was told or given up lately.

    Raises ValueError for a name that is no sink's.
    """
    chosen = Chosen(sink=sink)
    with engine.connect() as connection:
        found = alerts.untold(connection, sink=chosen.sink, limit=limit)
        if with_ended and len(found) < limit:
            found += alerts.ended(connection, sink=chosen.sink, limit=limit - len(found))
    return found


def counts(engine: Engine) -> list[Untold]:
    """What each sink has not been told."""
    with engine.connect() as connection:
        return alerts.counts(connection)


def in_words(untold: Sequence[Untold]) -> str:
    """Which sinks have not been told for long, as a sentence that follows others; empty where there is none."""
    late = [f"{one.sink} ({one.count})" for one in untold if one.oldest_seconds > LATE]
    return f" Not told of quarantines: {', '.join(late)}, see pin alerts list." if late else ""


def chosen(engine: Engine, wanted: Chosen) -> list[AlertRow]:
    """What is untold of those that are wanted, at most MOST of them; changes nothing."""
    with engine.connect() as connection:
        return alerts.untold(connection, sink=wanted.sink, ids=wanted.ids, limit=MOST)


def retry(engine: Engine, rows: Sequence[AlertRow], *, actor: str, reason: str, now: datetime) -> list[AlertRow]:
    """Have them due now, so that the next tick announces them; answers those that were Untold still.

    Each leaves an audit row, in the same transaction. Raises ValueError without actor or reason.
    """

    def move(connection: Connection) -> _Moved:
        return alerts.make_due(connection, [(row.event_id, row.sink) for row in rows], now)

    return _change(engine, rows, move, "retry-alert", actor, reason, now)


def give_up(engine: Engine, rows: Sequence[AlertRow], *, actor: str, reason: str, now: datetime) -> list[AlertRow]:
    """Decide that these sinks need not be told of these events; answers those that were Untold still.

    Each leaves an audit row, in the same transaction. Raises ValueError without actor or reason.
    """

    def move(connection: Connection) -> _Moved:
        return alerts.end(connection, [(row.event_id, row.sink) for row in rows], AlertState.GIVEN_UP, now)

    return _change(engine, rows, move, "give-up-alert", actor, reason, now)


def _change(
    engine: Engine,
    rows: Sequence[AlertRow],
    move: Callable[[Connection], _Moved],
    action: str,
    actor: str,
    reason: str,
    now: datetime,
) -> list[AlertRow]:
    audit.need(actor, reason)
    with engine.begin() as connection:
        moved = move(connection)
        changed = [row for row in rows if (row.event_id, row.sink) in moved]
        kept = [_audit_row(row, *moved[row.event_id, row.sink], action, actor, reason) for row in changed]
        quarantine.write_audit(connection, kept, now)
    return changed


def _audit_row(row: AlertRow, tries: int, error: str | None, action: str, actor: str, reason: str) -> AuditRow:
    details = {"event": str(row.event_id), "sink": row.sink, "tries": tries, "lastError": error}
    return AuditRow(new_id(), row.entry_id, row.snapshot_id, actor, action, reason, details)
