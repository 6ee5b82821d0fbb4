"""After the fault: everything is started again and time moves on, until nothing is left to do."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg

from pin.config.settings import Settings
from pin.job import tick as retry_job
from scheduler import make_job
from tests.job.scene import working
from tests.waiting import eventually

_ROUNDS = 30

_BUSY = "SELECT count(*) FROM dramatiq.queue WHERE state IN ('queued', 'consumed')"
_LEFT = f"""
    SELECT ({_BUSY})
         + (SELECT count(*) FROM news.snapshot_detach_outbox WHERE status = 'Pending')
         + (SELECT count(*) FROM news.snapshot_detach_quarantined_event WHERE alerted_at IS NULL)
"""
_A_DAY = """
    UPDATE news.snapshot_detach_outbox SET next_attempt_at = next_attempt_at - interval '1 day'
        WHERE status = 'Pending';
    UPDATE dramatiq.queue SET mtime = mtime - interval '1 day' WHERE state = 'consumed';
    UPDATE news.snapshot_detach_quarantined_event SET occurred_at = occurred_at - interval '1 day'
        WHERE alerted_at IS NULL;
    UPDATE news.snapshot_detach_alert SET next_try_at = next_try_at - interval '1 day' WHERE state = 'Untold'
"""


class Recovery:
    """Production's scheduler and worker on one database, in this process. `look` is a connection to that database."""

    def __init__(self, settings: Settings, look: psycopg.Connection[Any]) -> None:
        self._settings = settings
        self._look = look
        self._working = False

    @contextmanager
    def working(self) -> Iterator[None]:
        """A worker, while the block lasts."""
        with working(self._settings):
            self._working = True
            try:
                yield
            finally:
                self._working = False

    def come_to_rest(self) -> bool:
        """Let days pass, each with its tick, until nothing is Pending, queued or silent. False: it never came to rest.

        The notes that the database takes are kept from what time does.
        """
        with ExitStack() as stack:
            if self._working:
                self._idle()
            self._a_day_passes()
            if not self._working:
                if self._at_rest():
                    return True
                stack.enter_context(self.working())
            job = make_job(self._settings)
            stack.callback(job.engine.dispose)
            for _ in range(_ROUNDS):
                retry_job.run(job, threading.Event())
                self._idle()
                if self._at_rest():
                    return True
                self._a_day_passes()
        return False

    def _a_day_passes(self) -> None:
        with self._look.transaction():
            self._look.execute("SET LOCAL session_replication_role = replica")  # what time does is not noted
            self._look.execute(_A_DAY.encode())

    def _at_rest(self) -> bool:
        return self._count(_LEFT) == 0

    def _idle(self) -> None:
        """Wait until the worker has nothing in its hands."""
        eventually(lambda: self._count(_BUSY) == 0, within=20, every=0.005)

    def _count(self, statement: str) -> int:
        row = self._look.execute(statement.encode()).fetchone()
        assert row is not None
        count: int = row[0]
        return count
