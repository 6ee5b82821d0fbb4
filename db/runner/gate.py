"""The runner's view of the queue: may it claim, and what of its batches is still under way (G6).

The table is the broker's (actors/broker.py); its lease is measured on the database's clock, G11's exception.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text
from sqlalchemy.engine import Row

DETACH_QUEUE = "snapshot-detach"
ALERT_QUEUE = "snapshot-detach-alert"
"""A queue of its own: alerts waiting for a worker must not hold back the runner (G21)."""

BATCHES_CHANNEL = "pin.batches"
"""Notified whenever a batch is consumed or finished."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What the runner must know before a claim: its own backend, and the batches of the detach queue."""

    backend_pid: int
    unconsumed: int
    """Queued, or consumed with the lease run out: while there is one, nothing may be claimed."""
    in_flight: int
    mine: int
    """How many of the run's own batches are neither finished nor rejected."""
    halted_by: str | None
    """What ended the pass (G3), written by a worker."""
    paused: bool
    """An operator has paused the job: nothing may be claimed."""


GATE = """
    SELECT
        pg_backend_pid() AS backend_pid,
        count(*) FILTER (WHERE state = 'queued' OR mtime < clock_timestamp() - CAST(:lease AS interval)) AS unconsumed,
        count(*) FILTER (WHERE state = 'consumed' AND mtime >= clock_timestamp() - CAST(:lease AS interval))
            AS in_flight,
        count(*) FILTER (WHERE message_id = ANY(CAST(:mine AS uuid[]))) AS mine,
        (SELECT halted_by FROM news.snapshot_detach_run WHERE id = :run_id) AS halted_by,
        EXISTS (SELECT FROM news.snapshot_detach_pause) AS paused
    FROM dramatiq.queue
    WHERE queue_name = :queue AND state IN ('queued', 'consumed')
"""
"""Its values are those of `gate_values`; db/outbox/claim.py asks it in the claim's own statement (A50)."""

_GATE = text(GATE)


def gate_values(*, run_id: UUID, lease: timedelta, mine: Sequence[UUID]) -> dict[str, object]:
    """What GATE is asked with. `mine` are the messages of the run so far."""
    return {"queue": DETACH_QUEUE, "lease": lease, "run_id": run_id, "mine": list(mine)}


def read_gate(connection: Connection, *, run_id: UUID, lease: timedelta, mine: Sequence[UUID]) -> Gate:
    """Read the gate, on the lock's connection; one statement."""
    return gate_of(connection.execute(_GATE, gate_values(run_id=run_id, lease=lease, mine=mine)).one())


def gate_of(row: Row[Any]) -> Gate:
    """A row of GATE."""
    return Gate(row.backend_pid, row.unconsumed, row.in_flight, row.mine, row.halted_by, row.paused)
