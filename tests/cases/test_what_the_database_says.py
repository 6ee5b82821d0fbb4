"""What an error of the database means is said once, and effects follow what the rows say (A46, A47)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any

import psycopg
import pytest
from prometheus_client import REGISTRY
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from db.errors import Meaning, describe, is_passing, is_victim, meaning_of, transact
from db.outbox.runs import RunResult
from pin.clock import new_id, utc_now
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from pin.operations import requeue
from tests.job.conftest import MakeJobSettings
from tests.job.scene import active_snapshots, change, history, query, rows, stage, working

MakeJob = Callable[[Settings], RetryJob]

# What PostgreSQL says to each statement, and what it means here.
SAID = {
    "SELECT pg_terminate_backend(pg_backend_pid())": Meaning.AWAY,
    "SET LOCAL statement_timeout = 1; SELECT pg_sleep(5)": Meaning.BUSY,
    "DO $$BEGIN RAISE SQLSTATE '40001'; END$$": Meaning.BUSY,
    "DO $$BEGIN RAISE SQLSTATE '40P01'; END$$": Meaning.BUSY,
    "DO $$BEGIN RAISE SQLSTATE '55P03'; END$$": Meaning.BUSY,
    "DO $$BEGIN RAISE SQLSTATE '53300'; END$$": Meaning.AWAY,
    "SET TRANSACTION READ ONLY; CREATE TABLE t ()": Meaning.REFUSED,
    "DO $$BEGIN RAISE SQLSTATE '42501'; END$$": Meaning.REFUSED,
    "SELECT FROM news.no_such_table": Meaning.NOT_MIGRATED,
    "SELECT no_such_column FROM news.post": Meaning.NOT_MIGRATED,
    "SELECT 'x'::int": Meaning.BAD_DATA,
    "SELECT 1/0": Meaning.BAD_DATA,
    "INSERT INTO news.snapshot_detach_pause (id, actor, reason, since) VALUES (2, '', '', now())": Meaning.BAD_DATA,
    "SELECT 1 +": Meaning.FAULT,
}


@pytest.mark.case("A46")
@pytest.mark.req("G30")
@pytest.mark.parametrize("statement", SAID)
def test_each_error_has_one_meaning_by_either_way_to_meet_it(engine: Engine, database: str, statement: str) -> None:
    with pytest.raises(DBAPIError) as met, engine.begin() as connection:
        connection.exec_driver_sql(statement)
    assert meaning_of(met.value) is SAID[statement]
    with pytest.raises(psycopg.Error) as bare, psycopg.connect(database) as driver:
        driver.execute(statement.encode())
    assert meaning_of(bare.value) is SAID[statement]
    assert "\n" not in describe(met.value)


@pytest.mark.case("A46")
@pytest.mark.req("G30")
def test_what_no_server_said_has_a_meaning_as_well() -> None:
    assert meaning_of(PoolTimeoutError()) is Meaning.BUSY
    assert meaning_of(OperationalError("x", None, psycopg.OperationalError("refused"))) is Meaning.AWAY
    assert meaning_of(psycopg.DataError("a NUL")) is Meaning.BAD_DATA
    assert meaning_of(ValueError()) is None
    assert (is_passing(PoolTimeoutError()), is_passing(ValueError()), is_victim(ValueError())) == (True, False, False)


@pytest.mark.case("A46")
@pytest.mark.req("G21", "G30")
def test_a_victim_of_others_is_tried_again_whole_and_not_for_ever(engine: Engine) -> None:
    tried: list[int] = []

    def work(connection: Connection) -> int:
        tried.append(len(tried))
        connection.execute(
            text("INSERT INTO news.snapshot_detach_pause (actor, reason, since) VALUES ('a', 'r', now())")
        )
        if len(tried) < 3:
            connection.exec_driver_sql("DO $$BEGIN RAISE SQLSTATE '40P01'; END$$")
        return len(tried)

    assert transact(engine, work) == 3
    assert len(query(engine, "SELECT FROM news.snapshot_detach_pause")) == 1
    change(engine, "DELETE FROM news.snapshot_detach_pause")
    with pytest.raises(OperationalError):
        transact(engine, lambda connection: connection.exec_driver_sql("DO $$BEGIN RAISE SQLSTATE '40001'; END$$"))


@contextmanager
def fails_once(table: str, sqlstate: str, engine: Engine) -> Iterator[None]:
    """The next update of the table fails with this SQLSTATE; a sequence counts beyond the rollback."""
    change(engine, "CREATE SEQUENCE trips")
    change(
        engine,
        f"""CREATE FUNCTION trip() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
                IF nextval('trips') = 1 THEN RAISE SQLSTATE '{sqlstate}'; END IF; RETURN NULL;
            END$$""",
    )
    change(engine, f"CREATE TRIGGER trip AFTER UPDATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION trip()")
    yield
    assert query(engine, "SELECT last_value FROM trips")[0].last_value > 1, "it was tried again"


PAUSE = "INSERT INTO news.snapshot_detach_pause (actor, reason, since) VALUES ('a', 'r', now())"
OUTBOX = "news.snapshot_detach_outbox"


@pytest.mark.case("A46")
@pytest.mark.req("G21", "G30")
@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_claim_that_was_a_victim_is_made_again_in_the_same_run(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections_url: str, sqlstate: str
) -> None:
    stage(engine, active_snapshots(engine, 3))
    settings = job_settings(selections_url)
    with fails_once(OUTBOX, sqlstate, engine), working(settings):
        summary = retry_job.run(make_retry_job(settings), Event())
    assert (summary.result, summary.claimed, summary.outcomes.succeeded) == (RunResult.COMPLETED, 3, 3)
    assert {r.attempts for r in rows(engine)} == {1}


@pytest.mark.case("A46")
@pytest.mark.req("G30", "J13")
@pytest.mark.parametrize("sqlstate", ["55P03", "57014", "40001", "40P01", "25006"])
def test_outcomes_that_met_a_busy_database_are_recorded_all_the_same_and_cost_nothing(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections_url: str, sqlstate: str
) -> None:
    entries = stage(engine, active_snapshots(engine, 3))
    settings = job_settings(selections_url)
    job = make_retry_job(settings)
    with fails_once("news.snapshot_detach_run", sqlstate, engine), working(settings):
        summary = retry_job.run(job, Event())
    assert summary.outcomes.succeeded == 3
    assert {(r.status, r.attempts) for r in rows(engine, entries)} == {("Done", 1)}
    assert query(engine, "SELECT FROM dramatiq.queue WHERE state = 'rejected'") == []


@pytest.mark.case("A46")
@pytest.mark.req("G21", "G30")
def test_a_requeue_that_was_a_victim_is_done_all_the_same(engine: Engine) -> None:
    (entry,) = stage(engine, [new_id()])
    change(engine, f"UPDATE {OUTBOX} SET status = 'Quarantined'")
    with fails_once(OUTBOX, "40P01", engine):
        [answer] = requeue(engine, [entry], actor="ada", reason="fixed", now=utc_now())
    assert answer.result == "Requeued"
    assert len(query(engine, "SELECT FROM news.snapshot_detach_audit")) == 1


@contextmanager
def answer_lost(engine: Engine) -> Iterator[list[bool]]:
    """The first transaction that wrote an outcome commits, and its connection ends before the answer comes."""
    lost: list[bool] = []

    def commit(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        wrote = driver.execute("SELECT pg_current_xact_id_if_assigned() IS NOT NULL").fetchone()[0]
        if wrote and not lost:
            lost.append(True)
            driver.commit()
            driver.close()

    event.listen(engine, "commit", commit)
    try:
        yield lost
    finally:
        event.remove(engine, "commit", commit)


@pytest.mark.case("A47")
@pytest.mark.req("J25", "G16", "J13")
def test_an_outcome_whose_commit_had_no_answer_is_counted_and_logged_once_as_what_it_is(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections_url: str, capfd: Any
) -> None:
    from actors.process import context

    entries = stage(engine, active_snapshots(engine, 3))
    settings = job_settings(selections_url)
    before = _counters()
    with working(settings), answer_lost(context().engine) as lost:
        summary = retry_job.run(make_retry_job(settings), Event())
    assert lost == [True]
    assert {(r.status, r.attempts, r.version) for r in rows(engine, entries)} == {("Done", 1, 2)}
    assert {tuple(one.outcome for one in history(engine, each)) for each in entries} == {("Succeeded",)}
    assert (summary.outcomes.succeeded, summary.outcomes.retried) == (3, 0)
    assert [after - was for after, was in zip(_counters(), before, strict=True)] == [3, 0, 0]
    assert "late reply" not in capfd.readouterr().err


def _counters() -> Sequence[float]:
    names = ("succeeded", "failed", "retried")
    return [REGISTRY.get_sample_value(f"news_snapshot_detach_{name}_total") or 0.0 for name in names]
