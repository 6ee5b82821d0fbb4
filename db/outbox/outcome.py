"""Outcomes: read and lock the entries of a batch, write what was decided, keep the history (J13–J16, G7, G9, G21)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from db.outbox.claim import Claimed
from db.outbox.intents import COLUMNS, entry_of
from pin.rules.outbox import Entry, Outcome, OutcomeKind, Reply


@dataclass(frozen=True, slots=True)
class Answered:
    """One call and what came back: the entry as it was called, and the reply."""

    called: Entry
    reply: Reply


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision: the entry as it was called, as it stood under its lock, and what the reply makes of it."""

    called: Entry
    entry: Entry
    reply: Reply
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class AttemptOrigin:
    """Where an attempt was made: the run that claimed it (None for a synchronous first one), by whom, which trace."""

    run_id: UUID | None
    worker: str
    trace_id: str | None


_STILL_CLAIMED = text(f"""
    SELECT {COLUMNS} FROM news.snapshot_detach_outbox
    JOIN unnest(CAST(:ids AS uuid[]), CAST(:versions AS bigint[])) AS named (entry_id, entry_version)
        ON id = entry_id AND version = entry_version
    WHERE status = 'Pending'
    ORDER BY next_attempt_at, id
""")

_LOCK = text(f"""
    SELECT {COLUMNS}, CAST(pg_current_xact_id() AS text) AS transaction FROM news.snapshot_detach_outbox
    WHERE id = ANY(CAST(:ids AS uuid[])) ORDER BY id FOR UPDATE
""")

_STATUS = text("SELECT pg_xact_status(CAST(:transaction AS xid8))")

# The rows are locked and decided upon as they stand, so the version read is the version written over; naming it once
# more keeps the statement safe by itself. A decision without a status changes nothing and is history alone.
_APPLY = text("""
    WITH d AS MATERIALIZED (
        SELECT * FROM unnest(
            CAST(:ids AS uuid[]), CAST(:versions AS bigint[]), CAST(:statuses AS text[]), CAST(:errors AS text[]),
            CAST(:not_before AS timestamptz[]), CAST(:called AS bigint[]), CAST(:attempts AS integer[]),
            CAST(:outcomes AS text[]), CAST(:http AS smallint[]), CAST(:durations AS integer[])
        ) AS d (id, version, status, error, not_before, called, attempt, outcome, http_status, duration_ms)
    ), moved AS (
        UPDATE news.snapshot_detach_outbox AS o SET
            status = d.status,
            version = o.version + 1,
            outcome_due = d.outcome = 'NotCalled' AND CAST(:redelivered AS boolean),
            attempts = o.attempts - CASE WHEN d.outcome = 'NotCalled' THEN 1 ELSE 0 END,
            last_error = CASE WHEN d.outcome = 'NotCalled' THEN o.last_error ELSE d.error END,
            next_attempt_at = CASE WHEN d.outcome = 'NotCalled' AND CAST(:redelivered AS boolean)
                                   THEN o.next_attempt_at
                                   WHEN d.outcome = 'NotCalled' THEN COALESCE(o.claimed_from, o.next_attempt_at)
                                   ELSE GREATEST(o.next_attempt_at, d.not_before) END,
            claimed_from = NULL,
            updated_at = :now
        FROM d
        WHERE o.id = d.id AND o.version = d.version AND o.status <> 'Done' AND d.status IS NOT NULL
        RETURNING 1
    ), kept AS (
        INSERT INTO news.snapshot_detach_attempt
            (entry_id, entry_version, attempt, run_id, outcome, error, http_status, duration_ms, worker, trace_id,
             recorded_at)
        SELECT id, called, attempt, :run_id, outcome, error, http_status, duration_ms, :worker, :trace_id, :now FROM d
    )
    SELECT count(*) FROM moved
""")

_HISTORY = text("""
    INSERT INTO news.snapshot_detach_attempt
        (entry_id, entry_version, attempt, run_id, outcome, error, http_status, duration_ms, worker, trace_id,
         recorded_at)
    SELECT entry_id, entry_version, attempt, :run_id, outcome, error, http_status, duration_ms, :worker, :trace_id, :now
    FROM unnest(
        CAST(:ids AS uuid[]), CAST(:versions AS bigint[]), CAST(:attempts AS integer[]), CAST(:outcomes AS text[]),
        CAST(:errors AS text[]), CAST(:http AS smallint[]), CAST(:durations AS integer[])
    ) AS h (entry_id, entry_version, attempt, outcome, error, http_status, duration_ms)
""")

_STATUS_AFTER = {
    OutcomeKind.SUCCEEDED: "Done",
    OutcomeKind.RETRIED: "Pending",
    OutcomeKind.QUARANTINED: "Quarantined",
    OutcomeKind.NOT_CALLED: "Pending",
}


def still_claimed(connection: Connection, claimed: Sequence[Claimed]) -> list[Entry]:
    """The entries that are still Pending at the version the message names; the rest need no call (G6)."""
    rows = connection.execute(
        _STILL_CLAIMED,
        {"ids": _plain([c.entry_id for c in claimed]), "versions": _plain([c.version for c in claimed])},
    )
    return [entry_of(row) for row in rows]


@dataclass(frozen=True, slots=True)
class Locked:
    """The entries as they stand, row-locked, and the transaction's number: whether it was committed can be asked."""

    entries: dict[UUID, Entry]
    transaction: str | None


def lock(connection: Connection, ids: Sequence[UUID]) -> Locked:
    """Lock the entries in id order (G21). Absent ones were removed meanwhile."""
    rows = connection.execute(_LOCK, {"ids": _plain(sorted(ids))}).all()
    return Locked({row.id: entry_of(row) for row in rows}, rows[0].transaction if rows else None)


def was_committed(connection: Connection, transaction: str) -> bool | None:
    """Whether that transaction was committed, None while it is still under way (A47)."""
    status = connection.execute(_STATUS, {"transaction": transaction}).scalar()
    return None if status == "in progress" else status == "committed"


def write(
    connection: Connection,
    decided: Sequence[Decided],
    origin: AttemptOrigin,
    now: datetime,
    *,
    redelivered: bool = False,
) -> None:
    """Write decisions over the locked entries, and keep the history; one statement.

    redelivered: an earlier delivery of the same batch may have called what this one did not. Its attempt goes back all
    the same, but it waits for its backoff and its outcome still counts as lost, so that it is claimed alone (G7, G22).

    Every decision has its row of history. Late ones change nothing else. Raises RuntimeError when an entry did not
    change: the caller did not hold the lock.
    """
    if not decided:
        return
    moving = sum(d.outcome.kind is not OutcomeKind.LATE for d in decided)
    moved = connection.execute(
        _APPLY,
        {
            "ids": _plain([d.entry.id for d in decided]),
            "versions": _plain([d.entry.version for d in decided]),
            "statuses": _plain([_STATUS_AFTER.get(d.outcome.kind) for d in decided]),
            "errors": _quoted([d.outcome.error for d in decided]),
            "not_before": _quoted([d.outcome.not_before for d in decided]),
            "called": _plain([d.called.version for d in decided]),
            "attempts": _plain([d.called.attempts for d in decided]),
            "outcomes": _plain([d.outcome.kind.value for d in decided]),
            "http": _plain([d.reply.http_status for d in decided]),
            "durations": _plain([min(int(d.reply.duration.total_seconds() * 1000), 2**31 - 1) for d in decided]),
            "run_id": origin.run_id,
            "worker": origin.worker[:128],
            "trace_id": origin.trace_id,
            "redelivered": redelivered,
            "now": now,
        },
    ).scalar_one()
    if moved != moving:
        raise RuntimeError(f"{moving - moved} of {moving} entries changed under their lock")


def keep_history(connection: Connection, decided: Sequence[Decided], origin: AttemptOrigin, now: datetime) -> None:
    """History of decisions that no call stands behind: their entries are written already. One statement."""
    if not decided:
        return
    connection.execute(
        _HISTORY,
        {
            "ids": [d.entry.id for d in decided],
            "versions": [d.called.version for d in decided],
            "attempts": [d.called.attempts for d in decided],
            "outcomes": [d.outcome.kind.value for d in decided],
            "errors": [d.outcome.error for d in decided],
            "http": [d.reply.http_status for d in decided],
            "durations": [min(int(d.reply.duration.total_seconds() * 1000), 2**31 - 1) for d in decided],
            "run_id": origin.run_id,
            "worker": origin.worker[:128],
            "trace_id": origin.trace_id,
            "now": now,
        },
    )


def _plain(values: Sequence[UUID | int | str | None]) -> str:
    """An array of values that need no quotes, as PostgreSQL writes it: a fifth of what the driver takes for a list."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def _quoted(values: list[str | None] | list[datetime | None]) -> str | Sequence[str | datetime | None]:
    """An array of whatever there is; most often nothing at all."""
    return values if any(value is not None for value in values) else _plain([None] * len(values))
