"""One worker process: its settings, connections and limits, made after the fork and before the first message (A23)."""

import errno
import multiprocessing
import os
import socket
import sys
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import dramatiq
from dramatiq.middleware import Middleware
from sqlalchemy import Engine

from actors.broker import CONSUMER_PATIENCE, DetachBroker
from actors.tellers import Tellers
from db.connect import make_engine
from db.contract import Work
from db.migrate import not_ready
from pin.access.machine_tokens import MachineTokens
from pin.clock import utc_now
from pin.config.faults import EXIT_BAD_SETTINGS, SettingsError
from pin.config.loading import load_settings
from pin.config.settings import Settings
from pin.job.delivery import Caution, policy_of
from pin.job.telling import Terms
from pin.lifeline import tie_to_parent
from pin.outgoing.alert_sinks import sinks_of
from pin.outgoing.selections import SelectionsClient
from pin.rules.outbox import Policy
from pin.telemetry.logs import configure_logging, get_logger
from pin.telemetry.metrics import exposition
from pin.telemetry.multiprocess import FOLDER_VARIABLE, serves_for_all
from pin.telemetry.pulse import Pulse
from pin.telemetry.serving import Probes, TelemetryServer
from pin.telemetry.traces import close_tracing, configure_tracing

log = get_logger(__name__)

_WORKS = (Work.NEWS, Work.QUEUE)


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What the actors of one process work with."""

    settings: Settings
    engine: Engine
    client: SelectionsClient
    policy: Policy
    worker: str
    caution: Caution
    tellers: Tellers

    @property
    def terms(self) -> Terms:
        """What every telling of an alert has in common."""
        return Terms(self.engine, self.policy, utc_now)

    @property
    def calls_limit(self) -> timedelta:
        """How long a batch may make calls: what they may take, and half of what is left before the time limit.

        The other half is for recording, so that a slow batch is recorded and not cut off.
        """
        retry, worker = self.settings.retry, self.settings.worker
        calls = -(-retry.batch_size // worker.concurrency) * retry.detach_call_timeout
        return (calls + worker.time_limit) / 2

    @property
    def patience(self) -> timedelta:
        """How long a database that is away is waited for: before the calls, and again after them.

        Less than the half of the time limit that is for recording, so that the wait itself is not cut off.
        """
        return (self.settings.worker.time_limit - self.calls_limit) * 0.8


_context: list[WorkerContext] = []


def context() -> WorkerContext:
    """The context of this process. Raises RuntimeError in a process that is no worker."""
    if not _context:
        raise RuntimeError("no worker runs in this process")
    return _context[0]


def open_context(settings: Settings) -> WorkerContext:
    """Make the process's engine and client; both connect on first use."""
    engine = make_engine(settings.database_url, pool_size=16, application_name="pin-worker")
    policy = policy_of(settings.retry)
    patience = settings.worker.time_limit.total_seconds()
    opened = WorkerContext(
        settings=settings,
        engine=engine,
        client=SelectionsClient(
            settings.selections_url,
            MachineTokens.from_settings(settings.auth),
            concurrency=settings.worker.concurrency,
        ),
        policy=policy,
        worker=f"{socket.gethostname()}:{os.getpid()}",
        caution=Caution(),
        tellers=Tellers(sinks_of(settings.alerts), Terms(engine, policy, utc_now), patience),
    )
    _context[:] = [opened]
    return opened


def close_context() -> None:
    """Close what `open_context` made."""
    while _context:
        closing = _context.pop()
        closing.client.close()
        closing.tellers.close()
        closing.engine.dispose()


class WorkerProcess(Middleware):
    """Configures the process at boot; one that is configured wrongly says so and ends (J7)."""

    def __init__(self) -> None:
        self._server: TelemetryServer | None = None

    def after_process_boot(self, broker: dramatiq.Broker) -> None:
        """Read the settings and open what the actors need.

        Raises SystemExit for whatever goes wrong, 78 for wrong settings: dramatiq logs other errors of a middleware and
        goes on, with a worker that can do nothing.
        """
        if (command := multiprocessing.parent_process()) is not None and command.pid is not None:
            tie_to_parent(command.pid)  # a killed `dramatiq` command leaves no worker behind
        try:
            self._open(broker)
        except SettingsError as error:
            # Not through dramatiq's pipe of logs, which a command that ends at once may close unread.
            print(f"the worker does not start, its settings are wrong:\n{error}", file=sys.__stderr__, flush=True)
            raise SystemExit(EXIT_BAD_SETTINGS) from error
        except Exception as error:
            traceback.print_exc(file=sys.__stderr__)
            raise SystemExit(1) from error

    def _open(self, broker: dramatiq.Broker) -> None:
        if not isinstance(broker, DetachBroker):
            raise TypeError("the actors belong to the project's own broker")
        settings = load_settings()
        configure_logging(log_format=settings.log.format, level=settings.log.level, process="worker")
        configure_tracing("pin-worker")
        opened = open_context(settings)
        folder = Path(os.environ[FOLDER_VARIABLE]) if os.environ.get(FOLDER_VARIABLE) else None
        broker.configure(
            url=settings.database_url,
            lease=settings.queue.lease,
            poll=settings.queue.poll,
            slots=None,
            pulse=Pulse(CONSUMER_PATIENCE, folder, os.getpid()),
        )
        limit: dict[str, Any] = {"time_limit": int(settings.worker.time_limit.total_seconds() * 1000)}
        for actor in broker.actors.values():
            actor.options.update(limit)
        self._serve_telemetry(broker, opened, folder)
        log.info("worker started", worker=opened.worker)

    def _serve_telemetry(self, broker: DetachBroker, opened: WorkerContext, folder: Path | None) -> None:
        """Serve metrics and health on `metrics.worker_port`, where one is configured.

        With a folder in common one process serves for all of the command's (`pin worker` gives one); without one each
        counts for itself, and the first has the port. Raises OSError when the port cannot be had.
        """
        options = opened.settings.metrics
        if options.worker_port is None or (folder is not None and not serves_for_all(folder)):
            return
        probes = Probes(
            live=lambda: None if broker.draining.is_set() else broker.pulse.fault(),
            ready=lambda: "draining" if broker.draining.is_set() else not_ready(opened.engine, _WORKS),
            exposition=exposition,
        )
        try:
            self._server = TelemetryServer(options.host, options.worker_port, probes).start()
        except OSError as error:
            if folder is not None or error.errno != errno.EADDRINUSE:
                raise
            log.warning("telemetry not served", port=options.worker_port)
        else:
            log.info("telemetry served", host=options.host, port=self._server.port)

    def after_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """Close it again."""
        del broker, worker
        if self._server is not None:
            self._server.stop()
        close_context()
        close_tracing()
