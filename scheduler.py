"""The scheduler process: settings, APScheduler, one call a tick; no logic (C3). Started as `python scheduler.py`."""

import os
import signal
import socket
import sys
import threading
from datetime import UTC, datetime

import backoff
from apscheduler.schedulers.background import BackgroundScheduler
from sqlalchemy.exc import OperationalError

from actors.alert import announce
from actors.detach import hand_over
from db.engine import make_engine
from db.runner_lock import PoolerError, refuse_transaction_pooler
from pin import retry_job
from pin.delivery import policy_of
from pin.retry_job import RetryJob
from pin.settings import Settings, load_settings
from pin.settings_faults import EXIT_BAD_SETTINGS, SettingsError
from pin.telemetry.logs import configure_logging, get_logger
from pin.telemetry.traces import configure_tracing

log = get_logger(__name__)

STARTUP_PATIENCE = 60
"""Seconds that a starting scheduler waits for its database."""


def make_job(settings: Settings) -> RetryJob:
    """The job as these settings describe it; connects to nothing yet."""
    return RetryJob(
        lock_url=settings.database_url,
        engine=make_engine(settings.database_url, pool_size=2, application_name="pin-scheduler"),
        options=settings.retry,
        queue=settings.queue,
        policy=policy_of(settings.retry),
        hand_over=hand_over,
        announce=announce,
        runner=f"{socket.gethostname()}:{os.getpid()}",
    )


def make_scheduler(job: RetryJob, stopping: threading.Event) -> BackgroundScheduler:
    """A scheduler that ticks at once, then every PollingInterval; one run at a time, missed ticks caught up by one."""
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.add_job(
        retry_job.run,
        "interval",
        args=(job, stopping),
        seconds=job.options.polling_interval.total_seconds(),
        next_run_time=datetime.now(tz=UTC),
        coalesce=True,
        max_instances=1,
        misfire_grace_time=None,
        id="snapshot-detach-retry",
    )
    return scheduler


def serve(settings: Settings, stopping: threading.Event) -> None:
    """Tick until `stopping` is set. Raises PoolerError behind a transaction-mode pooler (A12)."""

    @backoff.on_exception(backoff.expo, OperationalError, max_time=STARTUP_PATIENCE, max_value=5, logger=None)
    def reach_database() -> None:
        if not stopping.is_set():
            refuse_transaction_pooler(settings.database_url)

    reach_database()
    job = make_job(settings)
    scheduler = make_scheduler(job, stopping)
    scheduler.start()
    log.info("scheduler started", runner=job.runner, pollingInterval=str(job.options.polling_interval))
    stopping.wait()
    scheduler.shutdown(wait=True)
    job.engine.dispose()
    log.info("scheduler stopped", runner=job.runner)


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
    except (PoolerError, OperationalError) as error:
        log.error("scheduler does not start", error=type(error).__name__, detail=str(error).splitlines()[0])  # noqa: TRY400
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
