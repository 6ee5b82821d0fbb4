"""What a claim takes and what ends it, statement by statement: each broker is what another process would have."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from dramatiq.errors import ConnectionClosed
from psycopg.types.json import Jsonb

from actors.consumer import LeaseConsumer
from actors.outcomes import Delivery
from db.embedded.server import EmbeddedServer
from db.runner.gate import BATCHES_CHANNEL
from tests.broker.conftest import Enqueue, MakeBroker, MakeConsumer, Query
from tests.broker.queue_actors import record
from tests.waiting import eventually

ROWS = "select array[state::text, deliveries::text] from dramatiq.queue"


def take(taker: LeaseConsumer) -> Delivery:
    """The next message; AssertionError after a while without."""
    message = eventually(lambda: next(taker), within=5)
    assert message is not None
    return message


def take_all(taker: LeaseConsumer) -> list[Delivery]:
    """What there is to take now."""
    messages = []
    while (message := next(taker)) is not None:
        messages.append(message)
    return messages


@pytest.mark.req("G6", "G11")
@pytest.mark.parametrize("time_zone", ["UTC", "Pacific/Auckland"])
def test_a_claim_is_its_takers_own_until_the_lease_runs_out(
    ask: Query, enqueue: Enqueue, time_zone: str, make_consumer: MakeConsumer
) -> None:
    first, second = make_consumer(options=f"-c TimeZone={time_zone}"), make_consumer()
    enqueue(record.message(1))
    taken = take(first)
    assert take_all(second) == []
    assert ask(ROWS) == [["consumed", "1"]]
    assert ask("select abs(extract(epoch from clock_timestamp() - mtime)) < 30 from dramatiq.queue") == [True]
    third = make_consumer(options=f"-c TimeZone={time_zone}", lease=timedelta(seconds=1))
    assert take(third).claim.delivery == 2
    first.ack(taken)
    assert ask(ROWS) == [["consumed", "2"]]


@pytest.mark.req("G6")
def test_an_outcome_of_an_overtaken_claim_changes_nothing(
    ask: Query, enqueue: Enqueue, make_consumer: MakeConsumer
) -> None:
    slow, quick = make_consumer(), make_consumer(lease=timedelta(seconds=0.5))
    enqueue(record.message(1))
    late = take(slow)
    current = take(quick)
    assert (late.claim.delivery, current.claim.delivery) == (1, 2)
    for outcome in (slow.ack, slow.nack, lambda message: slow.requeue([message])):
        outcome(late)
        assert ask(ROWS) == [["consumed", "2"]]
    quick.ack(current)
    assert ask(ROWS) == []


@pytest.mark.req("G6")
def test_a_repeated_requeue_does_not_undo_the_next_claim(
    ask: Query, enqueue: Enqueue, make_consumer: MakeConsumer
) -> None:
    first, second = make_consumer(), make_consumer()
    enqueue(record.message(1))
    given_back = take(first)
    first.requeue([given_back])
    assert ask(ROWS) == [["queued", "0"]]
    # The same delivery number again: only the claim's own time stamp tells them apart.
    assert take(second).claim.delivery == given_back.claim.delivery
    first.requeue([given_back])
    assert ask(ROWS) == [["consumed", "1"]]


@pytest.mark.req("G6")
def test_a_process_never_takes_what_it_still_works_on_again(
    ask: Query, enqueue: Enqueue, make_broker: MakeBroker, make_consumer: MakeConsumer
) -> None:
    broker = make_broker(lease=timedelta(seconds=0.2), slots=2)
    before = make_consumer(broker)
    enqueue(record.message(1))
    held = take(before)
    before.close()
    after = make_consumer(broker)
    eventually(lambda: ask("select now() - mtime > interval '0.5 seconds' from dramatiq.queue") == [True])
    assert next(after) is None
    assert ask(ROWS) == [["consumed", "1"]]
    after.ack(held)
    assert ask(ROWS) == []


@pytest.mark.req("G6")
def test_a_message_that_waited_for_a_thread_starts_with_a_lease_of_its_own(
    make_broker: MakeBroker, make_consumer: MakeConsumer, ask: Query, enqueue: Enqueue
) -> None:
    broker = make_broker(lease=timedelta(seconds=0.5))
    waiting = make_consumer(broker)
    enqueue(record.message(1))
    waited = take(waiting)
    eventually(lambda: ask("select now() - mtime > interval '0.2 seconds' from dramatiq.queue") == [True])
    [claimed_at] = ask("select mtime from dramatiq.queue")
    assert broker.may_start(waited)
    [renewed_at] = ask("select mtime from dramatiq.queue")
    assert renewed_at - claimed_at > timedelta(seconds=0.2)
    assert take(make_consumer(lease=timedelta(seconds=0.5))).claim.delivery == 2
    waited.claim = replace(waited.claim, expires=0)
    assert not broker.may_start(waited)
    waiting.ack(waited)
    assert ask(ROWS) == [["consumed", "2"]]


@pytest.mark.req("G6")
def test_a_message_whose_lease_cannot_be_renewed_is_left_to_it(
    make_broker: MakeBroker, make_consumer: MakeConsumer, ask: Query, enqueue: Enqueue, server: EmbeddedServer
) -> None:
    broker = make_broker(lease=timedelta(seconds=0.5))
    taker = make_consumer(broker)
    enqueue(record.message(1))
    taken = take(taker)
    taken.claim = replace(taken.claim, expires=0)
    broker.configure(url=server.url("no_such_database"), lease=timedelta(hours=1), poll=timedelta(seconds=1))
    assert not broker.may_start(taken)
    taker.ack(taken)
    assert ask(ROWS) == [["consumed", "1"]]
    assert take(make_consumer(lease=timedelta(seconds=0.5))).claim.delivery == 2


@pytest.mark.req("G6")
def test_no_more_is_claimed_than_there_are_free_slots(
    ask: Query, enqueue: Enqueue, make_consumer: MakeConsumer
) -> None:
    taker = make_consumer(slots=3)
    enqueue(*(record.message(n) for n in range(8)))
    taken = take_all(taker)
    assert len(taken) == 3
    assert ask("select count(*) from dramatiq.queue where state = 'consumed'") == [3]
    taker.ack(taken[0])
    assert len(take_all(taker)) == 1
    assert ask("select count(*) from dramatiq.queue where state = 'consumed'") == [3]


@pytest.mark.req("G6")
@pytest.mark.parametrize("join", ["nestloop", "hashjoin", "mergejoin"])
def test_no_plan_claims_more_than_asked(make_consumer: MakeConsumer, ask: Query, enqueue: Enqueue, join: str) -> None:
    others = {"nestloop", "hashjoin", "mergejoin"} - {join}
    forced = " ".join(f"-c enable_{other}=off" for other in sorted(others))
    taker = make_consumer(options=f"{forced} -c enable_material=off", slots=5)
    enqueue(*(record.message(n) for n in range(50)))
    take(taker)
    assert ask("select count(*) from dramatiq.queue where state = 'consumed'") == [5]


@pytest.mark.req("G6")
def test_messages_delivered_too_often_are_rejected_unread_and_starve_no_other(
    ask: Query, enqueue: Enqueue, observer: psycopg.Connection, make_consumer: MakeConsumer
) -> None:
    enqueue(*(record.message(n) for n in range(5)))
    observer.execute("update dramatiq.queue set deliveries = 3, message = '[\"no message\", 0]'")
    enqueue(record.message(6))
    assert take(make_consumer(slots=2)).args == (6,)
    assert sorted(ask(ROWS)) == [["consumed", "1"]] + [["rejected", "4"]] * 5


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "null": lambda _: None,
    "text": lambda _: "text",
    "no fields": lambda _: {},
    "args": lambda good: {**good, "args": None},
    "kwargs": lambda good: {**good, "kwargs": []},
    "options": lambda good: {**good, "options": None},
    "actor": lambda good: {**good, "actor_name": 7},
    "queue": lambda good: {**good, "queue_name": "elsewhere"},
    "id": lambda good: {**good, "message_id": "another"},
    "eta": lambda good: {**good, "options": {"eta": 1}},
    "unknown field": lambda good: {**good, "surprise": 1},
}


@pytest.mark.req("G6")
@pytest.mark.parametrize("broken", BROKEN)
def test_a_row_that_is_no_message_is_rejected_and_stays_as_it_is(
    make_consumer: MakeConsumer, ask: Query, enqueue: Enqueue, observer: psycopg.Connection, broken: str
) -> None:
    enqueue(record.message(1))
    [good] = ask("select message from dramatiq.queue")
    body = BROKEN[broken](good)
    observer.execute("update dramatiq.queue set message = %s", [Jsonb(body)])
    enqueue(record.message(2))
    taker = make_consumer()
    assert [message.args for message in take_all(taker)] == [(2,)]
    assert ask("select message from dramatiq.queue where state = 'rejected'") == [body]


@pytest.mark.req("G6")
def test_a_row_without_a_message_is_rejected(
    make_consumer: MakeConsumer, ask: Query, enqueue: Enqueue, observer: psycopg.Connection
) -> None:
    enqueue(record.message(1))
    observer.execute("update dramatiq.queue set message = null")
    assert take_all(make_consumer()) == []
    assert ask(ROWS) == [["rejected", "1"]]


@pytest.mark.req("G6")
def test_a_failed_message_is_kept_with_its_traceback(ask: Query, enqueue: Enqueue, make_consumer: MakeConsumer) -> None:
    taker = make_consumer()
    enqueue(record.message(1))
    failed = take(taker)
    failed.options["traceback"] = "ValueError: \x00 \ud800"
    taker.nack(failed)
    assert ask(ROWS) == [["rejected", "1"]]
    assert ask("select message->'options'->>'traceback' from dramatiq.queue") == ["ValueError: \ufffd ?"]
    assert take_all(taker) == []


@pytest.mark.req("G6")
def test_taking_and_ending_a_batch_wakes_the_runner(
    database: str, enqueue: Enqueue, make_consumer: MakeConsumer
) -> None:
    taker = make_consumer()
    with psycopg.connect(database, autocommit=True) as runner:
        runner.execute(f'listen "{BATCHES_CHANNEL}"')

        def woken() -> bool:
            return bool(list(runner.notifies(timeout=5, stop_after=1)))

        enqueue(record.message(1))
        taken = take(taker)
        assert woken()
        taker.ack(taken)
        assert woken()
        enqueue(record.message(2))
        taken = take(taker)
        assert woken()
        taker.nack(taken)
        assert woken()


@pytest.mark.req("J6")
def test_a_draining_process_claims_nothing(
    ask: Query, enqueue: Enqueue, make_broker: MakeBroker, make_consumer: MakeConsumer
) -> None:
    broker = make_broker(slots=4)
    taker = make_consumer(broker)
    enqueue(record.message(1), record.message(2), record.message(3))
    started = take(taker)
    assert ask(ROWS) == [["consumed", "1"]] * 3
    broker.draining.set()
    assert next(taker) is None
    assert sorted(ask(ROWS)) == [["consumed", "1"], ["queued", "0"], ["queued", "0"]]
    taker.ack(started)
    assert next(taker) is None
    assert ask(ROWS) == [["queued", "0"]] * 2


@pytest.mark.req("J6")
def test_without_the_database_a_draining_process_does_not_wait_for_its_outcomes(
    enqueue: Enqueue, server: EmbeddedServer, make_broker: MakeBroker, make_consumer: MakeConsumer
) -> None:
    broker = make_broker()
    taker = make_consumer(broker)
    enqueue(record.message(1))
    taken = take(taker)
    broker.configure(url=server.url("no_such_database"), lease=timedelta(hours=1), poll=timedelta(seconds=0.1))
    taker.close()
    cut_off = make_consumer(broker)
    with pytest.raises(ConnectionClosed):
        cut_off.ack(taken)
    broker.draining.set()
    cut_off.ack(taken)
