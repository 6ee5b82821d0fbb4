"""The scheduler process: settings, APScheduler, one call a tick; no logic (C3). Started as `python scheduler.py`."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import backoff
from apscheduler.events import EVENT_JOB_SUBMITTED, JobSubmissionEvent
from apscheduler.schedulers.background import BackgroundScheduler
from sqlalchemy.exc import OperationalError

from actors.alert import announce
from actors.detach import hand_over
from db.connect import make_engine
from db.contract import UnfitDatabaseError, Work, refuse_unfit_at
from db.migrate import not_ready
from db.outbox.runs import RunResult
from db.runner.lock import PoolerError, refuse_transaction_pooler
from db.views.gauges import StateCollector
from pin.clock import utc_now
from pin.config.faults import EXIT_BAD_SETTINGS, SettingsError
from pin.config.loading import load_settings
from pin.config.settings import Settings
from pin.job.delivery import policy_of
from pin.job.pruning import ages_of
from pin.job.tick import RetryJob, run
from pin.telemetry import metrics
from pin.telemetry.logs import configure_logging, get_logger
from pin.telemetry.metrics import exposition
from pin.telemetry.pulse import Pulse
from pin.telemetry.serving import Probes, TelemetryServer
from pin.telemetry.traces import close_tracing, configure_tracing

log = get_logger(__name__)

TICKS = "the tick"
JOB_ID = "snapshot-detach-retry"
CLOCK_CHECK = 30
"""Seconds between two looks for a clock that was set back."""
STARTUP_PATIENCE = 60
"""Seconds that a starting scheduler waits for its database."""


def make_job(settings: Settings) -> RetryJob:
    """The job as these settings describe it; connects to nothing yet."""
    return RetryJob(
        lock_url=settings.database_url,
        engine=make_engine(settings.database_url, pool_size=2, application_name="pin-scheduler"),
        options=settings.retry,
        queue=settings.queue.model_copy(update={"max_batches_in_flight": settings.batches_in_flight}),
        policy=policy_of(settings.retry),
        hand_over=hand_over,
        announce=announce,
        runner=f"{socket.gethostname()}:{os.getpid()}",
        ages=ages_of(settings.retention),
    )


def make_pulse(settings: Settings) -> Pulse:
    """Beats at each tick that ends without a fault of its own; missed, when two in a row have not come to that."""
    return Pulse(2 * settings.retry.polling_interval + settings.retry.max_run_duration)


def tick(job: RetryJob, stopping: threading.Event, pulse: Pulse) -> None:
    """One run, and a beat for it: also a skipped or a held-back one shows that the loop turns."""
    if run(job, stopping).result not in {RunResult.FAILED, RunResult.LOCK_LOST}:
        pulse.beat(TICKS)


def make_scheduler(job: RetryJob, stopping: threading.Event, pulse: Pulse) -> BackgroundScheduler:
    """A scheduler that ticks at once, then every PollingInterval; one run at a time, missed ticks caught up by one."""
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.add_job(
        tick,
        "interval",
        args=(job, stopping, pulse),
        seconds=job.options.polling_interval.total_seconds(),
        next_run_time=datetime.now(tz=UTC),
        coalesce=True,
        max_instances=1,
        misfire_grace_time=None,
        id=JOB_ID,
    )
    scheduler.add_listener(missed_ticks(job.options.polling_interval), EVENT_JOB_SUBMITTED)
    return scheduler


def missed_ticks(interval: timedelta) -> Callable[[JobSubmissionEvent], None]:
    """Counts the ticks that one run has caught up, so that none is skipped in silence (A18)."""
    before: list[datetime] = []

    def submitted(event: JobSubmissionEvent) -> None:
        moment = event.scheduled_run_times[-1]
        missed = round((moment - before[0]) / interval) - 1 if before else 0
        if missed > 0:
            metrics.TICKS_MISSED.inc(missed)
            log.warning("ticks missed", ticks=missed)
        before[:] = [moment]

    return submitted


def follow_clock(scheduler: BackgroundScheduler, interval: timedelta) -> None:
    """Tick now if the clock was set back: the next tick's moment would be further away than an interval (A18)."""
    now, job = utc_now(), scheduler.get_job(JOB_ID)
    if job is not None and job.next_run_time - now > interval + timedelta(seconds=1):
        log.warning("clock set back", seconds=int((job.next_run_time - now - interval).total_seconds()))
        job.modify(next_run_time=now)


def serve(settings: Settings, stopping: threading.Event) -> None:
    """Tick until `stopping` is set. Raises PoolerError behind a transaction-mode pooler (A12)."""

    @backoff.on_exception(backoff.expo, OperationalError, max_time=STARTUP_PATIENCE, max_value=5, logger=None)
    def reach_database() -> None:
        if not stopping.is_set():
            refuse_transaction_pooler(settings.database_url)
            refuse_unfit_at(settings.database_url)

    pulse = make_pulse(settings)
    pulse.expect(TICKS)
    with watched(settings, stopping, pulse):
        reach_database()
        job = make_job(settings)
        scheduler = make_scheduler(job, stopping, pulse)
        scheduler.start()
        for thread in threading.enumerate():
            if thread.name == "APScheduler":
                pulse.watch(thread)
        log.info("scheduler started", runner=job.runner, pollingInterval=str(job.options.polling_interval))
        while not stopping.wait(CLOCK_CHECK):
            follow_clock(scheduler, job.options.polling_interval)
        scheduler.shutdown(wait=True)
        job.engine.dispose()
    log.info("scheduler stopped", runner=job.runner)


@contextlib.contextmanager
def watched(settings: Settings, stopping: threading.Event, pulse: Pulse) -> Iterator[None]:
    """Serve metrics and health on `metrics.scheduler_port`, where one is configured.

    A standby is healthy: it is alive, and ready once the database is. Raises OSError when the port cannot be had.
    """
    if settings.metrics.scheduler_port is None:
        yield
        return
    # Connections of its own, so that neither a scrape nor a run waits for the other's.
    engine = make_engine(settings.database_url, pool_size=2, application_name="pin-scheduler-health")
    collectors = (StateCollector(engine, utc_now, settings.queue.lease),)
    probes = Probes(
        live=lambda: None if stopping.is_set() else pulse.fault(),
        ready=lambda: "draining" if stopping.is_set() else not_ready(engine, (Work.NEWS, Work.QUEUE)),
        exposition=lambda: exposition(collectors),
    )
    with TelemetryServer(settings.metrics.host, settings.metrics.scheduler_port, probes) as server:
        log.info("telemetry served", host=settings.metrics.host, port=server.port)
        yield
    engine.dispose()


def main() -> int:
    """Run the process; answers its exit code."""
    stopping = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    try:
        settings = load_settings()
    except SettingsError as error:
        sys.stderr.write(f"the scheduler does not start, its settings are wrong:\n{error}\n")
        return EXIT_BAD_SETTINGS
    configure_logging(log_format=settings.log.format, level=settings.log.level, process="scheduler")
    configure_tracing("pin-scheduler")
    try:
        serve(settings, stopping)
    except (PoolerError, UnfitDatabaseError, OperationalError, OSError) as error:
        log.error("scheduler does not start", error=type(error).__name__, detail=str(error).splitlines()[0])  # noqa: TRY400
        return 1
    finally:
        close_tracing()
    return 0


if __name__ == "__main__":
    sys.exit(main())
