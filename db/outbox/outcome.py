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
# more keeps the statement safe by itself.
_APPLY = text("""
    UPDATE news.snapshot_detach_outbox AS o SET
        status = d.status,
        version = o.version + 1,
        outcome_due = false,
        attempts = o.attempts - CASE WHEN d.given_back THEN 1 ELSE 0 END,
        last_error = CASE WHEN d.given_back THEN o.last_error ELSE d.error END,
        next_attempt_at = CASE WHEN d.given_back THEN COALESCE(o.claimed_from, o.next_attempt_at)
                               ELSE GREATEST(o.next_attempt_at, d.not_before) END,
        claimed_from = NULL,
        updated_at = :now
    FROM unnest(
        CAST(:ids AS uuid[]), CAST(:versions AS bigint[]), CAST(:statuses AS text[]), CAST(:errors AS text[]),
        CAST(:not_before AS timestamptz[]), CAST(:given_back AS boolean[])
    ) AS d (id, version, status, error, not_before, given_back)
    WHERE o.id = d.id AND o.version = d.version AND o.status <> 'Done'
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
        _STILL_CLAIMED, {"ids": [c.entry_id for c in claimed], "versions": [c.version for c in claimed]}
    )
    return [entry_of(row) for row in rows]


@dataclass(frozen=True, slots=True)
class Locked:
    """The entries as they stand, row-locked, and the transaction's number: whether it was committed can be asked."""

    entries: dict[UUID, Entry]
    transaction: str | None


def lock(connection: Connection, ids: Sequence[UUID]) -> Locked:
    """Lock the entries in id order (G21). Absent ones were removed meanwhile."""
    rows = connection.execute(_LOCK, {"ids": sorted(ids)}).all()
    return Locked({row.id: entry_of(row) for row in rows}, rows[0].transaction if rows else None)


def was_committed(connection: Connection, transaction: str) -> bool | None:
    """Whether that transaction was committed, None while it is still under way (A47)."""
    status = connection.execute(_STATUS, {"transaction": transaction}).scalar()
    return None if status == "in progress" else status == "committed"


def apply(connection: Connection, decided: Sequence[Decided], now: datetime) -> None:
    """Write decisions over the locked entries, one statement. Late ones change nothing.

    Raises RuntimeError when a row did not change: the caller did not hold the lock.
    """
    moving = [d for d in decided if d.outcome.kind is not OutcomeKind.LATE]
    if not moving:
        return
    result = connection.execute(
        _APPLY,
        {
            "ids": [d.entry.id for d in moving],
            "versions": [d.entry.version for d in moving],
            "statuses": [_STATUS_AFTER[d.outcome.kind] for d in moving],
            "errors": [d.outcome.error for d in moving],
            "not_before": [d.outcome.not_before for d in moving],
            "given_back": [d.outcome.kind is OutcomeKind.NOT_CALLED for d in moving],
            "now": now,
        },
    )
    if result.rowcount != len(moving):
        raise RuntimeError(f"{len(moving) - result.rowcount} of {len(moving)} entries changed under their lock")


def keep_history(connection: Connection, decided: Sequence[Decided], origin: AttemptOrigin, now: datetime) -> None:
    """One row an answer, late ones as well, and one an entry that was given back; one statement."""
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
