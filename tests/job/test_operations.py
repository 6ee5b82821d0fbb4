"""The operator's way back from quarantine."""

import threading
from uuid import UUID

import pytest
from sqlalchemy import Engine

from pin import operations
from pin.clock import new_id, utc_now
from pin.operations import RequeueAnswer, RequeueResult
from tests.job.scene import change, query, row, stage


def quarantined(engine: Engine, count: int) -> list[UUID]:
    ids = stage(engine, [new_id() for _ in range(count)])
    change(
        engine,
        "UPDATE news.snapshot_detach_outbox SET status = 'Quarantined', attempts = 12, version = 24,"
        " last_error = 'HTTP 503' WHERE id = ANY(CAST(:ids AS uuid[]))",
        ids=ids,
    )
    return ids


@pytest.mark.req("G21", "G6", "J29")
def test_requeue_answers_each_id_and_moves_only_what_is_quarantined(engine: Engine) -> None:
    (poison,) = quarantined(engine, 1)
    (pending,) = stage(engine, [new_id()])
    (done,) = stage(engine, [new_id()])
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Done' WHERE id = :id", id=done)
    unknown = new_id()
    created = row(engine, poison).created_at
    now = utc_now()

    answers = operations.requeue(
        engine, [poison, pending, done, unknown, poison], actor="ana", reason="deploy mended", now=now
    )

    assert answers == [
        RequeueAnswer(poison, RequeueResult.REQUEUED, "Quarantined"),
        RequeueAnswer(pending, RequeueResult.NOT_QUARANTINED, "Pending"),
        RequeueAnswer(done, RequeueResult.NOT_QUARANTINED, "Done"),
        RequeueAnswer(unknown, RequeueResult.UNKNOWN, None),
    ]
    again = row(engine, poison)
    assert (again.status, again.attempts, again.version, again.next_attempt_at) == ("Pending", 0, 25, now)
    assert again.created_at == created
    assert row(engine, pending).version == 0
    (audit,) = query(engine, "SELECT * FROM news.snapshot_detach_audit")
    assert (audit.actor, audit.action, audit.reason, audit.entry_id) == ("ana", "requeue", "deploy mended", poison)
    assert audit.details == {"attempts": 12, "lastError": "HTTP 503", "version": 24}


@pytest.mark.req("G21")
def test_two_operators_at_once_requeue_an_entry_once(engine: Engine) -> None:
    ids = quarantined(engine, 10)
    barrier = threading.Barrier(2)
    answers: list[list[RequeueAnswer]] = []

    def operator(order: list[UUID]) -> None:
        barrier.wait(10)
        answers.append(operations.requeue(engine, order, actor="o", reason="r", now=utc_now()))

    threads = [threading.Thread(target=operator, args=(order,)) for order in (ids, ids[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    requeued = [a.entry_id for one in answers for a in one if a.result is RequeueResult.REQUEUED]
    assert sorted(requeued) == sorted(ids)
    assert len(query(engine, "SELECT FROM news.snapshot_detach_audit")) == 10


@pytest.mark.req("J20")
def test_an_owner_that_meets_a_quarantined_row_leaves_it_and_its_transaction_survives(engine: Engine) -> None:
    (entry,) = quarantined(engine, 1)
    stage(engine, [row(engine, entry).snapshot_id, new_id()])
    assert row(engine, entry).status == "Quarantined"
    assert len(query(engine, "SELECT FROM news.snapshot_detach_outbox")) == 2


@pytest.mark.req("G21")
@pytest.mark.parametrize(("actor", "reason"), [("", "r"), ("a", " "), ("a", "x" * 513)])
def test_an_actor_and_a_reason_are_needed(engine: Engine, actor: str, reason: str) -> None:
    (entry,) = quarantined(engine, 1)
    with pytest.raises(ValueError, match="reason"):
        operations.requeue(engine, [entry], actor=actor, reason=reason, now=utc_now())
    assert row(engine, entry).status == "Quarantined"
