"""Create, switch, detach: wherever a request ends, no Active snapshot stays that no block shows (D17, G13–G15)."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from db.outbox.intents import by_id
from pin.access.machine_tokens import MachineTokens as TokenSource
from pin.job import delivery
from pin.outgoing.selections import SelectionsClient
from tests.news.proxy import Exchange, passes
from tests.news.world import World, embed, keep, words
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)

CREATED = "SELECT id, status FROM selections.snapshot ORDER BY created_at DESC LIMIT 1"


def on_create(does: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    """Do this to create-snapshot; pass the rest."""
    return lambda exchange: does(exchange) if exchange.path.endswith("/snapshots") else passes(exchange)


def fire_guards(world: World) -> None:
    """What the job does once they are due: call detach for each guard and record what came of it."""
    source = TokenSource.from_settings(world.settings.auth)
    client = SelectionsClient(world.selections_url, source)
    try:
        with world.engine.connect() as connection:
            entries = by_id(connection, [row.id for row in world.intents(guards=True)])
        delivery.first_attempts(
            entries,
            engine=world.engine,
            client=client,
            policy=delivery.policy_of(world.settings.retry),
            call_timeout=timedelta(seconds=5),
            deadline=float("inf"),
        )
    finally:
        client.close()


@pytest.mark.req("G13")
def test_a_guard_stands_before_the_create_and_goes_with_the_switch(world: World) -> None:
    seen: list[tuple[str, int, str, timedelta, int]] = []

    def look(exchange: Exchange) -> None:
        [guard] = world.intents(guards=True)
        seen.append((guard.status, guard.version, guard.reason, guard.next_attempt_at - guard.created_at, 0))
        assert guard.snapshot_id.hex in exchange.body.decode().replace("-", "")
        assert guard.requested_by_user_id == world.author
        passes(exchange)

    post = world.post(words("x"))
    selection = world.selection()
    world.proxy.does = on_create(look)
    world.set(post, embed(selection))
    assert seen == [("Pending", 0, "BlockReplaced", world.settings.web.request_timeout, 0)]
    assert not world.rows("SELECT * FROM news.snapshot_detach_outbox")


@pytest.mark.req("D17", "G13")
@pytest.mark.case("A5")
@pytest.mark.parametrize("act", ["create", "set"])
def test_a_create_whose_reply_is_lost_leaves_a_guard_that_detaches_it(world: World, act: str) -> None:
    selection = world.selection()
    post = world.post(words("x"))

    def lose(exchange: Exchange) -> None:
        exchange.forward()

    world.proxy.does = on_create(lose)
    if act == "set":
        answer = world.put(post, embed(selection))
    else:
        with world.client() as http:
            answer = http.post("/posts", json={"title": "News", "blocks": [embed(selection)]})
    assert (answer.status_code, answer.json()["code"]) == (503, "NEWS_SELECTIONS_UNAVAILABLE")
    assert len(world.rows("SELECT * FROM news.post")) == 1
    assert world.get(post)["version"] == 1
    [snapshot] = world.rows(CREATED)
    [guard] = world.intents(guards=True)
    assert (guard.snapshot_id, guard.status, guard.version) == (snapshot.id, "Pending", 0)
    assert (snapshot.status, guard.next_attempt_at - guard.created_at) == ("Active", timedelta(seconds=30))
    fire_guards(world)
    assert (world.snapshot(snapshot.id).status, world.snapshot(snapshot.id).detach_reason) == (
        "Detached",
        "BlockReplaced",
    )
    assert [row.status for row in world.intents(guards=True)] == ["Done"]


@pytest.mark.req("D17", "G13")
def test_a_create_that_arrives_after_its_guard_fired_is_refused(make_world: Callable[..., World]) -> None:
    world = make_world(web={"create_timeout": timedelta(seconds=0.5)})
    selection = world.selection()
    post = world.post(words("x"))
    late = threading.Event()
    answers: list[tuple[int, str, bytes]] = []

    def be_late(exchange: Exchange) -> None:
        late.wait(30)
        answers.append(exchange.forward())

    world.proxy.does = on_create(be_late)
    answer = world.put(post, embed(selection))
    assert answer.json()["code"] == "NEWS_SELECTIONS_UNAVAILABLE"
    fire_guards(world)
    [guard] = world.intents(guards=True)
    assert (guard.status, world.snapshot(guard.snapshot_id).status) == ("Done", "Tombstone")
    late.set()
    [(status, _, body)] = eventually(lambda: answers)
    assert (status, b"SELECTIONS_SNAPSHOT_ID_REFUSED" in body) == (409, True)
    assert world.snapshot(guard.snapshot_id).status == "Tombstone"
    assert world.get(post)["version"] == 1


@pytest.mark.req("G13")
def test_an_id_refused_by_selections_fails_the_request(world: World) -> None:
    selection = world.selection()
    post = world.post(words("x"))

    def fire_first(exchange: Exchange) -> None:
        fire_guards(world)
        passes(exchange)

    world.proxy.does = on_create(fire_first)
    answer = world.put(post, embed(selection))
    assert (answer.status_code, answer.json()["code"]) == (409, "NEWS_SWITCH_REFUSED")
    assert world.get(post)["version"] == 1


@pytest.mark.req("G13")
@pytest.mark.parametrize("act", ["create", "set"])
def test_a_guard_touched_by_the_job_fails_the_request_and_stays(world: World, act: str) -> None:
    selection = world.selection()
    post = world.post(embed(selection))

    def claim_after(exchange: Exchange) -> None:
        reply = exchange.forward()
        world.execute("""
            UPDATE news.snapshot_detach_outbox SET attempts = 1, version = 1, outcome_due = true
            WHERE id = (SELECT min(id::text)::uuid FROM news.snapshot_detach_outbox WHERE is_guard)
        """)
        exchange.answer(*reply)

    world.proxy.does = on_create(claim_after)
    blocks = [embed(selection), embed(selection)]
    if act == "set":
        answer = world.put(post, *blocks)
    else:
        with world.client() as http:
            answer = http.post("/posts", json={"title": "News", "blocks": blocks})
    assert (answer.status_code, answer.json()["code"]) == (409, "NEWS_SWITCH_REFUSED")
    assert sorted(row.version for row in world.intents(guards=True)) == [0, 1]
    assert not world.intents()
    assert len(world.rows("SELECT * FROM news.post")) == 1
    assert world.get(post)["version"] == 1
    assert world.snapshot(post.snapshots[0]).status == "Active"


@pytest.mark.req("G14", "G15", "G13")
@pytest.mark.parametrize(
    ("meanwhile", "status", "code"),
    [
        ("set", 412, "PRECONDITION_FAILED"),
        ("drop", 409, "NEWS_SNAPSHOT_NOT_SHOWN"),
        ("delete", 409, "NEWS_POST_STATE_CONFLICT"),
    ],
)
def test_what_changed_during_the_create_is_seen_under_the_lock(
    world: World, meanwhile: str, status: int, code: str
) -> None:
    selection = world.selection()
    post = world.post(embed(selection))
    [shown] = post.snapshots

    def change(exchange: Exchange) -> None:
        match meanwhile:
            case "set":
                assert world.put(post, keep(shown), words("theirs")).status_code == 200
            case "drop":
                assert world.put(post, words("theirs")).status_code == 200
            case _:
                assert world.delete(post).status_code == 204
        passes(exchange)

    world.proxy.does = on_create(change)
    etag = post.etag if meanwhile == "set" else "*"
    answer = world.put(post, keep(shown), embed(selection), etag=etag)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert words("mine") not in world.get(post)["blocks"]
    [guard] = world.intents(guards=True)
    assert (guard.status, guard.version, world.snapshot(guard.snapshot_id).status) == ("Pending", 0, "Active")
    fire_guards(world)
    assert world.snapshot(guard.snapshot_id).status == "Detached"
    expected = {"set": "Active", "drop": "Detached", "delete": "Detached"}
    assert world.snapshot(shown).status == expected[meanwhile]


@pytest.mark.req("G13")
def test_one_refused_selection_leaves_no_half_of_the_blocks(world: World) -> None:
    good, bad = world.selection(), "8f14e45f-ceea-467f-a8d3-a0b5a3f1c001"
    post = world.post(words("x"))
    answer = world.put(post, embed(good), embed(good), embed(bad))
    assert answer.json()["errors"][0]["field"] == "$.blocks[2].selectionId"
    assert len(world.intents(guards=True)) == 3
    fire_guards(world)
    assert {row.status for row in world.intents(guards=True)} == {"Done"}
    assert not world.rows("SELECT * FROM selections.snapshot WHERE status = 'Active'")
