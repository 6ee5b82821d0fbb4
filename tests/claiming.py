"""A claim as a run makes it, for tests that claim without a run."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, text

from db.outbox import claim
from db.outbox.claim import START, Cursor, Pass, Terms
from db.runner.gate import gate_values
from pin.clock import new_id
from pin.rules.outbox import Policy


def terms_of(connection: Connection, *, due: datetime, policy: Policy, mine: Sequence[UUID] = ()) -> Terms:
    """The terms of a run that holds the lock on this connection."""
    pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    gate = gate_values(run_id=new_id(), lease=timedelta(seconds=40), mine=mine)
    return Terms(gate=gate, backend_pid=pid, due=due, policy=policy, most=8)


def claim_due(connection: Connection, *, now: datetime, policy: Policy, size: int = 100, after: Cursor = START) -> Pass:
    """The next full batch after the cursor, with the rows that go alone named."""
    return claim.claim_due(connection, terms_of(connection, due=now, policy=policy), after=after, size=size, now=now)


def claim_lost(connection: Connection, entry_id: UUID, *, now: datetime, policy: Policy) -> Pass:
    """A claim of one row, alone."""
    return claim.claim_lost(connection, terms_of(connection, due=now, policy=policy), entry_id=entry_id, now=now)
