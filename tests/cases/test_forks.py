"""No handle crosses a fork (A23)."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine

from pin.clock import new_id
from tests.acceptance.processes import ROOT, environment
from tests.cases.fleet import Fleet
from tests.fake_selections import FakeSelections
from tests.job.scene import query, rows, stage
from tests.waiting import eventually

TICKS = 100
OPENS_NOTHING = """
import sys
opened = []
sys.addaudithook(lambda event, _: event in {"socket.connect", "socket.getaddrinfo"} and opened.append(event))
import actors, scheduler, web.app, threading
print(opened, [thread.name for thread in threading.enumerate()])
"""


def sockets(pid: int) -> set[str]:
    """The inodes of the process's sockets."""
    links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    return {link for link in links if link.startswith("socket:")}


def to_server(port: int) -> set[str]:
    """The inodes of the connections that stand open to this port."""
    lines = [text.split() for text in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {f"socket:[{parts[9]}]" for parts in lines if parts[2].endswith(f":{port:04X}") and parts[3] == "01"}


@pytest.mark.case("A23")
@pytest.mark.req("C4", "C6")
def test_importing_what_processes_run_opens_nothing() -> None:
    said = subprocess.run(
        [sys.executable, "-c", OPENS_NOTHING], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
    )
    assert said.stdout == "[] ['MainThread']\n", said.stderr


@pytest.mark.case("A23")
@pytest.mark.req("C4", "C6", "J23")
def test_two_worker_processes_share_no_connection_over_a_hundred_ticks(
    database: str, engine: Engine, make_fleet: Callable[..., Fleet], selections: FakeSelections
) -> None:
    fleet = make_fleet(
        database, selections.url, PIN_RETRY__POLLING_INTERVAL="0.05s", PIN_RETRY__BATCH_SIZE="1", PIN_QUEUE__POLL="0.1s"
    )
    worker = fleet.worker(processes=2, threads=1)
    staged = stage(engine, [new_id() for _ in range(40)])
    scheduler = fleet.scheduler()

    ended = "SELECT count(*) AS n FROM news.snapshot_detach_run WHERE ended_at IS NOT NULL"
    eventually(lambda: {r.status for r in rows(engine, staged)} == {"Done"}, within=40)
    staged += stage(engine, [new_id() for _ in range(20)])
    eventually(lambda: query(engine, ended)[0].n >= TICKS, within=60)
    eventually(lambda: {(r.status, r.attempts) for r in rows(engine, staged)} == {("Done", 1)}, within=20)

    workers = {r.worker for r in query(engine, "SELECT DISTINCT worker FROM news.snapshot_detach_attempt")}
    pids = [int(name.rpartition(":")[2]) for name in workers]
    assert len(pids) == 2, "both have worked"
    open_now = to_server(int(re.findall(r":(\d+)/", database)[0]))
    first, second = (sockets(pid) & open_now for pid in pids)
    assert first
    assert second
    assert not first & second
    for process in (worker, scheduler):
        assert not re.search(r"Traceback|protocol|lost synchronization|another command", process.output())
