"""The owner's first detach: in time or not at all, and never to the user's cost (J18, J19, G8, J32, A4, A17)."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import UUID

import pytest

from pin.news.desk import Author
from pin.news.status import delete_post
from pin.telemetry import metrics
from tests.news.proxy import Exchange, passes
from tests.news.world import World, embed, keep, words
from tests.waiting import eventually
from web.deps import build_deps
from web.news.routes import desk_of

pytestmark = pytest.mark.timeout(120)

HISTORY = "SELECT entry_id, entry_version, attempt, run_id, outcome, error FROM news.snapshot_detach_attempt"


def on_detach(fault: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    """Do this to detach calls; pass the rest."""
    return lambda exchange: fault(exchange) if exchange.path.endswith("/detach") else passes(exchange)


@pytest.mark.req("J19")
def test_success_marks_the_row_done_and_keeps_its_history(world: World) -> None:
    post = world.post(embed(world.selection()))
    world.set(post, words("x"))
    [intent] = world.intents()
    assert (intent.status, intent.attempts, intent.last_error, intent.outcome_due) == ("Done", 0, None, False)
    assert [tuple(row) for row in world.rows(HISTORY)] == [(intent.id, 0, 0, None, "Succeeded", None)]
    assert len(world.proxy.calls("POST", "/detach")) == 1


@pytest.mark.req("J18", "J19", "J32", "G8", "J21")
@pytest.mark.parametrize("act", ["set", "delete"])
def test_with_selections_down_the_request_succeeds_and_the_row_waits_for_the_job(world: World, act: str) -> None:
    post = world.post(embed(world.selection()))
    down = on_detach(lambda exchange: exchange.answer(503, "text/html", b"<h1>down</h1>"))
    world.proxy.does = down
    if act == "set":
        world.set(post, words("x"))
    else:
        assert world.delete(post).status_code == 204
    [intent] = world.intents()
    reason = "BlockReplaced" if act == "set" else "PostDeleted"
    assert (intent.status, intent.attempts, intent.reason) == ("Pending", 0, reason)
    assert intent.last_error == "HTTP 503"
    assert intent.next_attempt_at - intent.created_at == world.settings.retry.detach_call_timeout
    assert not intent.outcome_due
    assert [tuple(row) for row in world.rows(HISTORY)] == [(intent.id, 0, 0, None, "Retried", "HTTP 503")]
    assert not world.rows("SELECT * FROM news.snapshot_detach_quarantined_event")


@pytest.mark.req("J19", "J32")
def test_with_the_server_gone_posts_are_still_read_changed_and_deleted(world: World) -> None:
    post, other = world.post(embed(world.selection())), world.post(embed(world.selection()))
    world.stop_selections()
    after = world.set(post, words("x"))
    assert world.delete(other).status_code == 204
    assert world.get(after)["blocks"] == [words("x")]
    assert [(i.status, i.attempts) for i in world.intents()] == [("Pending", 0)] * 2
    refused = world.put(after, embed("8f14e45f-ceea-467f-a8d3-a0b5a3f1c001"))
    assert (refused.status_code, refused.json()["code"]) == (503, "NEWS_SELECTIONS_UNAVAILABLE")
    assert world.get(after)["version"] == 2


@pytest.mark.req("J19", "G3")
def test_a_permanent_refusal_of_the_first_attempt_quarantines_nothing(world: World) -> None:
    post = world.post(embed(world.selection()))
    problem = b'{"code": "VALIDATION_ERROR"}'
    world.proxy.does = on_detach(lambda exchange: exchange.answer(400, "application/problem+json", problem))
    world.set(post, words("x"))
    [intent] = world.intents()
    assert (intent.status, intent.attempts, intent.last_error) == ("Pending", 0, "HTTP 400 VALIDATION_ERROR")


@pytest.mark.req("J19", "G8")
@pytest.mark.case("A4")
@pytest.mark.parametrize("fault", [Exchange.trickle, Exchange.hang])
def test_one_deadline_ends_all_the_calls_of_a_request(make_world: Callable[..., World], fault: Any) -> None:
    world = make_world(retry={"detach_call_timeout": timedelta(seconds=0.6)})
    selection = world.selection()
    post = world.post(*[embed(selection)] * 70)  # more than thrice the calls that wait side by side
    world.proxy.does = on_detach(fault)
    started = monotonic()
    world.set(post, words("x"))
    assert monotonic() - started < 10  # a hung call would last until the test's end
    intents = world.intents()
    assert [(i.status, i.attempts) for i in intents] == [("Pending", 0)] * 70
    # Those that the deadline left uncalled have neither an error nor a history: they are the job's.
    assert {i.last_error for i in intents} == {"TIMEOUT", None}
    called = {i.id for i in intents if i.last_error}
    assert {(row.entry_id, row.error) for row in world.rows(HISTORY)} == {(one, "TIMEOUT") for one in called}
    assert {i.next_attempt_at - i.created_at for i in intents} == {timedelta(seconds=0.6)}


@pytest.mark.req("J18")
@pytest.mark.parametrize("act", ["set", "delete"])
def test_a_change_without_its_intent_is_no_change(world: World, act: str) -> None:
    post = world.post(embed(world.selection()))
    world.execute("""
        CREATE FUNCTION news.fail() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'the outbox is broken'; END $$
    """)
    world.execute("""
        CREATE TRIGGER fail BEFORE INSERT ON news.snapshot_detach_outbox
        FOR EACH ROW WHEN (NOT NEW.is_guard) EXECUTE FUNCTION news.fail()
    """)
    answer = world.put(post, embed(world.selection())) if act == "set" else world.delete(post)
    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL_ERROR")
    assert "broken" not in answer.text
    found = world.get(post)
    assert (found["status"], found["version"], found["revision"]) == ("Published", 1, 2)
    assert world.snapshot(post.snapshots[0]).status == "Active"
    assert not world.intents()
    assert len(world.intents(guards=True)) == (1 if act == "set" else 0)
    assert not world.proxy.calls("POST", "/detach")


@pytest.mark.req("J18")
def test_the_intent_and_the_change_are_seen_together(world: World) -> None:
    post = world.post(embed(world.selection()))
    seen: list[tuple[int, int]] = []

    def look(exchange: Exchange) -> None:
        [row] = world.rows("""
            SELECT (SELECT version FROM news.post), (SELECT count(*) FROM news.snapshot_detach_outbox)
        """)
        seen.append(tuple(row))
        passes(exchange)

    world.proxy.does = on_detach(look)
    world.set(post, words("x"))
    assert seen == [(2, 1)]


@pytest.mark.req("J12", "J19")
@pytest.mark.case("A17")
def test_no_connection_is_held_while_selections_is_called(make_world: Callable[..., World]) -> None:
    world = make_world(web={"pool_size": 1})
    selection = world.selection()
    post = world.post(embed(selection))
    held: list[str] = []
    alive: list[int] = []

    def look(exchange: Exchange) -> None:
        held.extend(
            row.state
            for row in world.rows("""
                SELECT state FROM pg_stat_activity
                WHERE application_name = 'pin-web' AND datname = current_database() AND state <> 'idle'
            """)
        )
        with world.client() as http:  # the pool's one connection is free for another request
            alive.append(http.get(f"/posts/{post.id}/versions/1").status_code)
        passes(exchange)

    world.proxy.does = lambda exchange: look(exchange) if exchange.method == "POST" else passes(exchange)
    world.set(post, embed(selection))
    assert alive == [200, 200]
    assert not held


@pytest.mark.req("G14", "J20")
def test_an_intent_that_meets_an_active_one_is_counted_and_the_change_stands(world: World) -> None:
    selection = world.selection()
    post = world.post(embed(selection), embed(selection))
    first, second = post.snapshots
    world.execute(
        """
        INSERT INTO news.snapshot_detach_outbox (id, snapshot_id, post_id, reason, requested_by_user_id,
            next_attempt_at, status, created_at, updated_at)
        VALUES (gen_random_uuid(), :snapshot, :post, 'PostDeleted', :user, now(), 'Quarantined', now(), now())
        """,
        snapshot=first,
        post=post.id,
        user=world.author,
    )
    before = metrics.STAGING_CONFLICTS._value.get()
    world.set(post, words("x"))
    assert metrics.STAGING_CONFLICTS._value.get() == before + 1
    rows = {str(row.snapshot_id): (row.status, row.reason) for row in world.intents()}
    assert rows == {first: ("Quarantined", "PostDeleted"), second: ("Done", "BlockReplaced")}


@pytest.mark.req("G15", "J20")
@pytest.mark.parametrize("first", ["set", "delete"])
def test_set_blocks_and_delete_take_turns(world: World, first: str) -> None:
    selection = world.selection()
    post = world.post(embed(selection), embed(selection))
    _, kept = post.snapshots
    acts: dict[str, Callable[[], Any]] = {
        "set": lambda: world.put(post, keep(kept), etag="*"),
        "delete": lambda: world.delete(post),
    }
    order = [first, *(act for act in acts if act != first)]
    answers: dict[str, int] = {}

    def ask(act: str) -> None:
        answers[act] = acts[act]().status_code

    def waiting() -> int:
        [row] = world.rows("""
            SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'pin-web' AND wait_event_type = 'Lock'
        """)
        return int(row[0])

    threads = [threading.Thread(target=ask, args=(act,)) for act in order]
    with world.engine.connect() as holder:
        holder.exec_driver_sql("SELECT 1 FROM news.post FOR UPDATE")
        for number, thread in enumerate(threads, start=1):
            thread.start()
            eventually(lambda number=number: waiting() == number)  # type: ignore[misc]
        holder.rollback()
    for thread in threads:
        thread.join(20)
    assert answers == ({"set": 200, "delete": 204} if first == "set" else {"set": 409, "delete": 204})
    reasons = {str(i.snapshot_id): i.reason for i in world.intents()}
    other = "BlockReplaced" if first == "set" else "PostDeleted"
    assert reasons == {post.snapshots[0]: other, kept: "PostDeleted"}
    assert {world.snapshot(one).detach_reason for one in post.snapshots} == {other, "PostDeleted"}


@pytest.mark.req("J19")
def test_nothing_that_goes_wrong_after_the_commit_fails_the_request(world: World) -> None:
    post = world.post(embed(world.selection()))

    def broken(_entries: object, _deadline: float) -> None:
        raise RuntimeError("out of threads")

    deps = build_deps(world.settings)
    try:
        desk = replace(desk_of(deps), first_attempts=broken)
        delete_post(desk, Author(world.author, world.tenant), UUID(post.id), expected=None)
    finally:
        deps.close()
    assert world.get(post)["status"] == "Archived"
    assert [(row.status, row.attempts) for row in world.intents()] == [("Pending", 0)]
