"""The queue under real worker processes: nothing twice, nothing lost, whatever happens to them."""

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from tests.broker.conftest import Enqueue, Query, StartWorker
from tests.broker.queue_actors import die, hold, nothing, record
from tests.broker.worker_process import ROOT
from tests.waiting import eventually

ADVISORY_LOCKS = "select count(*) from pg_locks where locktype = 'advisory'"
QUEUED = "select count(*) from dramatiq.queue"
RUN = "select count(*) from runs"


@pytest.mark.req("G6", "C3")
def test_four_worker_processes_run_each_of_3000_messages_once(
    start_worker: StartWorker, ask: Query, database: str
) -> None:
    workers = [start_worker(processes=2, threads=4), start_worker(processes=2, threads=4)]
    command = [sys.executable, "-m", "tests.broker.enqueuer", database]
    enqueuers = [subprocess.Popen([*command, str(first), str(first + 1500)], cwd=ROOT) for first in (0, 1500)]
    assert [enqueuer.wait(30) for enqueuer in enqueuers] == [0, 0]
    for worker in workers:
        worker.ready()
    locks: list[int] = []

    def all_run() -> bool:
        locks.extend(ask(ADVISORY_LOCKS))
        return ask(QUEUED) == [0]

    eventually(all_run, within=60)
    assert ask(RUN) == [3000]
    assert ask("select count(distinct n) from runs") == [3000]
    assert ask("select count(distinct pid) from runs") == [4]
    assert set(locks) == {0}, "a message is kept by its lease, not by a lock"


@pytest.mark.req("G6")
def test_a_killed_workers_message_is_run_by_another_when_its_lease_has_run_out(
    start_worker: StartWorker, ask: Query, enqueue: Enqueue, gate: Path
) -> None:
    lease = timedelta(seconds=2)
    victim = start_worker(lease=2, poll=0.3).ready()
    enqueue(hold.message(1, str(gate)))
    eventually(lambda: ask(RUN) == [1])
    [claimed_at] = ask("select mtime from dramatiq.queue")
    start_worker(lease=2, poll=0.3).ready()
    victim.kill()
    eventually(lambda: ask(RUN) == [2], within=10)
    second: datetime = ask("select max(at) from runs")[0]
    recovered = second - claimed_at
    assert lease <= recovered < lease + timedelta(seconds=5)
    gate.write_bytes(b"go on")
    eventually(lambda: ask(QUEUED) == [0])
    assert ask(RUN) == [2]


@pytest.mark.req("J6", "G6")
def test_a_worker_told_to_stop_hands_what_it_has_not_started_to_idle_workers(
    start_worker: StartWorker, ask: Query, enqueue: Enqueue, gate: Path
) -> None:
    # The poll is far away: only NOTIFY can tell the idle worker.
    stopping = start_worker(poll=60, lease=300, slots=8, threads=1).ready()
    enqueue(hold.message(0, str(gate)))
    eventually(lambda: ask(RUN) == [1])
    enqueue(*(record.message(n) for n in range(1, 8)))
    eventually(lambda: ask("select count(*) from dramatiq.queue where state = 'consumed'") == [8])
    start_worker(poll=60, lease=300).ready()
    stopping.terminate()
    eventually(lambda: ask(RUN) == [8], within=10)
    enqueue(record.message(8))
    eventually(lambda: ask(RUN) == [9])
    assert not stopping.ended(), "what was started is finished first"
    gate.write_bytes(b"go on")
    assert stopping.wait(10) == 0
    assert ask(QUEUED) == [0]
    assert ask("select count(distinct n) from runs") == [9]
    assert ask("select count(*) from runs where pid = any(%s)", stopping.pids()) == [1]


@pytest.mark.req("G6")
def test_terminated_connections_cost_seconds_and_no_second_run(
    start_worker: StartWorker, ask: Query, enqueue: Enqueue, gate: Path
) -> None:
    # Its lease runs out while the process works on: it must not take its own message again.
    worker = start_worker(lease=3, poll=0.3, threads=2).ready()
    enqueue(record.message(0))
    eventually(lambda: ask(QUEUED) == [0])
    enqueue(hold.message(1, str(gate)))
    eventually(lambda: ask(RUN) == [2])
    backends = "from pg_stat_activity where application_name = 'pin-worker-queue'"
    cut = ask(f"select pg_terminate_backend(pid) {backends}")
    assert cut == [True, True], "one listens and claims, one writes outcomes"
    enqueue(*(record.message(n) for n in range(2, 6)))
    eventually(lambda: ask(RUN) == [6], within=10)
    eventually(lambda: ask("select now() - mtime > interval '4 seconds' from dramatiq.queue") == [True], within=10)
    assert ask("select deliveries from dramatiq.queue") == [1]
    gate.write_bytes(b"go on")
    eventually(lambda: ask(QUEUED) == [0])
    assert ask(RUN) == [6]
    assert not worker.ended()


@pytest.mark.req("G6")
def test_50000_queued_messages_drain_without_being_held_in_memory(
    start_worker: StartWorker, ask: Query, enqueue: Enqueue
) -> None:
    idle = start_worker(threads=4, slots=64).ready()
    before = idle.peak_memory()
    for _ in range(5):
        enqueue(*(nothing.message() for _ in range(10_000)))
    # One that meets the backlog when it starts.
    late = start_worker(threads=4, slots=64).ready()
    eventually(lambda: ask(QUEUED) == [0], within=90, every=0.1)
    grown = max(idle.peak_memory(), late.peak_memory()) - before
    assert grown < 20, f"{grown} MB over the {before} MB of an idle worker"
    assert ask(ADVISORY_LOCKS) == [0]


@pytest.mark.req("G6")
def test_a_message_that_kills_its_worker_ends_after_the_third_delivery(
    start_worker: StartWorker, ask: Query, enqueue: Enqueue, observer: psycopg.Connection
) -> None:
    enqueue(die.message(1))
    enqueue(record.message(2))
    # Its supervisor starts it again each time; one slot, so the good message waits behind the bad one.
    for death in range(1, 4):
        worker = start_worker(lease=0.2, poll=0.1, slots=1, threads=1)
        worker.wait(15)
        assert ask("select count(*) from runs where n = 1") == [death]
        observer.execute("update dramatiq.queue set mtime = now() - interval '1 hour' where state = 'consumed'")
    last = start_worker(lease=0.2, poll=0.1, slots=1, threads=1).ready()
    eventually(lambda: ask("select count(*) from runs where n = 2") == [1])
    rows = "select array[state::text, deliveries::text] from dramatiq.queue"
    eventually(lambda: ask(rows) == [["rejected", "4"]])
    assert ask("select message_id::text from dramatiq.queue")[0] in last.output()
    assert ask("select count(*) from runs where n = 1") == [3]
