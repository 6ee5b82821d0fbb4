"""Re-enqueue by hand, wherever the entry stands: an answer for each id, and nothing outside the state machine (A15)."""

import threading
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from db.outbox import intents as outbox
from db.outbox.intents import Intent
from pin.clock import new_id, utc_now
from pin.operations import RequeueAnswer, RequeueResult, requeue
from pin.rules.contract import Reason
from tests.job.scene import USER, change, query, row, rows, stage


def quarantined(engine: Engine, count: int) -> list[UUID]:
    ids = stage(engine, [new_id() for _ in range(count)])
    change(
        engine,
        "UPDATE news.snapshot_detach_outbox SET status = 'Quarantined', attempts = 12, version = 24,"
        " last_error = 'HTTP 503', next_attempt_at = :later WHERE id = ANY(CAST(:ids AS uuid[]))",
        ids=ids,
        later=utc_now() + timedelta(hours=1),
    )
    return ids


def asked(engine: Engine, ids: Sequence[UUID]) -> list[RequeueAnswer]:
    return requeue(engine, ids, actor="ada", reason="selections is deployed", now=utc_now())


@pytest.mark.case("A15")
@pytest.mark.req("J29", "G21")
def test_attempts_and_schedule_are_reset_and_the_version_goes_on(engine: Engine) -> None:
    (entry,) = quarantined(engine, 1)
    (answer,) = asked(engine, [entry])
    after = row(engine, entry)
    assert answer.result is RequeueResult.REQUEUED
    assert (after.status, after.attempts, after.version, after.outcome_due) == ("Pending", 0, 25, False)
    assert after.next_attempt_at <= utc_now()


@pytest.mark.case("A15")
@pytest.mark.req("G21")
def test_two_operators_at_once_move_each_entry_once(engine: Engine) -> None:
    ids = quarantined(engine, 10)
    barrier, answers = threading.Barrier(2), list[list[RequeueAnswer]]()

    def operator(order: Sequence[UUID]) -> None:
        barrier.wait(10)
        answers.append(asked(engine, order))

    threads = [threading.Thread(target=operator, args=(order,)) for order in (ids, ids[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    moved = [a.entry_id for each in answers for a in each if a.result is RequeueResult.REQUEUED]
    assert sorted(moved) == sorted(ids)
    assert [len(each) for each in answers] == [10, 10]
    assert {(r.attempts, r.version) for r in rows(engine, ids)} == {(0, 25)}
    assert len(query(engine, "SELECT FROM news.snapshot_detach_audit")) == 10


@pytest.mark.case("A15")
@pytest.mark.req("J9", "G21")
def test_what_is_in_flight_or_done_is_refused_also_when_its_snapshot_has_a_new_intent(engine: Engine) -> None:
    snapshot = new_id()
    (done,) = stage(engine, [snapshot])
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Done', version = 2")
    (fresh,) = stage(engine, [snapshot])
    (in_flight,) = stage(engine, [new_id()])
    change(
        engine,
        "UPDATE news.snapshot_detach_outbox SET attempts = 1, version = 1, outcome_due = true WHERE id = :id",
        id=in_flight,
    )
    before = [row(engine, each) for each in (done, fresh, in_flight)]

    answers = asked(engine, [done, fresh, in_flight])

    assert [(a.result, a.status) for a in answers] == [
        (RequeueResult.NOT_QUARANTINED, "Done"),
        (RequeueResult.NOT_QUARANTINED, "Pending"),
        (RequeueResult.NOT_QUARANTINED, "Pending"),
    ]
    assert [row(engine, each) for each in (done, fresh, in_flight)] == before
    assert query(engine, "SELECT FROM news.snapshot_detach_audit") == []


@pytest.mark.case("A15")
@pytest.mark.req("G9", "G21")
def test_one_of_ten_that_a_late_success_has_taken_meanwhile_holds_up_none(engine: Engine) -> None:
    ids = quarantined(engine, 10)
    answers: list[RequeueAnswer] = []
    with engine.connect() as late:
        late.execute(
            text("UPDATE news.snapshot_detach_outbox SET status = 'Done', last_error = NULL WHERE id = :id"),
            {"id": ids[4]},
        )
        operator = threading.Thread(target=lambda: answers.extend(asked(engine, ids)))
        operator.start()
        late.commit()
    operator.join(20)
    assert [a.result is RequeueResult.REQUEUED for a in answers] == [True] * 4 + [False] + [True] * 5
    assert answers[4].status == "Done"


@pytest.mark.case("A15")
@pytest.mark.req("J18", "J20")
def test_the_owner_who_meets_a_quarantined_entry_keeps_its_transaction(engine: Engine) -> None:
    (entry,) = quarantined(engine, 1)
    met, other = row(engine, entry).snapshot_id, new_id()
    now = utc_now()
    with engine.begin() as connection:
        made = outbox.stage(
            connection,
            [Intent(new_id(), each, new_id(), Reason.POST_DELETED, USER, now) for each in (met, other)],
            now,
        )
    assert [each.snapshot_id for each in made] == [other]
    assert row(engine, entry).status == "Quarantined"
    assert len(rows(engine)) == 2
