"""The runner's statements: claim what is due, quarantine what is spent (J4, J10, J11, G6, G7, G24, G25).

All run on the connection that holds the runner lock, inside the caller's transaction. A run goes once through the due
order, (next_attempt_at, id), by a cursor: nothing is claimed twice in a run, and no claim reads again what an earlier
one has passed, however many dead rows an old snapshot keeps there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from db.outbox.intents import COLUMNS, entry_of
from db.runner.gate import GATE, Gate, gate_of
from pin.rules.outbox import JITTER, Entry, ErrorClass, Policy

MOST_ODD = 10_000
"""Rows that one claim may report as lost or spent; what is beyond it is the next run's."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """One row as a claim left it: what the message must name (G6)."""

    entry_id: UUID
    version: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a run has come in the due order: everything at or before this place was claimed or passed over."""

    due: datetime
    id: UUID


START = Cursor(datetime.min.replace(tzinfo=UTC), UUID(int=0))
"""Before everything."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One claim, and the gate that it saw. Not `open`: nothing may be claimed now, and nothing was."""

    gate: Gate
    open: bool
    claimed: tuple[Claimed, ...] = ()
    cursor: Cursor = START
    last: bool = False
    """The end of what is due was reached."""
    lost: tuple[UUID, ...] = ()
    """Rows passed over since their last outcome was lost: each goes in a batch of its own (G7)."""
    spent: tuple[UUID, ...] = ()
    """Rows passed over since their attempts are above the limit."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What every claim of a run has in common. `due` is the run's start, `most` the batches that may be in flight."""

    gate: dict[str, object]
    backend_pid: int
    due: datetime
    policy: Policy
    most: int
    alone: bool = False
    """Only while none of the run's own batches is under way."""

    def values(self, now: datetime) -> dict[str, Any]:
        """The values of a claim's statement."""
        return self.gate | {
            "backend_pid": self.backend_pid,
            "now": now,
            "due": self.due,
            "most": self.most,
            "alone": self.alone,
            "max_attempts": self.policy.max_attempts,
            "delays": [delay.total_seconds() for delay in self.policy.schedule],
            "longest": len(self.policy.schedule),
        }


# Gate and claim are one statement, so that what the gate says holds for the claim (A50). The window is materialised and
# locked first, so that the limit holds under any plan (A10); the ids come as one array, so that one index search finds
# the rows. The delays come as an array as well, one a number of attempts; the index into it is bounded before use (A2).
_OPEN = f"""
    WITH gate AS MATERIALIZED ({GATE}),
    opened AS MATERIALIZED (
        SELECT backend_pid = :backend_pid AND NOT paused AND halted_by IS NULL AND unconsumed = 0
            AND in_flight < :most AND (NOT :alone OR mine = 0) AS yes
        FROM gate
    )"""

_MARK = f"""
    marked AS (
        UPDATE news.snapshot_detach_outbox SET
            attempts = attempts + 1,
            version = version + 1,
            outcome_due = true,
            claimed_from = next_attempt_at,
            next_attempt_at = CAST(:now AS timestamptz) + make_interval(secs =>
                (CAST(:delays AS float8[]))[LEAST(attempts + 1, :longest)] * (1 + {JITTER} * random())),
            updated_at = :now
        WHERE id = ANY(ARRAY(SELECT id FROM picked))
        RETURNING id, version
    )"""

_CLAIMED = """
    (SELECT array_agg(id ORDER BY id) FROM marked) AS ids,
    (SELECT array_agg(version ORDER BY id) FROM marked) AS versions
"""

_CLAIM = text(f"""
    {_OPEN}, picked AS MATERIALIZED (
        SELECT id, next_attempt_at FROM news.snapshot_detach_outbox
        WHERE status = 'Pending' AND (next_attempt_at, id) > (CAST(:after AS timestamptz), CAST(:after_id AS uuid))
            AND next_attempt_at <= :due AND NOT outcome_due AND attempts <= :max_attempts
        ORDER BY next_attempt_at, id
        LIMIT (SELECT CASE WHEN yes THEN CAST(:size AS integer) ELSE 0 END FROM opened)
        FOR UPDATE SKIP LOCKED
    ), edge AS MATERIALIZED (
        SELECT count(*) AS found, (array_agg(next_attempt_at ORDER BY next_attempt_at DESC, id DESC))[1] AS due,
            (array_agg(id ORDER BY next_attempt_at DESC, id DESC))[1] AS id
        FROM picked
    ), odd AS MATERIALIZED (
        SELECT id, attempts > :max_attempts AS is_spent FROM news.snapshot_detach_outbox
        WHERE status = 'Pending' AND (SELECT yes FROM opened)
            AND (next_attempt_at, id) > (CAST(:after AS timestamptz), CAST(:after_id AS uuid))
            AND next_attempt_at <= (SELECT CASE WHEN found < :size THEN :due ELSE due END FROM edge)
            AND (next_attempt_at, id) <= (
                SELECT CASE WHEN found < :size THEN 'infinity' ELSE due END, COALESCE(id, CAST(:after_id AS uuid))
                FROM edge
            )
            AND (outcome_due OR attempts > :max_attempts)
        ORDER BY next_attempt_at, id
        LIMIT {MOST_ODD}
    ), {_MARK}
    SELECT gate.*, opened.yes AS open, edge.found, edge.due AS edge_due, edge.id AS edge_id, {_CLAIMED},
        (SELECT array_agg(id) FROM odd WHERE NOT is_spent) AS lost,
        (SELECT array_agg(id) FROM odd WHERE is_spent) AS spent
    FROM gate, opened, edge
""")

_CLAIM_LOST = text(f"""
    {_OPEN}, picked AS MATERIALIZED (
        SELECT id FROM news.snapshot_detach_outbox
        WHERE id = :id AND status = 'Pending' AND outcome_due AND next_attempt_at <= :due AND attempts <= :max_attempts
        LIMIT (SELECT CASE WHEN yes THEN 1 ELSE 0 END FROM opened)
        FOR UPDATE SKIP LOCKED
    ), {_MARK}
    SELECT gate.*, opened.yes AS open, {_CLAIMED} FROM gate, opened
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
        WHERE id = ANY(CAST(:ids AS uuid[]))
            AND status = 'Pending' AND next_attempt_at <= :due AND attempts > :max_attempts
        ORDER BY id
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING {COLUMNS}, last_error
""")


def claim_due(connection: Connection, terms: Terms, *, after: Cursor, size: int, now: datetime) -> Pass:
    """Claim the next `size` rows due at the run's start, marking the attempt (J10, J11); one statement with the gate.

    Rows that another transaction holds are passed over (J4), and so are those that go alone or are spent: both are
    named in the answer.
    """
    values = terms.values(now) | {"size": size, "after": after.due, "after_id": after.id}
    row = connection.execute(_CLAIM, values).one()
    full = row.found == size
    return Pass(
        gate=gate_of(row),
        open=row.open,
        claimed=_claimed(row),
        cursor=Cursor(row.edge_due, row.edge_id) if full else after,
        last=bool(row.open) and not full,
        lost=tuple(row.lost or ()),
        spent=tuple(row.spent or ()),
    )


def claim_lost(connection: Connection, terms: Terms, *, entry_id: UUID, now: datetime) -> Pass:
    """Claim a row whose last outcome was lost, alone (G7). Nothing is claimed if it has changed since."""
    row = connection.execute(_CLAIM_LOST, terms.values(now) | {"id": entry_id}).one()
    return Pass(gate=gate_of(row), open=row.open, claimed=_claimed(row))


def quarantine_spent(
    connection: Connection, ids: Sequence[UUID], *, due: datetime, now: datetime, max_attempts: int
) -> Sequence[tuple[Entry, str]]:
    """Quarantine, uncalled, those of these rows that are due with attempts above the limit (G7).

    Answers each as it stands now, with its last_error; the caller writes the events in the same transaction. Rows that
    another transaction holds are passed over.
    """
    rows = connection.execute(_SPENT, {"ids": list(ids), "now": now, "due": due, "max_attempts": max_attempts})
    return [(entry_of(row), row.last_error) for row in rows]


def _claimed(row: Any) -> tuple[Claimed, ...]:
    return tuple(map(Claimed, row.ids or (), row.versions or ()))
