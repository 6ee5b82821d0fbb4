"""Outcomes: fenced, recorded in bulk, isolated when one is bad, counted, kept as history."""

import threading
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import Connection, Engine, text

from db.outbox import intents as outbox
from db.outbox.outcome import Answered, AttemptOrigin, Decided
from pin.clock import new_id, utc_now
from pin.job import observe
from pin.job import record as delivery
from pin.rules.outbox import Entry, OutcomeKind, Policy, Reply, Verdict
from tests.job.scene import change, history, query, row, rows, stage

POLICY = Policy(12, timedelta(minutes=1), 2.0, timedelta(minutes=30))
DETACHED = Reply(Verdict.DETACHED, http_status=200)
UNAVAILABLE = Reply(Verdict.TRANSIENT, "HTTP 503", http_status=503)
NOT_FOUND = Reply(Verdict.NOT_FOUND, "HTTP 404 SELECTIONS_SNAPSHOT_NOT_FOUND", http_status=404)
announced: list[UUID] = []


def announce(_connection: Connection, event_ids: Sequence[UUID]) -> None:
    announced.extend(event_ids)


def record(engine: Engine, pairs: Sequence[tuple[Entry, Reply]], *, run_id: UUID | None = None) -> list[Decided]:
    origin = AttemptOrigin(run_id or new_id(), "test:1", None)
    answered = [Answered(entry, reply) for entry, reply in pairs]
    return delivery.record(engine, answered, origin=origin, policy=POLICY, now=utc_now(), announce=announce)


def called(engine: Engine, ids: Sequence[UUID]) -> list[Entry]:
    """The entries as a claim and then a message would have handed them to a worker."""
    change(
        engine,
        "UPDATE news.snapshot_detach_outbox SET attempts = attempts + 1, version = version + 1, outcome_due = true"
        " WHERE id = ANY(CAST(:ids AS uuid[]))",
        ids=list(ids),
    )
    with engine.connect() as connection:
        return outbox.by_id(connection, ids)


@pytest.mark.req("J13", "J14", "G3")
def test_one_transaction_records_each_kind_of_outcome(engine: Engine) -> None:
    ids = stage(engine, [new_id() for _ in range(3)])
    entries = called(engine, ids)
    outcome = {DETACHED: ids[0], UNAVAILABLE: ids[1], NOT_FOUND: ids[2]}
    by_id = {e.id: e for e in entries}

    record(engine, [(by_id[i], reply) for reply, i in outcome.items()])

    assert [(r.status, r.last_error, r.version, r.outcome_due) for r in (row(engine, i) for i in ids)] == [
        ("Done", None, 2, False),
        ("Pending", "HTTP 503", 2, False),
        ("Quarantined", "HTTP 404 SELECTIONS_SNAPSHOT_NOT_FOUND", 2, False),
    ]
    (event,) = query(engine, "SELECT * FROM news.snapshot_detach_quarantined_event")
    assert (event.entry_id, event.id in announced) == (ids[2], True)
    assert [(h.outcome, h.attempt, h.entry_version) for h in history(engine, ids[1])] == [("Retried", 1, 1)]


@pytest.mark.case("A14")
@pytest.mark.req("J16", "G6", "G9", "G16")
def test_a_late_failure_changes_nothing_and_is_counted(engine: Engine) -> None:
    (entry_id,) = stage(engine, [new_id()])
    (first,) = called(engine, [entry_id])
    (second,) = called(engine, [entry_id])
    record(engine, [(second, DETACHED)])
    done = row(engine, entry_id)
    failed = REGISTRY.get_sample_value("news_snapshot_detach_failed_total") or 0.0

    (late,) = record(engine, [(first, UNAVAILABLE)])
    observe.observe_attempts([late], utc_now())

    assert late.outcome.kind is OutcomeKind.LATE
    assert row(engine, entry_id) == done
    assert REGISTRY.get_sample_value("news_snapshot_detach_failed_total") == failed + 1
    assert [h.outcome for h in history(engine, entry_id)] == ["Succeeded", "Late"]


@pytest.mark.req("J16", "G6")
def test_a_failure_of_an_older_version_touches_neither_schedule_nor_error(engine: Engine) -> None:
    (entry_id,) = stage(engine, [new_id()])
    (first,) = called(engine, [entry_id])
    called(engine, [entry_id])
    before = row(engine, entry_id)
    record(engine, [(first, NOT_FOUND)])
    assert row(engine, entry_id) == before


@pytest.mark.req("G9")
def test_a_late_success_is_the_truth_also_after_quarantine_and_leaves_an_audit_row(engine: Engine) -> None:
    (entry_id,) = stage(engine, [new_id()])
    (first,) = called(engine, [entry_id])
    (second,) = called(engine, [entry_id])
    record(engine, [(second, NOT_FOUND)])
    assert row(engine, entry_id).status == "Quarantined"

    record(engine, [(first, DETACHED)])

    assert (row(engine, entry_id).status, row(engine, entry_id).last_error) == ("Done", None)
    (audit,) = query(engine, "SELECT * FROM news.snapshot_detach_audit")
    assert (audit.action, audit.actor, audit.entry_id) == ("late-success", "system", entry_id)


@pytest.mark.req("G13")
def test_a_guard_that_meets_snapshot_not_found_is_done(engine: Engine) -> None:
    (entry_id,) = stage(engine, [new_id()], is_guard=True)
    record(engine, [(called(engine, [entry_id])[0], NOT_FOUND)])
    assert (row(engine, entry_id).status, row(engine, entry_id).last_error) == ("Done", None)


@pytest.mark.req("J13", "J17")
@pytest.mark.case("A14")
def test_when_one_row_cannot_be_recorded_its_neighbours_are(engine: Engine) -> None:
    ids = stage(engine, [new_id() for _ in range(5)])
    entries = called(engine, ids)
    change(
        engine,
        f"""
        CREATE FUNCTION news.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.id = '{ids[2]}' AND NEW.status = 'Done' THEN RAISE EXCEPTION 'bad row'; END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON news.snapshot_detach_outbox
            FOR EACH ROW EXECUTE FUNCTION news.refuse();
        """,
    )
    record(engine, [(entry, DETACHED) for entry in entries])
    assert [row(engine, i).status for i in ids] == ["Done", "Done", "Pending", "Done", "Done"]
    assert row(engine, ids[2]).outcome_due, "its outcome is lost, and the next claim will know (G7)"


@pytest.mark.req("G21", "J13")
def test_outcomes_in_opposite_orders_do_not_deadlock(engine: Engine) -> None:
    ids = stage(engine, [new_id() for _ in range(40)])
    entries = called(engine, ids)
    barrier = threading.Barrier(2)
    failures: list[BaseException] = []

    def recorder(order: list[Entry]) -> None:
        barrier.wait(10)
        try:
            record(engine, [(entry, UNAVAILABLE) for entry in order])
        except BaseException as error:  # noqa: BLE001 - carried to the test's thread
            failures.append(error)

    threads = [threading.Thread(target=recorder, args=(o,)) for o in (entries, entries[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert failures == []
    assert {(r.version, r.last_error) for r in rows(engine)} == {(2, "HTTP 503")}, "one of the two was late"


@pytest.mark.req("G21")
def test_a_deadlock_victim_is_retried_whole(engine: Engine) -> None:
    ids = sorted(stage(engine, [new_id() for _ in range(2)]))
    entries = {e.id: e for e in called(engine, ids)}
    with engine.connect() as rival:
        rival.execute(text("SET deadlock_timeout = '10s'"))  # the other side is the one to be chosen
        lock = text("SELECT FROM news.snapshot_detach_outbox WHERE id = :id FOR UPDATE")
        rival.execute(lock, {"id": ids[1]})
        recorder = threading.Thread(target=record, args=(engine, [(entries[i], UNAVAILABLE) for i in ids]))
        recorder.start()
        rival.execute(lock, {"id": ids[0]})  # waits for the recorder, which waits for ids[1]: a deadlock
        rival.commit()
    recorder.join(20)
    assert {(r.version, r.last_error) for r in rows(engine, ids)} == {(2, "HTTP 503")}


@pytest.mark.req("G17", "J14")
def test_retry_after_moves_the_due_time_later_never_sooner_and_at_most_the_cap(engine: Engine) -> None:
    ids = stage(engine, [new_id() for _ in range(3)])
    change(
        engine, "UPDATE news.snapshot_detach_outbox SET next_attempt_at = :due", due=utc_now() + timedelta(minutes=4)
    )
    entries = {e.id: e for e in called(engine, ids)}
    before = row(engine, ids[0]).next_attempt_at
    waits = [timedelta(minutes=10), timedelta(seconds=5), timedelta(days=3)]
    now = utc_now()
    record(
        engine,
        [
            (entries[i], Reply(Verdict.TRANSIENT, "HTTP 429", 429, retry_after=wait))
            for i, wait in zip(ids, waits, strict=True)
        ],
    )
    assert timedelta(minutes=9) < row(engine, ids[0]).next_attempt_at - now < timedelta(minutes=11)
    assert row(engine, ids[1]).next_attempt_at == before
    assert timedelta(minutes=29) < row(engine, ids[2]).next_attempt_at - now < timedelta(minutes=31)


@pytest.mark.req("G3", "J14")
def test_a_credential_refused_halts_the_run_and_quarantines_nothing(engine: Engine) -> None:
    ids = stage(engine, [new_id() for _ in range(2)])
    run_id = new_id()
    change(
        engine,
        "INSERT INTO news.snapshot_detach_run (id, runner, started_at) VALUES (:id, 'r', :now)",
        id=run_id,
        now=utc_now(),
    )
    change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 5")
    entries = called(engine, ids)
    record(engine, [(entries[0], Reply(Verdict.REFUSED, "HTTP 401", 401))], run_id=run_id)
    assert [r.status for r in rows(engine)] == ["Pending", "Pending"]
    assert query(engine, "SELECT halted_by FROM news.snapshot_detach_run")[0].halted_by == "HTTP 401"


@pytest.mark.req("J19", "G8")
def test_a_first_attempt_that_fails_spends_no_budget_and_never_quarantines(engine: Engine) -> None:
    (entry_id,) = stage(engine, [new_id()])
    with engine.connect() as connection:
        (entry,) = outbox.by_id(connection, [entry_id])
    record(engine, [(entry, NOT_FOUND)])
    after = row(engine, entry_id)
    assert (after.status, after.attempts, after.version) == ("Pending", 0, 1)
    assert after.last_error == "HTTP 404 SELECTIONS_SNAPSHOT_NOT_FOUND"


@pytest.mark.case("A1")
@pytest.mark.req("J14")
def test_whatever_an_error_holds_its_outcome_commits(engine: Engine) -> None:
    ids = stage(engine, [new_id() for _ in range(4)])
    texts = ["\x00null", "lone \ud83d surrogate", "x" * 513, "\U0001f4a5" * 512]
    entries = called(engine, ids)
    record(engine, [(e, Reply(Verdict.TRANSIENT, t)) for e, t in zip(entries, texts, strict=True)])
    assert all(r.version == 2 and r.last_error and len(r.last_error) <= 512 for r in rows(engine, ids))
