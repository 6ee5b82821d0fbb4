"""Alerts: one row an event and a sink, claimed, told, tried again or given up each by itself (G27, J15).

`alerted_at` of the event is the moment at which none of its rows was Untold any more; until then it is not purged.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, text

from db.runner.gate import ALERT_QUEUE
from pin.rules.alerts import LOG, SINKS, AlertState, QuarantinedEvent, Telling


@dataclass(frozen=True, slots=True)
class AlertRow:
    """One alert as it stands. `last_error` is a class or a status, never text from the sink."""

    event_id: UUID
    sink: str
    state: str
    tries: int
    last_error: str | None
    next_try_at: datetime
    entry_id: UUID
    snapshot_id: UUID
    occurred_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Untold:
    """What one sink has not been told; `oldest_seconds` on the database's clock (G25), 0 when there is nothing."""

    sink: str
    count: int
    oldest_seconds: float
    failed: int
    """How many of them a try has failed for."""


_EVENTS = text("""
    INSERT INTO news.snapshot_detach_quarantined_event
        (id, entry_id, snapshot_id, post_id, reason, attempts, last_error, occurred_at)
    SELECT id, entry_id, snapshot_id, post_id, reason, attempts, last_error, :now
    FROM unnest(
        CAST(:ids AS uuid[]), CAST(:entry_ids AS uuid[]), CAST(:snapshot_ids AS uuid[]), CAST(:post_ids AS uuid[]),
        CAST(:reasons AS text[]), CAST(:attempts AS integer[]), CAST(:errors AS text[])
    ) AS e (id, entry_id, snapshot_id, post_id, reason, attempts, last_error)
""")

_FIRST_ROW = text("""
    INSERT INTO news.snapshot_detach_alert (event_id, sink, next_try_at, handed_over, created_at)
    SELECT id, 'log', :until, true, :now FROM unnest(CAST(:ids AS uuid[])) AS e (id)
""")

_ROWS_OF_TAKEN_UP = text("""
    INSERT INTO news.snapshot_detach_alert (event_id, sink, next_try_at, handed_over, created_at)
    SELECT a.event_id, s.sink, :until, true, a.created_at
    FROM news.snapshot_detach_alert a, unnest(CAST(:sinks AS text[])) AS s (sink)
    WHERE a.event_id = ANY(CAST(:ids AS uuid[])) AND a.sink = 'log' AND a.state = 'Untold'
    ON CONFLICT DO NOTHING
""")

# Events of an older release have no rows yet. Whom it told stays told; telling the log makes the rest.
_ADOPT = text("""
    WITH without AS MATERIALIZED (
        SELECT id, told, occurred_at FROM news.snapshot_detach_quarantined_event e
        WHERE alerted_at IS NULL AND NOT EXISTS (SELECT FROM news.snapshot_detach_alert a WHERE a.event_id = e.id)
            AND (CAST(:ids AS uuid[]) IS NULL OR id = ANY(CAST(:ids AS uuid[])))
        ORDER BY occurred_at LIMIT :limit FOR UPDATE SKIP LOCKED
    )
    INSERT INTO news.snapshot_detach_alert (event_id, sink, state, next_try_at, handed_over, created_at, ended_at)
    SELECT w.id, a.sink, a.state, :until, true, w.occurred_at, CASE WHEN a.state = 'Told' THEN w.occurred_at END
    FROM without w CROSS JOIN LATERAL (
        SELECT 'log' AS sink, 'Untold' AS state UNION ALL SELECT t, 'Told' FROM unnest(w.told) AS t WHERE t <> 'log'
    ) AS a
    ON CONFLICT DO NOTHING
    RETURNING event_id
""")

_WAITING_MESSAGES = text("""
    SELECT count(*) FROM (
        SELECT FROM dramatiq.queue WHERE queue_name = :queue AND state = 'queued' LIMIT :most
    ) AS waiting
""")

# Each sink has its own share of the claim, so that none is behind another's backlog.
_CLAIM = text("""
    WITH due AS MATERIALIZED (
        SELECT a.event_id, a.sink FROM unnest(CAST(:sinks AS text[])) AS s (sink) CROSS JOIN LATERAL (
            SELECT event_id, sink FROM news.snapshot_detach_alert
            WHERE sink = s.sink AND state = 'Untold' AND next_try_at <= :now
            ORDER BY next_try_at LIMIT :limit FOR UPDATE SKIP LOCKED
        ) AS a
    )
    UPDATE news.snapshot_detach_alert AS a SET handed_over = true, next_try_at = :until
    FROM due WHERE a.event_id = due.event_id AND a.sink = due.sink
    RETURNING a.event_id
""")

_HANDED_OVER = text("""
    SELECT a.sink, a.tries, e.id, e.entry_id, e.snapshot_id, e.post_id, e.reason, e.attempts, e.last_error,
        e.occurred_at
    FROM news.snapshot_detach_alert a JOIN news.snapshot_detach_quarantined_event e ON e.id = a.event_id
    WHERE a.event_id = ANY(CAST(:ids AS uuid[])) AND a.state = 'Untold' AND a.handed_over
    ORDER BY a.tries, e.id
""")

# Two sinks may be told of one event at the same moment: the event's lock lets the second see the first.
_LOCK = text("""
    SELECT id FROM news.snapshot_detach_quarantined_event
    WHERE id = ANY(CAST(:ids AS uuid[])) ORDER BY id FOR UPDATE
""")

_END = text("""
    UPDATE news.snapshot_detach_alert SET
        state = CAST(:state AS text), ended_at = :now, handed_over = false,
        tries = tries + CASE WHEN CAST(:state AS text) = 'Told' THEN 1 ELSE 0 END,
        last_error = CASE WHEN CAST(:state AS text) = 'Told' THEN NULL ELSE last_error END
    FROM unnest(CAST(:ids AS uuid[]), CAST(:sinks AS text[])) AS named (id, name)
    WHERE event_id = named.id AND sink = named.name AND state = 'Untold'
    RETURNING event_id, sink, tries, last_error
""")

_STAMP = text("""
    UPDATE news.snapshot_detach_quarantined_event e SET alerted_at = :now
    WHERE id = ANY(CAST(:ids AS uuid[])) AND alerted_at IS NULL AND NOT EXISTS (
        SELECT FROM news.snapshot_detach_alert a WHERE a.event_id = e.id AND a.state = 'Untold'
    )
""")

_FAILED = text("""
    UPDATE news.snapshot_detach_alert SET
        tries = tries + 1, last_error = :error, handed_over = false, next_try_at = named.next_try_at
    FROM unnest(CAST(:ids AS uuid[]), CAST(:tries AS integer[]), CAST(:next AS timestamptz[]))
        AS named (id, was, next_try_at)
    WHERE event_id = named.id AND sink = :sink AND state = 'Untold' AND tries = named.was
""")

_DUE_NOW = text("""
    UPDATE news.snapshot_detach_alert SET handed_over = false, next_try_at = :now
    FROM unnest(CAST(:ids AS uuid[]), CAST(:sinks AS text[])) AS named (id, name)
    WHERE event_id = named.id AND sink = named.name AND state = 'Untold'
    RETURNING event_id, sink, tries, last_error
""")

_ROW = "a.event_id, a.sink, a.state, a.tries, a.last_error, a.next_try_at, e.entry_id, e.snapshot_id, e.occurred_at"

_UNTOLD = text(f"""
    SELECT {_ROW}, a.ended_at
    FROM news.snapshot_detach_alert a JOIN news.snapshot_detach_quarantined_event e ON e.id = a.event_id
    WHERE a.state = 'Untold' AND (CAST(:sink AS text) IS NULL OR a.sink = CAST(:sink AS text))
        AND (CAST(:ids AS uuid[]) IS NULL OR a.event_id = ANY(CAST(:ids AS uuid[])))
    ORDER BY a.sink, e.occurred_at, a.event_id LIMIT :limit
""")

_ENDED = text(f"""
    SELECT {_ROW}, a.ended_at
    FROM (SELECT * FROM news.snapshot_detach_alert ORDER BY event_id DESC LIMIT :scanned) a
    JOIN news.snapshot_detach_quarantined_event e ON e.id = a.event_id
    WHERE a.state <> 'Untold' AND (CAST(:sink AS text) IS NULL OR a.sink = CAST(:sink AS text))
    ORDER BY a.event_id DESC, a.sink LIMIT :limit
""")

_COUNTS = text("""
    SELECT s.sink, count(a.event_id) AS count,
        greatest(0, coalesce(extract(epoch FROM clock_timestamp() - min(a.created_at)), 0))::float8 AS oldest_seconds,
        count(a.event_id) FILTER (WHERE a.last_error IS NOT NULL) AS failed
    FROM unnest(CAST(:sinks AS text[])) AS s (sink)
    LEFT JOIN news.snapshot_detach_alert a ON a.sink = s.sink AND a.state = 'Untold'
    GROUP BY s.sink
""")


def write_events(connection: Connection, events: Sequence[QuarantinedEvent], now: datetime, lease: timedelta) -> None:
    """Keep the events and the first alert row of each, in the transaction that quarantines.

    lease: how long the message written beside them has until a tick sends another.
    """
    if not events:
        return
    connection.execute(
        _EVENTS,
        {
            "ids": [event.id for event in events],
            "entry_ids": [event.entry_id for event in events],
            "snapshot_ids": [event.snapshot_id for event in events],
            "post_ids": [event.post_id for event in events],
            "reasons": [event.reason for event in events],
            "attempts": [event.attempts for event in events],
            "errors": [event.last_error for event in events],
            "now": now,
        },
    )
    connection.execute(_FIRST_ROW, {"ids": [event.id for event in events], "until": now + lease, "now": now})


def adopt(
    connection: Connection, now: datetime, lease: timedelta, *, ids: Sequence[UUID] | None = None, limit: int = 1000
) -> set[UUID]:
    """Give rows to events that an older release left without; answers which got some."""
    values = {"ids": None if ids is None else list(ids), "until": now + lease, "limit": limit}
    return {row.event_id for row in connection.execute(_ADOPT, values)}


def messages_waiting(connection: Connection, most: int) -> int:
    """How many of the alerts' messages no worker has taken, counted up to `most`."""
    return int(connection.execute(_WAITING_MESSAGES, {"queue": ALERT_QUEUE, "most": most}).scalar_one())


def claim_due(connection: Connection, now: datetime, lease: timedelta, *, limit: int) -> set[UUID]:
    """Claim up to `limit` due rows of each sink until the lease ends; answers their events. Skips locked rows."""
    values = {"sinks": list(SINKS), "now": now, "until": now + lease, "limit": limit}
    return {row.event_id for row in connection.execute(_CLAIM, values)}


def handed_over(connection: Connection, event_ids: Sequence[UUID]) -> list[Telling]:
    """What is to be told of these events now."""
    rows = connection.execute(_HANDED_OVER, {"ids": list(event_ids)})
    return [Telling(row.sink, row.tries, QuarantinedEvent(*row[2:])) for row in rows]


def take_up(
    connection: Connection, event_ids: Sequence[UUID], sinks: Sequence[str], now: datetime, lease: timedelta
) -> None:
    """The log has been told: from now on each of the configured `sinks` has a row of its own."""
    _lock(connection, event_ids)
    values = {"ids": list(event_ids), "sinks": list(sinks), "until": now + lease}
    connection.execute(_ROWS_OF_TAKEN_UP, values)
    end(connection, [(one, LOG) for one in event_ids], AlertState.TOLD, now)


def end(
    connection: Connection, named: Sequence[tuple[UUID, str]], state: AlertState, now: datetime
) -> dict[tuple[UUID, str], tuple[int, str | None]]:
    """Untold to Told or GivenUp, and the event stamped once none of its sinks is left; answers which moved.

    Each with its tries and its last error.
    """
    ids = [event_id for event_id, _ in named]
    _lock(connection, ids)
    values = {"ids": ids, "sinks": [sink for _, sink in named], "state": state.value, "now": now}
    moved = {(row.event_id, row.sink): (row.tries, row.last_error) for row in connection.execute(_END, values)}
    connection.execute(_STAMP, {"ids": ids, "now": now})
    return moved


def failed(connection: Connection, tellings: Sequence[Telling], error: str, next_try: Mapping[UUID, datetime]) -> None:
    """One try more of each has failed, all at one sink; it is due again when `next_try` says."""
    if tellings:
        values = {
            "ids": [telling.event.id for telling in tellings],
            "tries": [telling.tries for telling in tellings],
            "next": [next_try[telling.event.id] for telling in tellings],
            "sink": tellings[0].sink,
            "error": error[:64],
        }
        connection.execute(_FAILED, values)


def make_due(
    connection: Connection, named: Sequence[tuple[UUID, str]], now: datetime
) -> dict[tuple[UUID, str], tuple[int, str | None]]:
    """Due now, tries as they are: what was not called, and what an operator wants tried. Answers which are Untold."""
    values = {"ids": [event_id for event_id, _ in named], "sinks": [sink for _, sink in named], "now": now}
    return {(row.event_id, row.sink): (row.tries, row.last_error) for row in connection.execute(_DUE_NOW, values)}


def untold(
    connection: Connection, *, sink: str | None = None, ids: Collection[UUID] | None = None, limit: int
) -> list[AlertRow]:
    """What is Untold, by sink, the oldest first."""
    values = {"sink": sink, "ids": None if ids is None else list(ids), "limit": limit}
    return [AlertRow(*row) for row in connection.execute(_UNTOLD, values)]


def ended(connection: Connection, *, sink: str | None = None, limit: int) -> list[AlertRow]:
    """The latest that are Told or GivenUp, the newest event first, among the last rows that were made."""
    values = {"sink": sink, "limit": limit, "scanned": limit * len(SINKS) * 10}
    return [AlertRow(*row) for row in connection.execute(_ENDED, values)]


def counts(connection: Connection) -> list[Untold]:
    """What each sink has not been told, in the order of SINKS."""
    found = {row.sink: Untold(*row) for row in connection.execute(_COUNTS, {"sinks": list(SINKS)})}
    return [found[sink] for sink in SINKS]


def _lock(connection: Connection, event_ids: Sequence[UUID]) -> None:
    connection.execute(_LOCK, {"ids": sorted(set(event_ids))})
