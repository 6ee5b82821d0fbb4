"""Web, scheduler and a worker of two processes, as an operator starts them, with everything they say and count."""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

import httpx
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine

from pin.stack.ports import free_ports
from tests.acceptance.processes import PIN, started
from tests.serving import Keys
from tests.telemetry.receivers import OtlpReceiver
from tests.waiting import eventually


@dataclass
class Fleet:
    """Three commands at work. `urls` and `processes` by role; `logs` is the folder of their stderr."""

    engine: Engine
    keys: Keys
    urls: Mapping[str, str]
    spans: OtlpReceiver
    logs: Path
    temporary: Path
    processes: dict[str, "Popen[str]"] = field(default_factory=dict)

    def get(self, role: str, path: str) -> httpx.Response:
        """What the process answers."""
        return httpx.get(f"{self.urls[role]}{path}", trust_env=False, timeout=15)

    def scrape(self, role: str) -> str:
        """The text of its `/metrics`."""
        answer = self.get(role, "/metrics")
        assert answer.status_code == 200
        return answer.text

    def samples(self, role: str) -> dict[str, float]:
        """Its samples, each named as in the text: `name{label="value"}`."""
        found = {}
        for family in text_string_to_metric_families(self.scrape(role)):
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found

    def said(self, role: str) -> str:
        """What it has written so far."""
        return (self.logs / f"{role}.log").read_text(encoding="utf-8")


def commands() -> dict[str, list[str]]:
    return {role: [*PIN, role] for role in ("web", "worker", "scheduler")}


@contextmanager
def fleet_on(database: str, engine: Engine, keys: Keys, **settings: str) -> Iterator[Fleet]:
    """The fleet, each process ready, spans sent to a receiver at once; ended by SIGTERM."""
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="pin-fleet-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        temporary = folder / "tmp"
        temporary.mkdir()
        spans = stack.enter_context(OtlpReceiver())
        ports = dict(zip(("web", "worker", "scheduler"), free_ports("127.0.0.1", 3), strict=True))
        urls = {role: f"http://127.0.0.1:{port}" for role, port in ports.items()}
        environment = {
            "PIN_DATABASE_URL": database,
            "PIN_SELECTIONS_URL": urls["web"],
            "PIN_CONTEXTS": "selections,news",
            "PIN_WEB__PORT": str(ports["web"]),
            "PIN_METRICS__WORKER_PORT": str(ports["worker"]),
            "PIN_METRICS__SCHEDULER_PORT": str(ports["scheduler"]),
            "PIN_WORKER__PROCESSES": "2",
            "PIN_WORKER__THREADS": "1",
            "PIN_RETRY__POLLING_INTERVAL": "1s",
            "PIN_RETRY__BATCH_SIZE": "2",
            "PIN_AUTH__PUBLIC_KEYS": str(keys.public),
            "PIN_AUTH__M2M_PRIVATE_KEY": str(keys.private),
            "OTEL_EXPORTER_OTLP_ENDPOINT": spans.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "TMPDIR": str(temporary),
            **settings,
        }
        fleet = Fleet(engine, keys, urls, spans, folder, temporary)
        for role, command in commands().items():
            log = folder / f"{role}.log"
            fleet.processes[role] = stack.enter_context(started(command, environment, log=log, cwd=folder))
        for role in fleet.processes:
            eventually(lambda role=role: _is_ready(fleet, role), within=60, every=0.1)  # type: ignore[misc]
        eventually(lambda: len(re.findall("worker started", fleet.said("worker"))) == 2, within=60, every=0.1)
        yield fleet
        for process in fleet.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in fleet.processes.values():
            process.wait(30)


def _is_ready(fleet: Fleet, role: str) -> bool:
    assert fleet.processes[role].poll() is None, fleet.said(role)
    with contextlib.suppress(httpx.HTTPError, OSError):
        return fleet.get(role, "/health/ready").status_code == 200
    return False
