"""What live and ready mean (J25, J32): loops that turn, a database at head, no draining; and their small server."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, text

from db.embedded.server import EmbeddedServer
from db.runner.lock import runner_lock
from pin.config.sections import MetricsOptions
from pin.config.settings import Settings
from pin.job.tick import RetryJob
from pin.stack.plan import StackOptions, specs
from pin.stack.ports import free_ports
from pin.telemetry.multiprocess import fresh_folder, serves_for_all
from pin.telemetry.pulse import Pulse
from pin.telemetry.serving import Probes, TelemetryServer
from scheduler import TICKS, make_pulse, tick, watched
from tests.acceptance.processes import PIN, ROOT, started
from tests.job.conftest import MakeJobSettings
from tests.serving import Keys, MakeSettings
from tests.telemetry.receivers import Receiver
from tests.waiting import eventually

MakeJob = Callable[[Settings], RetryJob]
INSTANT = timedelta(0)
LONG = timedelta(minutes=5)


def get(port: int, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=15)


@contextmanager
def watching(settings: Settings, stopping: threading.Event, pulse: Pulse) -> Iterator[int]:
    """The scheduler's own server; answers its port."""
    [port] = free_ports("127.0.0.1", 1)
    named = settings.model_copy(update={"metrics": MetricsOptions(scheduler_port=port)})
    with watched(named, stopping, pulse):
        yield port


@pytest.mark.req("J27", "G20")
def test_a_scheduler_lives_while_its_ticks_end_well(job_settings: MakeJobSettings, make_retry_job: MakeJob) -> None:
    settings = job_settings()
    stopping, pulse = threading.Event(), Pulse(INSTANT)
    with watching(settings, stopping, pulse) as port:
        pulse.expect(TICKS)
        missed = get(port, "/health/live")
        assert missed.status_code == 503
        assert missed.json()["detail"].startswith("the tick has not come round for")

        pulse._patience = 60.0
        pulse._beats[TICKS] = time.monotonic() - 61
        tick(
            make_retry_job(settings.model_copy(update={"database_url": "postgresql://127.0.0.1:9/x"})), stopping, pulse
        )
        assert get(port, "/health/live").status_code == 503, "a tick that failed is no beat"
        tick(make_retry_job(settings), stopping, pulse)
        assert get(port, "/health/live").json() == {"status": "ok"}


@pytest.mark.req("J2", "J27")
def test_a_standby_is_healthy(job_settings: MakeJobSettings, make_retry_job: MakeJob, database: str) -> None:
    settings = job_settings()
    stopping, pulse = threading.Event(), Pulse(LONG)
    with watching(settings, stopping, pulse) as port, runner_lock(database, LONG):
        pulse._beats[TICKS] = time.monotonic() - 301
        tick(make_retry_job(settings), stopping, pulse)
        assert [get(port, f"/health/{probe}").status_code for probe in ("live", "ready")] == [200, 200]


@pytest.mark.req("J1", "J27")
def test_the_patience_is_two_ticks_and_a_run() -> None:
    assert make_pulse(Settings())._patience == timedelta(minutes=14).total_seconds()


@pytest.mark.req("J32", "J6")
def test_ready_needs_a_database_at_head_and_no_draining(
    job_settings: MakeJobSettings, engine: Engine, server: EmbeddedServer
) -> None:
    stopping, pulse = threading.Event(), Pulse(LONG)
    settings = job_settings("http://127.0.0.1:9")  # selections is away, which is nobody's unreadiness
    with watching(settings, stopping, pulse) as port:
        assert get(port, "/health/ready").status_code == 200
        with engine.begin() as connection:
            connection.execute(text("UPDATE schema_version SET version_num = '0001'"))
        assert "older than this code" in get(port, "/health/ready").json()["detail"]
        stopping.set()
        assert get(port, "/health/ready").json() == {"status": "fault", "detail": "draining"}
        assert get(port, "/health/live").status_code == 200, "who drains is not to be killed"
    away = settings.model_copy(update={"database_url": server.url("no_such_database")})
    with watching(away, threading.Event(), pulse) as port:
        assert get(port, "/health/ready").json()["detail"] == "the database does not answer"
        scrape = get(port, "/metrics")
        assert scrape.status_code == 200
        assert "news_snapshot_detach_failed_total" in scrape.text
        assert "news_snapshot_detach_pending" not in scrape.text, "absent, not stale"


@pytest.mark.req("J32")
def test_news_is_ready_without_selections(database: str, app_settings: MakeSettings, serve: Callable[..., str]) -> None:
    from web.app import create_app

    url = serve(create_app(app_settings(database, contexts=("news",), selections_url="http://127.0.0.1:9")))
    assert httpx.get(f"{url}/health/ready", trust_env=False).status_code == 200


@pytest.mark.req("J27")
def test_a_dead_thread_and_another_processes_silence_are_faults(tmp_path: Path) -> None:
    pulse = Pulse(LONG)
    thread = threading.Thread(target=int, name="APScheduler")
    thread.start()
    thread.join()
    pulse.watch(thread)
    assert pulse.fault() == "the thread APScheduler has ended"

    mine, other = Pulse(LONG, tmp_path, 1), Pulse(LONG, tmp_path, 2)
    mine.beat("snapshot-detach")
    other.beat("snapshot-detach")
    assert mine.fault() is None
    (tmp_path / "pulse-2-snapshot-detach").write_text(f"{time.monotonic() - 301}\n")
    assert (mine.fault() or "").startswith("snapshot-detach of process 2 has not come round for 30")
    assert other.fault() is None, "its own beats it knows itself"


@pytest.mark.req("C6")
def test_a_folder_is_private_and_those_of_the_dead_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    stale, alive, foreign = (tmp_path / f"pin-metrics-{name}" for name in (f"{gone.pid}-x", "1-y", "odd"))
    for folder in (stale, alive, foreign):
        folder.mkdir()
    first = fresh_folder(tmp_path)
    assert first.stat().st_mode & 0o777 == 0o700
    assert [folder.exists() for folder in (stale, alive, foreign)] == [False, True, True]
    assert fresh_folder(tmp_path) != first
    assert not first.exists(), "a process that starts again under its own id wipes what it left"


@pytest.mark.req("C6")
def test_one_process_serves_for_all(tmp_path: Path) -> None:
    assert serves_for_all(tmp_path)
    code = "import sys; from pathlib import Path; from pin.telemetry.multiprocess import serves_for_all as s;"
    code += f"print(s(Path({str(tmp_path)!r})))"
    asked = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "False"


@pytest.mark.req("J24")
def test_the_server_answers_beside_a_silent_client_and_names_a_fault_by_its_class() -> None:
    def broken() -> str | None:
        raise RuntimeError("secret text")

    with (
        TelemetryServer("127.0.0.1", 0, Probes(broken, lambda: None, lambda: b"x 1\n")) as server,
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        answer = get(server.port, "/health/live")
        assert (answer.status_code, json.loads(answer.text)) == (503, {"status": "fault", "detail": "RuntimeError"})
        assert get(server.port, "/metrics?name=x").text == "x 1\n"
        with pytest.raises(OSError, match="in use"):
            TelemetryServer("127.0.0.1", server.port, Probes(broken, broken, bytes)).start()


@pytest.mark.req("C6", "J32")
@pytest.mark.timeout(120)
def test_workers_started_by_hand_count_for_themselves_and_a_taken_port_ends_the_command(
    keys: Keys, tmp_path: Path
) -> None:
    [port] = free_ports("127.0.0.1", 1)
    settings = {
        "PIN_DATABASE_URL": "postgresql://127.0.0.1:9/away",
        "PIN_AUTH__M2M_PRIVATE_KEY": str(keys.private),
        "PIN_METRICS__WORKER_PORT": str(port),
        "PIN_WORKER__SHUTDOWN_TIMEOUT": "1s",
        "TMPDIR": str(tmp_path),
    }
    by_hand = [sys.executable, "-m", "dramatiq", "actors", "--path", str(ROOT), "-p", "2", "-t", "1"]
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    with started([*by_hand, "--worker-shutdown-timeout", "1000"], settings, log=first) as process:
        eventually(lambda: first.read_text().count("worker started") == 2, within=60, every=0.1)
        said = first.read_text()
        assert (said.count('"telemetry served"'), said.count('"telemetry not served"')) == (1, 1)
        assert get(port, "/health/live").status_code == 200, "its loops turn, though the database is away"
        assert get(port, "/health/ready").json()["detail"] == "the database does not answer"
        assert "news_snapshot_detach_succeeded_total 0.0" in get(port, "/metrics").text
        with started([*PIN, "worker"], settings, log=second) as other:
            assert other.wait(60) == 1, second.read_text()
        assert "Address already in use" in second.read_text()
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.req("C6")
def test_of_several_workers_in_one_stack_the_first_has_the_port(tmp_path: Path) -> None:
    configured = {"PIN_METRICS__WORKER_PORT": "9102"}
    for environment, ports in ((configured, ["9102", "0"]), ({}, [None, None])):
        options = StackOptions(tmp_path, environment, news_port=1, selections_port=2, workers=2)
        workers = [spec for spec in specs(options, "postgresql://x", None) if spec.name.startswith("worker")]
        assert [spec.environment.get("PIN_METRICS__WORKER_PORT") for spec in workers] == ports


@pytest.mark.req("J26", "J6")
@pytest.mark.timeout(90)
def test_a_collector_that_does_not_answer_does_not_delay_a_stop(database: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Receiver() as collector:
        collector.hold.clear()
        settings = {
            "PIN_DATABASE_URL": database,
            "PIN_RETRY__POLLING_INTERVAL": "500ms",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "PYTHONUNBUFFERED": "1",
        }
        with started([sys.executable, str(ROOT / "scheduler.py")], settings, log=log) as process:
            eventually(lambda: collector.posted, within=40)
            ticks = log.read_text().count("job completed")
            eventually(lambda: log.read_text().count("job completed") > ticks + 1, within=20)  # costs no tick its time
            began = time.monotonic()
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(20) == 0
            assert time.monotonic() - began < 6
