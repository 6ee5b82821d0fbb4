"""No tick is skipped in silence: paused, set back, hung, and several schedulers at once (A18)."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from threading import Event

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import Engine, text

from db.outbox.runs import RunResult
from pin.clock import new_id
from pin.config.sections import SnapshotDetachRetryOptions
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from pin.telemetry.pulse import Pulse
from scheduler import follow_clock, make_scheduler
from tests.job.conftest import MakeJobSettings
from tests.job.scene import query, rows, stage, working
from tests.timetravel import wall_clock_at
from tests.waiting import eventually

MakeJob = Callable[[Settings], RetryJob]
INTERVAL = timedelta(seconds=30)
RETRY = SnapshotDetachRetryOptions(
    polling_interval=INTERVAL,
    max_run_duration=timedelta(seconds=20),
    detach_call_timeout=timedelta(milliseconds=500),
    lock_ttl=timedelta(seconds=25),
)


def _missed() -> float:
    return REGISTRY.get_sample_value("news_snapshot_detach_ticks_missed_total") or 0.0


@pytest.mark.case("A18")
@pytest.mark.req("J1", "J23")
def test_a_pause_of_two_minutes_is_caught_up_by_one_run_and_counted_and_a_clock_set_back_stops_no_ticks(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    job = make_retry_job(job_settings(retry=RETRY))
    missed = _missed()

    def runs() -> int:
        return int(query(engine, "SELECT count(*) AS n FROM news.snapshot_detach_run WHERE ended_at IS NOT NULL")[0].n)

    with wall_clock_at("2026-03-01T12:00:00+00:00") as clock:
        stopping = Event()
        scheduler = make_scheduler(job, stopping, Pulse(timedelta(minutes=5)))
        scheduler.start()
        try:
            eventually(lambda: runs() == 1)
            clock.forward(timedelta(minutes=2))
            scheduler.wakeup()
            eventually(lambda: runs() == 2)
            eventually(lambda: _missed() == missed + 3)
            scheduler.wakeup()
            clock.forward(INTERVAL)
            scheduler.wakeup()
            eventually(lambda: runs() == 3)

            clock.forward(-timedelta(minutes=10))
            follow_clock(scheduler, INTERVAL)
            eventually(lambda: runs() == 4)
            follow_clock(scheduler, INTERVAL)
            clock.forward(INTERVAL)
            scheduler.wakeup()
            eventually(lambda: runs() == 5)
        finally:
            stopping.set()
            scheduler.shutdown(wait=True)
    assert runs() == 5
    assert _missed() == missed + 3


@pytest.mark.case("A18")
@pytest.mark.req("J3", "J23", "G5")
def test_a_run_that_hangs_in_its_claim_ends_by_the_locks_ttl_and_the_next_one_runs(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    retry = RETRY.model_copy(update={"max_run_duration": timedelta(seconds=1), "lock_ttl": timedelta(seconds=2)})
    stage(engine, [new_id()])
    job = make_retry_job(job_settings(retry=retry))
    with engine.connect() as rival:
        rival.execute(text("LOCK TABLE news.snapshot_detach_outbox IN ACCESS EXCLUSIVE MODE"))
        began = time.monotonic()
        hung = retry_job.run(job, Event())
        took = time.monotonic() - began
        rival.rollback()
    assert hung.result in {RunResult.FAILED, RunResult.LOCK_LOST}
    assert hung.claimed == 0
    assert took < 10
    assert retry_job.run(job, Event()).claimed == 1


@pytest.mark.case("A18")
@pytest.mark.req("J2", "J23", "G20")
def test_of_several_schedulers_each_tick_is_run_by_one_and_the_others_count_theirs_as_skipped(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    settings = job_settings(retry=RETRY.model_copy(update={"max_run_duration": timedelta(seconds=1)}))
    jobs = [make_retry_job(settings) for _ in range(3)]
    entries = stage(engine, [new_id() for _ in range(3)])
    results: list[RunResult] = []
    threads = [
        threading.Thread(target=lambda job=job: results.append(retry_job.run(job, Event()).result)) for job in jobs
    ]
    for thread in threads:  # nobody consumes: whoever has the lock keeps it for its whole run
        thread.start()
    for thread in threads:
        thread.join(30)
    written = Counter(r.result for r in query(engine, "SELECT result FROM news.snapshot_detach_run"))
    assert written == Counter(result.value for result in results)
    assert written[RunResult.SKIPPED] >= 1
    assert sum(written.values()) == 3
    with working(settings):
        eventually(lambda: all(r.version == 2 for r in rows(engine, entries)))
    assert {r.attempts for r in rows(engine, entries)} == {1}
