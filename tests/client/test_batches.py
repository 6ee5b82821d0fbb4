"""Many calls at once: how many, until when, and what ends them all."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import TracerProvider

from pin.outgoing.selections import SelectionsClient
from pin.rules.outbox import Reply, Verdict
from tests.client.conftest import MakeClient, Tokens, detach
from tests.fake_selections import Call, FakeSelections, Gate, Script, detached, problem, reply
from tests.waiting import eventually


def _started(replies: list[Reply | None]) -> list[Reply]:
    return [found for found in replies if found is not None]


@pytest.mark.req("J5", "J17")
def test_replies_come_in_the_order_of_the_calls(fake: FakeSelections, client: SelectionsClient) -> None:
    first = Gate()

    def answer(call: Call) -> Script:
        number = UUID(call.path.split("/")[-2]).int
        if number == 1:
            return [first, *detached(call)]
        if number == 50:
            first.open()
        return problem(404, "SELECTIONS_SNAPSHOT_NOT_FOUND") if number % 2 == 0 else detached(call)

    fake.answer = answer
    found = _started(detach(client, 50))
    assert [each.verdict for each in found] == [Verdict.DETACHED, Verdict.NOT_FOUND] * 25


@pytest.mark.req("J17")
def test_one_hanging_call_neither_stops_nor_delays_its_neighbours(
    fake: FakeSelections, client: SelectionsClient
) -> None:
    hanging = Gate()
    fake.answer = lambda call: [hanging] if call.path.endswith(f"{UUID(int=3)}/detach") else detached(call)
    found = _started(detach(client, 30, call_timeout=0.5))
    assert [each.error for each in found] == [None, None, "TIMEOUT", *[None] * 27]


@pytest.mark.req("J5")
def test_no_more_calls_are_in_flight_than_concurrency_admits(fake: FakeSelections, make_client: MakeClient) -> None:
    full = Gate()

    def answer(call: Call) -> Script:
        if fake.in_flight == 4:
            full.open()
        return [full, *detached(call)]

    fake.answer = answer
    found = _started(detach(make_client(concurrency=4), 30))
    assert {each.verdict for each in found} == {Verdict.DETACHED}
    assert len(found) == 30
    assert fake.most_in_flight == 4


@pytest.mark.req("J6")
def test_a_stop_lets_the_calls_on_the_wire_finish_and_starts_none(
    fake: FakeSelections, make_client: MakeClient
) -> None:
    stop, gate = threading.Event(), Gate()
    fake.answer = lambda call: [gate, *detached(call)]
    client = make_client(concurrency=3)
    with ThreadPoolExecutor(1) as pool:
        batch = pool.submit(detach, client, 10, stopping=stop.is_set)
        fake.arrived(3)
        stop.set()
        gate.open()
        replies = batch.result(timeout=20)
    assert [found.verdict for found in _started(replies)] == [Verdict.DETACHED] * 3
    assert replies[3:] == [None] * 7
    assert len(fake.calls) == 3


@pytest.mark.req("J6")
def test_a_stop_before_the_first_call_makes_none(fake: FakeSelections, client: SelectionsClient) -> None:
    assert detach(client, 5, stopping=lambda: True) == [None] * 5
    assert fake.calls == []


@pytest.mark.req("J5")
def test_a_deadline_that_has_passed_makes_no_call(fake: FakeSelections, client: SelectionsClient) -> None:
    assert detach(client, 5, within=-1.0) == [None] * 5
    assert detach(client, 0) == []
    assert fake.calls == []


@pytest.mark.req("J5")
def test_the_deadline_ends_calls_on_the_wire_and_starts_none(fake: FakeSelections, make_client: MakeClient) -> None:
    fake.answer = lambda _: [Gate()]
    started = time.monotonic()
    replies = detach(make_client(concurrency=2), 6, call_timeout=20, within=0.5)
    assert time.monotonic() - started < 5
    assert [found.error if found else None for found in replies] == ["TIMEOUT", "TIMEOUT", None, None, None, None]


@pytest.mark.req("G3")
@pytest.mark.case("A8")
def test_a_401_renews_the_token_and_is_asked_once_more(
    fake: FakeSelections, client: SelectionsClient, tokens: Tokens
) -> None:
    fake.answer = lambda call: (
        detached(call) if call.header("authorization") == "Bearer token-1" else problem(401, "UNAUTHORIZED")
    )
    (found,) = _started(detach(client, 1))
    assert found.verdict is Verdict.DETACHED
    assert [call.header("authorization") for call in fake.calls] == ["Bearer token-0", "Bearer token-1"]
    assert tokens.refreshed == 1


@pytest.mark.req("G3")
@pytest.mark.case("A8")
def test_a_token_that_ends_within_a_batch_is_renewed_once(
    fake: FakeSelections, client: SelectionsClient, tokens: Tokens
) -> None:
    fake.answer = lambda call: (
        reply(401, b"<html>", content_type="text/html")
        if call.header("authorization") == "Bearer token-0" and len(fake.calls) > 3
        else detached(call)
    )
    found = _started(detach(client, 50))
    assert [each.verdict for each in found] == [Verdict.DETACHED] * 50
    assert tokens.refreshed == 1


@pytest.mark.req("G3")
@pytest.mark.case("A8")
@pytest.mark.parametrize(("status", "asked"), [(401, 2), (403, 1)])
def test_a_refused_credential_starts_no_further_call(
    fake: FakeSelections, make_client: MakeClient, status: int, asked: int
) -> None:
    fake.answer = lambda _: problem(status, "FORBIDDEN")
    first, *rest = detach(make_client(concurrency=1), 10)
    assert first is not None
    assert (first.verdict, first.error) == (Verdict.REFUSED, f"HTTP {status}")
    assert rest == [None] * 9
    assert len(fake.calls) == asked


@pytest.mark.req("G3")
def test_after_a_refusal_the_next_batch_asks_again(fake: FakeSelections, client: SelectionsClient) -> None:
    fake.answer = lambda _: problem(403, "FORBIDDEN")
    detach(client, 30)
    fake.answer = detached
    assert [found.verdict for found in _started(detach(client, 30))] == [Verdict.DETACHED] * 30


@pytest.mark.req("J26")
def test_a_call_carries_the_trace_of_its_caller(fake: FakeSelections, client: SelectionsClient) -> None:
    with TracerProvider().get_tracer("test").start_as_current_span("detach run") as span:
        detach(client, 3)
    parents = [call.header("traceparent") or "" for call in fake.calls]
    trace_id = format(span.get_span_context().trace_id, "032x")
    assert [parent.split("-")[1] for parent in parents] == [trace_id] * 3


@pytest.mark.req("J23")
def test_threads_share_a_client(fake: FakeSelections, client: SelectionsClient) -> None:
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda _: detach(client, 20), range(8)))
    assert [found.verdict for batch in batches for found in _started(batch)] == [Verdict.DETACHED] * 160
    assert len(fake.calls) == 160


@pytest.mark.req("J6")
@pytest.mark.case("A16")
def test_closing_ends_the_calls_in_flight_and_leaves_no_thread_and_no_connection(
    fake: FakeSelections, make_client: MakeClient
) -> None:
    fake.answer = lambda _: [Gate()]
    client = make_client(concurrency=3)
    with ThreadPoolExecutor(1) as pool:
        batch = pool.submit(detach, client, 10)
        fake.arrived(3)
        client.close()
        replies = batch.result(timeout=10)
    assert [found.error for found in _started(replies)] == ["NETWORK"] * 3
    assert len(fake.calls) == 3
    assert not [thread for thread in threading.enumerate() if thread.name == "selections-client"]


@pytest.mark.req("J6")
def test_closing_closes_idle_connections_and_may_be_repeated(fake: FakeSelections, make_client: MakeClient) -> None:
    client = make_client()
    detach(client, 5)
    assert fake.open_connections > 0
    client.close()
    client.close()
    eventually(lambda: fake.open_connections == 0)


@pytest.mark.req("J12")
def test_nothing_is_opened_before_the_first_call(fake: FakeSelections, make_client: MakeClient) -> None:
    client = make_client()
    assert client.get_snapshots([], deadline=time.monotonic() + 5) == {}
    assert not [thread for thread in threading.enumerate() if thread.name == "selections-client"]
    assert fake.connections == 0
