"""What a batch costs the database: counted by the server itself."""

from collections.abc import Callable
from threading import Event

import pytest
from sqlalchemy import Engine

from db.embedded.server import EmbeddedServer
from pin.clock import new_id
from pin.config.sections import QueueOptions
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from tests.fake_selections import FakeSelections
from tests.job.conftest import MakeJobSettings
from tests.job.scene import change, query, stage, working
from tests.waiting import eventually

CONTROL = ("begin", "commit", "rollback", "start transaction", "savepoint", "release")


@pytest.mark.req("J13", "G6")
def test_a_batch_of_a_hundred_costs_at_most_twelve_statements(
    engine: Engine,
    server: EmbeddedServer,
    job_settings: MakeJobSettings,
    make_retry_job: Callable[[Settings], RetryJob],
) -> None:
    """Counted as what each further batch adds to a run, so that the run's own statements are counted apart."""
    if not server.has_pg_stat_statements:
        pytest.skip("this PostgreSQL comes without pg_stat_statements, which does the counting")
    change(engine, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    with FakeSelections() as selections:
        settings = job_settings(selections.url, queue=QueueOptions())  # the production poll
        job = make_retry_job(settings)
        with working(settings):
            listening = "SELECT FROM pg_stat_activity WHERE application_name = 'pin-worker-queue' AND state = 'idle'"
            eventually(lambda: query(engine, listening))

            def counted(batches: int) -> dict[str, int]:
                stage(engine, [new_id() for _ in range(100 * batches)])
                change(engine, "SELECT pg_stat_statements_reset()")
                assert retry_job.run(job, Event()).outcomes.succeeded == 100 * batches
                found = query(
                    engine,
                    "SELECT query, calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
                    " WHERE d.datname = current_database() AND query NOT ILIKE '%pg_stat_statements%'",
                )
                return {
                    " ".join(r.query.split())[:100]: r.calls
                    for r in found
                    if not r.query.lower().lstrip().startswith(CONTROL)
                }

            counted(1)  # connections are made, types looked up
            one, six = counted(1), counted(6)
    added = {statement: calls - one.get(statement, 0) for statement, calls in six.items()}
    a_batch = sum(added.values()) / 5
    assert 8 <= a_batch <= 12, "\n".join(f"{calls} x {statement}" for statement, calls in added.items())
