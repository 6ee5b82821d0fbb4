"""Retention: what is over goes by its completion, in windows; everything else stays (docs/retention.md)."""

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from db.outbox import alerts as store
from db.outbox import retention
from db.outbox.retention import START, Kind
from pin.clock import new_id, utc_now
from pin.config.sections import RetentionOptions
from pin.config.settings import Settings
from pin.job import pruning
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from pin.rules.alerts import LOG, AlertState, QuarantinedEvent
from tests.job.conftest import MakeJobSettings
from tests.job.scene import active_snapshots, change, query, row, stage, working

pytestmark = pytest.mark.req("J29")

DAY = timedelta(days=1)
MakeJob = Callable[[Settings], RetryJob]


def id_of(moment: datetime) -> UUID:
    """An id as it is made at that moment."""
    return UUID(int=retention.first_id(moment).int | (new_id().int & ((1 << 80) - 1)))


def entry(engine: Engine, made: datetime, completed: datetime, status: str = "Done") -> UUID:
    """An entry with two attempts."""
    (given,) = stage(engine, [new_id()], now=made)
    id_ = id_of(made)
    change(
        engine,
        "UPDATE news.snapshot_detach_outbox SET id = :id, status = :status, updated_at = :at WHERE id = :given",
        id=id_,
        status=status,
        at=completed,
        given=given,
    )
    change(
        engine,
        """INSERT INTO news.snapshot_detach_attempt
               (entry_id, entry_version, attempt, outcome, duration_ms, worker, recorded_at)
           SELECT :id, n, n, 'Retried', 1, 'w', :at FROM generate_series(1, 2) n""",
        id=id_,
        at=completed,
    )
    return id_


def ids(engine: Engine, table: str) -> set[UUID]:
    return {one.id for one in query(engine, f"SELECT id FROM news.snapshot_detach_{table}")}


def history(engine: Engine) -> set[UUID]:
    return {one.entry_id for one in query(engine, "SELECT entry_id FROM news.snapshot_detach_attempt")}


def prune(engine: Engine, now: datetime, window: int = 1000, **ages: timedelta) -> dict[Kind, int]:
    named = {Kind(name): age for name, age in ages.items()}
    return pruning.stage(engine, named, lambda: now, seconds=60, window=window)


def test_done_entries_go_by_their_completion_with_their_history_and_no_other_does(engine: Engine) -> None:
    now = utc_now()
    old = {entry(engine, now - 40 * DAY, now - 31 * DAY) for _ in range(7)}
    kept = {
        entry(engine, now - 400 * DAY, now - 400 * DAY, "Quarantined"),
        entry(engine, now - 400 * DAY, now - 400 * DAY, "Pending"),
        entry(engine, now - 400 * DAY, now - DAY),
        entry(engine, now - DAY, now - DAY),
    }
    before = {one.id for one in query(engine, "SELECT id FROM selections.snapshot")}
    assert prune(engine, now, window=3, done=30 * DAY) == {Kind.DONE: 7}
    assert ids(engine, "outbox") == kept
    assert history(engine) == kept
    assert old & kept == set()
    assert {one.id for one in query(engine, "SELECT id FROM selections.snapshot")} == before
    assert prune(engine, now, done=30 * DAY) == {}
    assert prune(engine, now + 30 * DAY, done=30 * DAY) == {Kind.DONE: 2}, "a later lap meets what has come of age"


def test_each_kind_has_an_age_of_its_own_and_what_is_not_named_stays(engine: Engine) -> None:
    now = utc_now()
    entries = [entry(engine, now - 20 * DAY, now - 20 * DAY) for _ in range(3)]
    assert prune(engine, now, history=10 * DAY) == {Kind.HISTORY: 6}
    assert (ids(engine, "outbox"), history(engine)) == (set(entries), set())
    assert prune(engine, now, done=30 * DAY, runs=DAY, events=DAY, plans=DAY, audit=DAY, messages=DAY) == {}
    assert ids(engine, "outbox") == set(entries)
    assert pruning.ages_of(RetentionOptions(done=None, audit=None)).keys().isdisjoint({Kind.DONE, Kind.AUDIT})


def event(engine: Engine, entry_id: UUID, told: datetime | None) -> UUID:
    moment = utc_now() - 50 * DAY
    made = QuarantinedEvent(id_of(moment), entry_id, new_id(), new_id(), "PostDeleted", 1, None, moment)
    with engine.begin() as connection:
        store.write_events(connection, [made], moment, timedelta(minutes=1))
        if told is not None:
            store.end(connection, [(made.id, LOG)], AlertState.TOLD, told)
    return made.id


@pytest.mark.req("G27")
def test_an_event_stays_until_it_was_told_long_ago_and_its_entry_is_over(engine: Engine) -> None:
    now = utc_now()
    done = entry(engine, now - 50 * DAY, now - 50 * DAY)
    held = entry(engine, now - 50 * DAY, now - 50 * DAY, "Quarantined")
    gone = event(engine, done, now - 20 * DAY)
    kept = {
        event(engine, done, None),
        event(engine, done, now - DAY),
        event(engine, held, now - 20 * DAY),
    }
    assert prune(engine, now, events=10 * DAY) == {Kind.EVENTS: 1}
    assert ids(engine, "quarantined_event") == kept
    assert gone not in kept
    assert prune(engine, now, done=10 * DAY) == {}, "an entry with an untold event stays"
    assert ids(engine, "outbox") == {done, held}


def test_runs_plans_messages_and_audit_go_by_their_end(engine: Engine) -> None:
    now = utc_now()
    for number, age in enumerate((40 * DAY, DAY)):
        at = now - age
        change(
            engine,
            """INSERT INTO news.snapshot_detach_run (id, runner, started_at, ended_at, result)
               VALUES (:id, 'r', :at, :at, 'Completed')""",
            id=id_of(at),
            at=at,
        )
        for state in ("Completed", "Previewed"):
            change(
                engine,
                """INSERT INTO news.snapshot_detach_requeue (id, state, filter, entry_ids, versions, actor, reason,
                       created_at, started_at, ended_at)
                   VALUES (:id, CAST(:state AS text), 'all', '{}', '{}', 'a', 'r', :at,
                       CASE WHEN CAST(:state AS text) = 'Completed' THEN CAST(:at AS timestamptz) END,
                       CASE WHEN CAST(:state AS text) = 'Completed' THEN CAST(:at AS timestamptz) END)""",
                id=id_of(at),
                at=at,
                state=state,
            )
        change(
            engine,
            """INSERT INTO news.snapshot_detach_audit (id, actor, action, reason, occurred_at)
               VALUES (:id, 'a', 'pause', 'r', :at)""",
            id=id_of(at),
            at=at,
        )
        for state in ("rejected", "queued"):
            change(
                engine,
                """INSERT INTO dramatiq.queue (message_id, queue_name, state, mtime, message)
                   VALUES (:id, 'q', CAST(:state AS dramatiq.state), :at, '{}')""",
                id=new_id(),
                state=state,
                at=at,
            )
        assert number < 2
    pruned = prune(engine, now, runs=30 * DAY, plans=30 * DAY, messages=30 * DAY, audit=30 * DAY)
    assert pruned == {Kind.RUNS: 1, Kind.PLANS: 1, Kind.MESSAGES: 1, Kind.AUDIT: 1}
    assert sorted(one.state for one in query(engine, "SELECT state FROM dramatiq.queue")) == [
        "queued",
        "queued",
        "rejected",
    ]
    assert len(ids(engine, "run")) == len(ids(engine, "audit")) == 1
    states = query(engine, "SELECT state FROM news.snapshot_detach_requeue ORDER BY state")
    assert [one.state for one in states] == ["Completed", "Previewed", "Previewed"]


def test_a_window_looks_at_no_more_rows_than_its_size_and_goes_on_where_it_left_off(engine: Engine) -> None:
    now = utc_now()
    for _ in range(10):
        entry(engine, now - 400 * DAY, now - 400 * DAY, "Quarantined")
    late = entry(engine, now - 40 * DAY, now - 40 * DAY)
    place, looked = START, 0
    while late in ids(engine, "outbox"):
        with engine.begin() as connection:
            assert retention.place(connection, Kind.DONE) == place, "the place outlives the run"
            done = retention.prune(connection, Kind.DONE, before=now - 30 * DAY, after=place, size=4, now=now)
        assert done.place > place or done.place == START
        place, looked = done.place, looked + 1
    assert looked == 3


def test_what_a_session_holds_is_passed_over_and_met_again(engine: Engine) -> None:
    now = utc_now()
    held, free = entry(engine, now - 40 * DAY, now - 40 * DAY), entry(engine, now - 40 * DAY, now - 40 * DAY)
    with engine.connect() as holder:
        holder.execute(text("SELECT FROM news.snapshot_detach_outbox WHERE id = :id FOR UPDATE"), {"id": held}).all()
        assert prune(engine, now, done=30 * DAY) == {Kind.DONE: 1}
        assert ids(engine, "outbox") == {held}
    assert free != held
    assert prune(engine, now, done=30 * DAY) == {Kind.DONE: 1}


def test_the_stage_ends_by_its_time_and_the_next_run_goes_on(engine: Engine) -> None:
    now = utc_now()
    for _ in range(3):
        entry(engine, now - 40 * DAY, now - 40 * DAY)
    assert pruning.stage(engine, {Kind.DONE: 30 * DAY}, lambda: now, seconds=0) == {}
    assert len(ids(engine, "outbox")) == 3
    assert prune(engine, now, done=30 * DAY) == {Kind.DONE: 3}


def test_a_tick_prunes_after_its_claims_and_claims_are_not_held_up_by_a_prune(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    now = utc_now()
    old = entry(engine, now - 40 * DAY, now - 40 * DAY)
    pruned = entry(engine, now - 40 * DAY, now - 40 * DAY)
    (fresh,) = stage(engine, active_snapshots(engine))
    settings = job_settings(selections_url)
    with working(settings), engine.connect() as other:
        values: dict[str, Any] = {"id": pruned}
        other.execute(text("DELETE FROM news.snapshot_detach_outbox WHERE id = :id"), values)  # a prune under way
        retry_job.run(make_retry_job(settings), Event())
        assert row(engine, fresh).status == "Done"
        assert old not in ids(engine, "outbox")


def test_no_prune_reads_a_table_whole(engine: Engine) -> None:
    now = utc_now()
    plans: list[str] = []
    with engine.connect() as connection:
        connection.exec_driver_sql("SET enable_seqscan = off")
        for kind in Kind:
            statement = text(f"EXPLAIN {retention._STATEMENTS[kind]}")
            values = {"before": now, "bound": retention.first_id(now), "place": START, "size": 100}
            used = {name: value for name, value in values.items() if name in statement.compile().params}
            plans += [f"{kind.value}: {line[0]}" for line in connection.execute(statement, used)]
    assert [line for line in plans if "Seq Scan" in line] == []
