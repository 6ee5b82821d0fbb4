"""The runner's statements: claim what is due, quarantine what is spent (J4, J10, J11, G6, G7).

All run on the connection that holds the runner lock, inside the caller's transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from db.outbox import COLUMNS, entry_of
from pin.outbox import JITTER, Entry, ErrorClass, Policy


@dataclass(frozen=True, slots=True)
class Claimed:
    """One row as a claim left it: what the message must name (G6)."""

    entry_id: UUID
    version: int


# `id = ANY(ARRAY(...))` and not a join: the limit holds under any plan (A10), and one index search finds the rows.
# The delays come as an array, one a number of attempts; the index into it is bounded before use (A2).
_CLAIM = text(f"""
    UPDATE news.snapshot_detach_outbox SET
        attempts = attempts + 1,
        version = version + 1,
        outcome_due = true,
        next_attempt_at = CAST(:now AS timestamptz) + make_interval(secs =>
            (CAST(:delays AS float8[]))[LEAST(attempts + 1, :longest)] * (1 + {JITTER} * random())),
        updated_at = :now
    WHERE id = ANY(ARRAY(
        SELECT id FROM news.snapshot_detach_outbox
        WHERE status = 'Pending' AND next_attempt_at <= :due AND attempts <= :max_attempts AND outcome_due = :lone
        ORDER BY next_attempt_at
        LIMIT :size
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING id, version
""")

_SPENT = text(f"""
    UPDATE news.snapshot_detach_outbox SET
        status = 'Quarantined',
        version = version + 1,
        last_error = CASE WHEN outcome_due THEN '{ErrorClass.OUTCOME_LOST}'
                          ELSE COALESCE(last_error, '{ErrorClass.ATTEMPTS_SPENT}') END,
        outcome_due = false,
        updated_at = :now
    WHERE id = ANY(ARRAY(
        SELECT id FROM news.snapshot_detach_outbox
        WHERE status = 'Pending' AND next_attempt_at <= :due AND attempts > :max_attempts
        ORDER BY next_attempt_at
        LIMIT :size
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING {COLUMNS}, last_error
""")


def claim_due(
    connection: Connection, *, due: datetime, now: datetime, size: int, policy: Policy, lone: bool
) -> list[Claimed]:
    """Claim up to `size` rows due at `due`, the start of the run, marking the attempt (J10, J11); one statement.

    `lone` claims one row whose last outcome was lost, in a batch of its own, so that it cannot take neighbours with it
    (G7). Rows that another transaction holds are passed over (J4).
    """
    rows = connection.execute(
        _CLAIM,
        {
            "now": now,
            "due": due,
            "size": 1 if lone else size,
            "max_attempts": policy.max_attempts,
            "lone": lone,
            "delays": [delay.total_seconds() for delay in policy.schedule],
            "longest": len(policy.schedule),
        },
    )
    return [Claimed(row.id, row.version) for row in rows]


def quarantine_spent(
    connection: Connection, *, due: datetime, now: datetime, size: int, max_attempts: int
) -> Sequence[tuple[Entry, str]]:
    """Quarantine, uncalled, up to `size` due rows whose attempts are above the limit (G7).

    Answers each as it stands now, with its last_error; the caller writes the events in the same transaction.
    """
    rows = connection.execute(_SPENT, {"now": now, "due": due, "size": size, "max_attempts": max_attempts})
    return [(entry_of(row), row.last_error) for row in rows]
