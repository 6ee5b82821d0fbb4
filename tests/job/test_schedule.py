"""The schedule over hours and days, on a frozen wall clock, by the production code (C6, J11, J15, J28, J33)."""

import threading
from collections.abc import Callable
from datetime import timedelta
from threading import Event

import pytest
from sqlalchemy import Engine

from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.delivery import policy_of
from pin.job.tick import RetryJob
from pin.telemetry.pulse import Pulse
from scheduler import make_scheduler
from tests.job.conftest import MakeJobSettings
from tests.job.scene import active_snapshots, history, query, row, rows, stage, working
from tests.serving import serving
from tests.timetravel import Clock, wall_clock_at
from tests.waiting import eventually
from web.app import create_app

MakeJob = Callable[[Settings], RetryJob]
START = "2026-03-01T00:00:00+00:00"
MINUTE = timedelta(minutes=1)


def tick_until(job: RetryJob, clock: Clock, span: timedelta) -> None:
    """Tick at every PollingInterval for `span`, as the scheduler would."""
    ticks = span // job.options.polling_interval
    for _ in range(ticks):
        retry_job.run(job, Event())
        clock.forward(job.options.polling_interval)


@pytest.mark.req("C6", "J1", "J11", "J15", "J33", "G11", "G17")
def test_the_default_schedule_is_walked_from_the_first_attempt_to_quarantine(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    settings = job_settings("http://127.0.0.1:9")
    job = make_retry_job(settings)
    expected = [1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 30, 30]  # minutes
    with wall_clock_at(START) as clock, working(settings):
        (entry,) = stage(engine, active_snapshots(engine))
        for attempt, minutes in enumerate(expected, start=1):
            claimed_at = clock.now
            retry_job.run(job, Event())
            now = row(engine, entry)
            assert (now.attempts, now.last_error) == (attempt, "NETWORK")
            delay = now.next_attempt_at.replace(tzinfo=None) - claimed_at.replace(tzinfo=None)
            assert minutes * MINUTE <= delay <= minutes * MINUTE * 1.1
            if attempt < 12:
                assert now.status == "Pending"
                clock.forward(delay - timedelta(seconds=1))
                assert retry_job.run(job, Event()).claimed == 0, "not a second early"
                clock.forward(timedelta(seconds=1))
        assert row(engine, entry).status == "Quarantined"
        assert len(history(engine, entry)) == 12
        eventually(
            lambda: query(engine, "SELECT FROM news.snapshot_detach_quarantined_event WHERE alerted_at > '-infinity'")
        )
        passed = clock.now.replace(tzinfo=None) - rows(engine)[0].created_at.replace(tzinfo=None)
    assert passed < policy_of(settings.retry).window(settings.retry.polling_interval, settings.retry.max_run_duration)


@pytest.mark.case("A9")
@pytest.mark.req("J14", "J33", "J32", "G3")
def test_an_outage_of_an_hour_quarantines_nothing_and_the_backlog_drains_by_itself(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    away = job_settings("http://127.0.0.1:9")
    selections = create_app(job_settings(contexts=("selections",)))  # before time stands still: schemas need it real
    with wall_clock_at(START) as clock:
        stage(engine, active_snapshots(engine, 100))
        with working(away):
            tick_until(make_retry_job(away), clock, timedelta(hours=1))
        assert {r.status for r in rows(engine)} == {"Pending"}
        spread = {r.next_attempt_at for r in rows(engine)}
        assert len(spread) > 90, "jitter spreads the load"
        with serving(selections) as url:
            back = job_settings(url)
            with working(back):
                tick_until(make_retry_job(back), clock, timedelta(minutes=40))
    assert {r.status for r in rows(engine)} == {"Done"}
    detached = query(engine, "SELECT count(*) FROM selections.snapshot WHERE status = 'Detached'")
    assert detached[0].count == 100


@pytest.mark.req("J1", "J23", "J28", "G8")
def test_a_day_of_ticks_attempts_each_entry_once_and_leaves_nothing_pending(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    with serving(create_app(job_settings(contexts=("selections",)))) as url, wall_clock_at(START) as clock:
        settings = job_settings(url)
        job = make_retry_job(settings)
        with working(settings):
            for _ in range(24):
                stage(engine, active_snapshots(engine, 2), due=clock.now + timedelta(seconds=5))
                tick_until(job, clock, timedelta(hours=1))
    found = rows(engine)
    assert len(found) == 48
    assert {(r.status, r.attempts) for r in found} == {("Done", 1)}
    lag = max(r.updated_at - r.created_at for r in found)
    assert lag <= 2 * settings.retry.polling_interval, "the SLO's bound (J28)"


@pytest.mark.req("J1", "C3", "C6")
def test_the_scheduler_ticks_at_once_and_then_every_polling_interval(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    job = make_retry_job(job_settings())

    def runs() -> int:
        return int(query(engine, "SELECT count(*) FROM news.snapshot_detach_run WHERE ended_at IS NOT NULL")[0].count)

    with wall_clock_at(START) as clock:
        stopping = threading.Event()
        scheduler = make_scheduler(job, stopping, Pulse(timedelta(minutes=1)))
        scheduler.start()
        try:
            eventually(lambda: runs() == 1)
            clock.forward(timedelta(minutes=4, seconds=59))
            scheduler.wakeup()
            clock.forward(timedelta(seconds=1))
            scheduler.wakeup()
            eventually(lambda: runs() == 2)
            clock.forward(timedelta(minutes=17))  # three ticks missed: caught up by one run
            scheduler.wakeup()
            eventually(lambda: runs() == 3)
        finally:
            stopping.set()
            scheduler.shutdown(wait=True)
    assert runs() == 3
