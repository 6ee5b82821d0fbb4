"""A slow call holds no connection, and no transaction that a server would end for standing idle (A17)."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine

from db.connect import Limits, make_engine
from db.outbox import intents as outbox
from db.outbox.claim import Claimed
from pin.clock import new_id
from pin.job import delivery
from pin.job.delivery import Batch
from pin.outgoing.selections import SelectionsClient
from pin.rules.outbox import Policy
from tests.client.conftest import Tokens
from tests.fake_selections import FakeSelections, Gate, detached
from tests.job.scene import change, query, rows, stage
from tests.waiting import eventually

POLICY = Policy(12, timedelta(minutes=1), 2.0, timedelta(minutes=30))
IDLE_FOR = """
    SELECT state, extract(epoch FROM clock_timestamp() - state_change) AS seconds, xact_start
    FROM pg_stat_activity WHERE application_name = 'pin-one-connection' AND datname = current_database()
"""


@pytest.fixture
def single(database: str) -> Iterator[Engine]:
    """A pool of one connection, whose server ends what stands idle in a transaction for a second."""
    limits = Limits(statement=30, lock=10, idle_in_transaction=1)
    made = make_engine(database, pool_size=1, pool_timeout=5, application_name="pin-one-connection", limits=limits)
    yield made
    made.dispose()


@pytest.fixture
def client(selections: FakeSelections) -> Iterator[SelectionsClient]:
    made = SelectionsClient(selections.url, Tokens())
    yield made
    made.close()


def _announce(_connection: Connection, _event_ids: Sequence[UUID]) -> None: ...


@pytest.mark.case("A17")
@pytest.mark.req("J12", "J13", "J19")
@pytest.mark.parametrize("path", ["the owner's own call", "the job"])
def test_a_call_of_seconds_leaves_the_pools_only_connection_free_and_its_outcome_is_written(
    engine: Engine, single: Engine, client: SelectionsClient, selections: FakeSelections, path: str
) -> None:
    slow = Gate()
    selections.answer = lambda call: [slow, *detached(call)]
    entries = stage(engine, [new_id() for _ in range(3)])
    limit = timedelta(seconds=20)
    with single.connect() as connection:
        staged = outbox.by_id(connection, entries)

    def first() -> None:
        delivery.first_attempts(
            staged, engine=single, client=client, policy=POLICY, call_timeout=limit, deadline=time.monotonic() + 20
        )

    def job() -> None:
        delivery.deliver(
            Batch(new_id(), tuple(Claimed(entry, 1) for entry in entries)),
            engine=single,
            client=client,
            policy=POLICY,
            call_timeout=limit,
            time_limit=limit,
            patience=timedelta(seconds=1),
            announce=_announce,
            stopping=lambda: False,
            worker="test",
        )

    work: Callable[[], None] = first
    if path == "the job":
        change(engine, "UPDATE news.snapshot_detach_outbox SET version = 1, attempts = 1, outcome_due = true")
        work = job
    calling = threading.Thread(target=work)
    calling.start()
    selections.arrived(3)
    with single.connect() as connection:  # the pool's only one: it is free
        connection.exec_driver_sql("SELECT 1")
    (session,) = eventually(lambda: [s for s in query(engine, IDLE_FOR) if s.seconds > 1.2], within=10)
    assert (session.state, session.xact_start) == ("idle", None)
    slow.open()
    calling.join(20)
    assert not calling.is_alive()
    assert {(r.status, r.last_error) for r in rows(engine, entries)} == {("Done", None)}
