"""The runner's statements: claim what is due, quarantine what is spent (J4, J10, J11, G6, G7).

All run on the connection that holds the runner lock, inside the caller's transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from db.outbox.intents import COLUMNS, entry_of
from pin.rules.outbox import JITTER, Entry, ErrorClass, Policy


@dataclass(frozen=True, slots=True)
class Claimed:
    """One row as a claim left it: what the message must name (G6)."""

    entry_id: UUID
    version: int


@dataclass(frozen=True, slots=True)
class Pass:
    """One claim. `last`: nothing more was due that this runner may take."""

    claimed: tuple[Claimed, ...]
    last: bool


# The window is materialised and locked first, then chosen from, so that the limit holds under any plan (A10); the ids
# come as one array, so that one index search finds the rows. The delays come as an array as well, one a number of
# attempts; the index into it is bounded before use (A2). Rows of the window not chosen are free again at the commit.
_CLAIM = text(f"""
    WITH due AS MATERIALIZED (
        SELECT id, outcome_due, next_attempt_at FROM news.snapshot_detach_outbox
        WHERE status = 'Pending' AND next_attempt_at <= :due AND attempts <= :max_attempts
        ORDER BY next_attempt_at
        LIMIT :size
        FOR UPDATE SKIP LOCKED
    ), chosen AS (
        SELECT CASE
            WHEN EXISTS (SELECT FROM due WHERE outcome_due)
                 AND (:lone_first OR NOT EXISTS (SELECT FROM due WHERE NOT outcome_due))
            THEN ARRAY(SELECT id FROM due WHERE outcome_due ORDER BY next_attempt_at LIMIT 1)
            ELSE ARRAY(SELECT id FROM due WHERE NOT outcome_due)
        END AS ids
    )
    UPDATE news.snapshot_detach_outbox SET
        attempts = attempts + 1,
        version = version + 1,
        outcome_due = true,
        next_attempt_at = CAST(:now AS timestamptz) + make_interval(secs =>
            (CAST(:delays AS float8[]))[LEAST(attempts + 1, :longest)] * (1 + {JITTER} * random())),
        updated_at = :now
    WHERE id = ANY((SELECT ids FROM chosen)::uuid[])
    RETURNING id, version, (SELECT count(*) FROM due) AS seen
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
    connection: Connection, *, due: datetime, now: datetime, size: int, policy: Policy, lone_first: bool
) -> Pass:
    """Claim up to `size` rows due at `due`, the start of the run, marking the attempt (J10, J11); one statement.

    A row whose last outcome was lost is claimed alone, in a batch of its own, so that it cannot take neighbours with it
    (G7): before the others when `lone_first`, else once there are no others. Rows that another transaction holds are
    passed over (J4).
    """
    rows = list(
        connection.execute(
            _CLAIM,
            {
                "now": now,
                "due": due,
                "size": size,
                "max_attempts": policy.max_attempts,
                "lone_first": lone_first,
                "delays": [delay.total_seconds() for delay in policy.schedule],
                "longest": len(policy.schedule),
            },
        )
    )
    last = not rows or (len(rows) == rows[0].seen < size)
    return Pass(tuple(Claimed(row.id, row.version) for row in rows), last)


def quarantine_spent(
    connection: Connection, *, due: datetime, now: datetime, size: int, max_attempts: int
) -> Sequence[tuple[Entry, str]]:
    """Quarantine, uncalled, up to `size` due rows whose attempts are above the limit (G7).

    Answers each as it stands now, with its last_error; the caller writes the events in the same transaction.
    """
    rows = connection.execute(_SPENT, {"now": now, "due": due, "size": size, "max_attempts": max_attempts})
    return [(entry_of(row), row.last_error) for row in rows]
