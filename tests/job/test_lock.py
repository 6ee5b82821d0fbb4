"""The runner's lock: one holder, a TTL that the server enforces, no life after the connection."""

import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from db.runner.lock import LOCK_NAME, LockLostError, lock_key, refuse_transaction_pooler, runner_lock
from tests.job.scene import change, query
from tests.waiting import eventually, line

TTL = timedelta(seconds=30)
HELD = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted"


@pytest.mark.req("J2", "C3")
def test_the_lock_has_one_holder_and_the_other_is_told_at_once(database: str, engine: Engine) -> None:
    with runner_lock(database, TTL) as first, runner_lock(database, TTL) as second:
        assert first is not None
        assert second is None
        assert [r.pid for r in query(engine, HELD)] == [first.backend_pid]
    assert query(engine, HELD) == []
    with runner_lock(database, TTL) as again:
        assert again is not None


@pytest.mark.case("A12")
@pytest.mark.req("J2")
def test_the_key_is_stable_in_every_process() -> None:
    assert LOCK_NAME == "Pin:lock:job:scheduled:news-snapshot-detach-retry"
    program = "from db.runner.lock import lock_key; print(*lock_key())"
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert seen == {" ".join(map(str, lock_key()))}


@pytest.mark.req("J3", "G5")
def test_a_holder_that_hangs_loses_the_lock_at_its_ttl_and_learns_it(database: str, engine: Engine) -> None:
    with runner_lock(database, timedelta(milliseconds=300)) as lock:
        assert lock is not None
        assert len(query(engine, HELD)) == 1
        eventually(lambda: query(engine, HELD) == [], within=10)  # the holder does nothing: the server ends it
        with runner_lock(database, TTL) as successor:
            assert successor is not None
        with pytest.raises(LockLostError), lock.transaction() as connection:
            connection.execute(text("SELECT 1"))
        with pytest.raises(LockLostError), lock.transaction():
            pass


@pytest.mark.req("J3", "G5")
def test_a_holder_that_hangs_inside_its_transaction_loses_the_lock_too(database: str, engine: Engine) -> None:
    with runner_lock(database, timedelta(milliseconds=300)) as lock:
        assert lock is not None
        with pytest.raises(LockLostError), lock.transaction() as connection:  # noqa: PT012
            connection.execute(text("SELECT 1"))
            eventually(lambda: query(engine, HELD) == [], within=10)
            connection.execute(text("SELECT 1"))


HOLDER = """
import sys, threading
from datetime import timedelta
from sqlalchemy import text
from db.runner.lock import LockLostError, runner_lock
with runner_lock(sys.argv[1], timedelta(milliseconds=500)) as lock:
    print("held", lock is not None, flush=True)
    sys.stdin.readline()
    try:
        with lock.transaction() as connection:
            connection.execute(text("SELECT 1"))
            print("still mine", flush=True)
    except LockLostError:
        print("lost", flush=True)
"""


@pytest.mark.case("A12")
@pytest.mark.req("J3", "G5")
def test_a_stopped_process_loses_the_lock_and_finds_it_gone_when_it_goes_on(database: str, engine: Engine) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            line(holder, "held True")
            holder.send_signal(signal.SIGSTOP)
            eventually(lambda: query(engine, HELD) == [], within=15)
            holder.send_signal(signal.SIGCONT)
            assert holder.stdin is not None
            holder.stdin.write("go\n")
            holder.stdin.flush()
            line(holder, "lost")
        finally:
            holder.kill()


@pytest.mark.case("A12")
@pytest.mark.req("J16", "G5")
def test_a_terminated_lock_connection_never_comes_back_by_itself(database: str, engine: Engine) -> None:
    with runner_lock(database, TTL) as lock:
        assert lock is not None
        change(engine, "SELECT pg_terminate_backend(:pid)", pid=lock.backend_pid)
        with pytest.raises(LockLostError), lock.transaction() as connection:
            connection.execute(text("SELECT 1"))
        with pytest.raises(LockLostError), lock.transaction():
            pass
        with pytest.raises(LockLostError):
            lock.wait(0.1)
    assert query(engine, HELD) == []


@pytest.mark.req("G5")
def test_a_direct_connection_passes_the_pooler_check(database: str, engine: Engine) -> None:
    refuse_transaction_pooler(database)
    eventually(lambda: query(engine, HELD) == [])
