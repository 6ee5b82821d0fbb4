"""Bulkheads: whoever waits for a silent selections holds up nobody else (A63)."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY

from pin.config.sections import WebOptions
from tests.news.proxy import Exchange, passes
from tests.news.world import PostAs, World, embed, words
from tests.waiting import eventually

WRITERS = 50


@contextmanager
def silent(world: World, method: str) -> Iterator[threading.Event]:
    """Selections says nothing to such requests until the event is set."""
    speaks = threading.Event()

    def does(exchange: Exchange) -> None:
        if exchange.method == method:
            speaks.wait(30)
        passes(exchange)

    world.proxy.does = does
    try:
        yield speaks
    finally:
        speaks.set()
        world.proxy.does = passes


@contextmanager
def at_once(work: Sequence[Callable[[], httpx.Response]]) -> Iterator[list[Future[httpx.Response]]]:
    """All of them under way, each in a thread of its own; every one has ended after."""
    with ThreadPoolExecutor(max_workers=len(work)) as threads:
        yield [threads.submit(one) for one in work]


def writers_of(world: World, count: int) -> list[Callable[[], httpx.Response]]:
    """set-blocks on as many posts, each with a snapshot to create."""
    selection = world.selection()
    posts = [world.post(words("a")) for _ in range(count)]

    def writer(post: PostAs) -> Callable[[], httpx.Response]:
        return lambda: world.put(post, embed(selection))

    return [writer(post) for post in posts]


@pytest.mark.case("A63")
def test_writers_on_a_silent_selections_hold_up_neither_readers_nor_probes(
    make_world: Callable[..., Any],
) -> None:
    world: World = make_world(web=WebOptions(max_writes=WRITERS))
    read = world.post(words("text"))
    writers, late = writers_of(world, WRITERS), writers_of(world, 1)[0]
    refused = _refused("writes")

    with silent(world, "POST") as speaks:
        seen = len(world.proxy.calls("POST"))
        with at_once(writers) as under_way:
            eventually(lambda: len(world.proxy.calls("POST")) - seen == WRITERS)

            assert world.get(read)["id"] == read.id
            assert httpx.get(f"{world.news_url}/health/ready", trust_env=False).status_code == 200
            over_the_ceiling = late()
            assert not any(one.done() for one in under_way), "all of that was answered while every writer waited"

            speaks.set()

    assert (over_the_ceiling.status_code, over_the_ceiling.json()["code"]) == (503, "UNAVAILABLE")
    assert over_the_ceiling.headers["retry-after"] == "1"
    assert _refused("writes") == refused + 1
    assert {one.result().status_code for one in under_way} == {200}


@pytest.mark.case("A63")
def test_readers_whom_selections_keeps_waiting_hold_up_no_others(make_world: Callable[..., Any]) -> None:
    world: World = make_world()
    text_post = world.post(words("text"))
    shown = world.post(embed(world.selection()))
    fresh: World = make_world()  # a process that has not seen the snapshot's contents yet
    fresh.tenant, fresh.author = world.tenant, world.author
    path = f"/posts/{shown.id}"

    with silent(fresh, "GET"), fresh.client() as http, at_once([lambda: http.get(path)] * 40) as under_way:
        eventually(lambda: len(fresh.proxy.calls("GET")) >= 24)
        assert not any(one.done() for one in under_way), "that many wait for selections, one beside the other"

        assert fresh.get(text_post)["id"] == text_post.id

    assert {one.result().status_code for one in under_way} == {200}
    assert {one.result().json()["blocks"][0]["contentUnavailable"] for one in under_way} == {True}


@pytest.mark.case("A63")
def test_writers_who_wait_for_a_locked_row_leave_readers_their_connections(make_world: Callable[..., Any]) -> None:
    world: World = make_world(web=WebOptions(pool_size=4))
    post = world.post(words("a"))

    with world.engine.begin() as holder:
        holder.exec_driver_sql("SELECT FROM news.post WHERE id = %(id)s FOR UPDATE", {"id": post.id})
        with at_once([lambda: world.delete(post)] * 12) as under_way:
            waiting = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            eventually(lambda: world.rows(waiting)[0].n == 4)

            assert world.get(post)["id"] == post.id
            assert not any(one.done() for one in under_way)
            holder.rollback()

    assert {one.result().status_code for one in under_way} == {204}


def _refused(lane: str) -> float:
    return REGISTRY.get_sample_value("web_lane_refusals_total", {"lane": lane}) or 0.0
