"""Several at once on one snapshot: the first wins, and every other is told so (D8, A19, G13)."""

import contextlib
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Engine, text

from db import selections as store
from pin.clock import utc_now
from pin.rules.contract import DETACH_PATH, CreateSnapshotRequest, Reason
from pin.selections.snapshots import (
    SnapshotIdRefusedError,
    SnapshotNotFoundError,
    _detach,
    create_snapshot,
    detach_snapshot,
)
from tests.selections.api import Api, events, refusal, row
from tests.waiting import eventually


@pytest.mark.req("D8", "D7")
@pytest.mark.case("A19")
def test_all_have_read_active_before_any_writes(api: Api, engine: Engine) -> None:
    snapshot_id, all_have_read = api.snapshot(), threading.Barrier(8)

    def detach(number: int) -> tuple[bool, str]:
        with engine.begin() as connection:
            seen = store.read_state(connection, snapshot_id)
            assert seen is not None
            assert seen.status is store.SnapshotRowStatus.ACTIVE
            all_have_read.wait(20)
            done = _detach(connection, seen, list(Reason)[number % 2], uuid4(), uuid4(), utc_now())
            return done.noop, done.reason

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(detach, range(8)))
    assert sorted(noop for noop, _ in done) == [False] + [True] * 7
    assert len({reason for _, reason in done}) == 1
    assert len(events(engine, snapshot_id)) == 1


@pytest.mark.req("D8")
def test_the_loser_waits_for_the_winner_and_changes_nothing(api: Api, engine: Engine) -> None:
    snapshot_id = api.snapshot()
    with engine.connect() as winner, ThreadPoolExecutor(1) as pool:
        seen = store.read_state(winner, snapshot_id)
        assert seen is not None
        assert _store_detach(winner, seen, Reason.POST_DELETED)
        loser = pool.submit(
            detach_snapshot,
            engine,
            snapshot_id,
            reason=Reason.BLOCK_REPLACED,
            requested_by_user_id=uuid4(),
            event_id=uuid4(),
            now=utc_now(),
        )
        _until_blocked(engine, loser)
        winner.commit()
        done = loser.result(10)
    assert (done.noop, done.reason) == (True, Reason.POST_DELETED)
    assert row(engine, snapshot_id)["version"] == 1


@pytest.mark.req("D7")
@pytest.mark.case("A19")
def test_a_reply_that_was_lost_and_then_the_other_reason(api: Api, engine: Engine) -> None:
    snapshot_id = api.snapshot()
    host = urlsplit(str(api.client.base_url))
    body = f'{{"reason":"PostDeleted","requestedByUserId":"{uuid4()}"}}'.encode()
    head = (
        f"POST {DETACH_PATH.format(id=snapshot_id)} HTTP/1.1\r\nHost: {host.netloc}\r\n"
        f"Authorization: {api.news['Authorization']}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host.hostname or "", host.port or 0)) as connection:
        connection.sendall(head.encode() + body)
        eventually(lambda: row(engine, snapshot_id)["status"] == "Detached")
    again = api.detach(snapshot_id, "BlockReplaced")
    assert (again.status_code, again.json()["detachReason"]) == (200, "PostDeleted")
    assert len(events(engine, snapshot_id)) == 1


@pytest.mark.req("G13", "D4")
def test_an_id_once_answered_not_found_can_never_be_made(api: Api, engine: Engine) -> None:
    snapshot_id, selection_id = uuid4(), api.selection()
    for _ in range(2):
        assert refusal(api.detach(snapshot_id)) == (404, "SELECTIONS_SNAPSHOT_NOT_FOUND")
        assert refusal(api.get(snapshot_id)) == (404, "SELECTIONS_SNAPSHOT_NOT_FOUND")
        assert refusal(api.create(snapshot_id, selection_id)) == (409, "SELECTIONS_SNAPSHOT_ID_REFUSED")
    assert refusal(api.create(snapshot_id, uuid4())) == (409, "SELECTIONS_SNAPSHOT_ID_REFUSED")
    assert row(engine, snapshot_id)["status"] == "Tombstone"
    assert events(engine, snapshot_id) == []


@pytest.mark.req("G13", "D17")
def test_an_id_that_was_made_first_is_detached(api: Api, engine: Engine) -> None:
    snapshot_id = api.snapshot()
    assert api.detach(snapshot_id).status_code == 200
    assert row(engine, snapshot_id)["status"] == "Detached"


@pytest.mark.req("G13", "D17")
def test_create_and_detach_at_once_never_leave_an_active_snapshot_behind_a_404(api: Api, engine: Engine) -> None:
    selection_id = api.selection()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(25):
            snapshot_id, together = uuid4(), threading.Barrier(2)

            def create(id_: UUID = snapshot_id, start: threading.Barrier = together) -> int:
                start.wait(20)
                return api.create(id_, selection_id).status_code

            def detach(id_: UUID = snapshot_id, start: threading.Barrier = together) -> int:
                start.wait(20)
                return api.detach(id_).status_code

            created, detached = pool.submit(create), pool.submit(detach)
            outcome = created.result(20), detached.result(20), row(engine, snapshot_id)["status"]
            assert outcome in {(201, 200, "Detached"), (409, 404, "Tombstone")}


@pytest.mark.req("G13")
@pytest.mark.parametrize("tombstone_commits", [True, False])
def test_a_create_waits_for_a_tombstone_under_way(api: Api, engine: Engine, *, tombstone_commits: bool) -> None:
    request = CreateSnapshotRequest(
        snapshot_id=uuid4(), selection_id=api.selection(), tenant_id=api.tenant, requested_by_user_id=api.owner
    )
    with engine.connect() as first, ThreadPoolExecutor(1) as pool:
        assert store.leave_tombstone(first, request.snapshot_id, utc_now())
        create = pool.submit(create_snapshot, engine, request, utc_now())
        _until_blocked(engine, create)
        (first.commit if tombstone_commits else first.rollback)()
        with pytest.raises(SnapshotIdRefusedError) if tombstone_commits else contextlib.nullcontext():
            create.result(10)
    assert row(engine, request.snapshot_id)["status"] == ("Tombstone" if tombstone_commits else "Active")


@pytest.mark.req("G13")
@pytest.mark.parametrize("create_commits", [True, False])
def test_a_tombstone_waits_for_a_create_under_way(api: Api, engine: Engine, *, create_commits: bool) -> None:
    snapshot_id = uuid4()
    values = {"selection_id": api.selection(), "tenant_id": api.tenant, "requested_by_user_id": api.owner}
    with engine.connect() as first, ThreadPoolExecutor(1) as pool:
        assert store.create_snapshot(first, snapshot_id=snapshot_id, now=utc_now(), **values)
        detach = pool.submit(
            detach_snapshot,
            engine,
            snapshot_id,
            reason=Reason.BLOCK_REPLACED,
            requested_by_user_id=uuid4(),
            event_id=uuid4(),
            now=utc_now(),
        )
        _until_blocked(engine, detach)
        (first.commit if create_commits else first.rollback)()
        with contextlib.nullcontext() if create_commits else pytest.raises(SnapshotNotFoundError):
            assert not detach.result(10).noop
    assert row(engine, snapshot_id)["status"] == ("Detached" if create_commits else "Tombstone")


def _store_detach(connection: Connection, seen: store.SnapshotState, reason: Reason) -> bool:
    detached_at = store.detach(
        connection, seen, reason=reason, requested_by_user_id=uuid4(), event_id=uuid4(), now=utc_now()
    )
    return detached_at is not None


def _until_blocked(engine: Engine, work: Future[Any]) -> None:
    def blocked() -> bool:
        assert not work.done(), "it should have waited"
        return _blocked_sessions(engine) > 0

    eventually(blocked)


def _blocked_sessions(engine: Engine) -> int:
    statement = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with engine.connect() as connection:
        return int(connection.execute(statement).scalar_one())
