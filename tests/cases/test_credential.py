"""Our own credential's faults are not charged to the rows: a token endpoint that renews, fails, trickles (A8)."""

import base64
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import pytest
from sqlalchemy import Engine

from db.outbox.runs import RunResult
from pin.access import token_endpoint
from pin.access.machine_tokens import MachineTokens as TokenSource
from pin.config.faults import SettingsError
from pin.config.loading import load_settings
from pin.config.sections import AuthOptions, WorkerOptions
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from pin.outgoing.detach import DetachCall
from pin.outgoing.selections import SelectionsClient
from pin.outgoing.tokens import TokenError
from tests.fake_selections import JSON, Call, Close, FakeSelections, Gate, Pause, Script, detached, reply, trickling
from tests.job.conftest import MakeJobSettings
from tests.job.scene import FAST, active_snapshots, query, rows, stage, working
from tests.timetravel import wall_clock_at
from tests.waiting import eventually

MakeJob = Callable[[Settings], RetryJob]
PROXY = reply(401, b"<html><h1>Sign in</h1></html>", content_type="text/html")


@pytest.fixture
def endpoint() -> Iterator[FakeSelections]:
    """A token endpoint: it grants token-1, token-2, …, each good for an hour."""
    with FakeSelections() as serving:
        serving.answer = lambda _call: granted(f"token-{len(serving.calls)}")
        yield serving


@pytest.fixture
def auth(endpoint: FakeSelections, tmp_path: Path) -> AuthOptions:
    secret = tmp_path / "secret"
    secret.write_text("s3cr:et\n")
    return AuthOptions(token_url=f"{endpoint.url}/oauth/token", client_secret_file=secret)


def granted(token: object, **changed: Any) -> Script:
    return reply(
        200, json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 3600} | changed).encode()
    )


def bearer_of(call: Call) -> str:
    return (call.header("authorization") or "").removeprefix("Bearer ")


@pytest.mark.case("A8")
@pytest.mark.req("G3", "J14")
def test_a_token_that_ends_after_row_three_of_fifty_is_renewed_once_and_no_row_notices(
    engine: Engine,
    job_settings: MakeJobSettings,
    make_retry_job: MakeJob,
    selections: FakeSelections,
    endpoint: FakeSelections,
    auth: AuthOptions,
) -> None:
    selections.answer = lambda call: (
        PROXY if bearer_of(call) == "token-1" and len(selections.calls) > 3 else detached(call)
    )
    settings = job_settings(selections.url, auth=auth)
    entries = stage(engine, active_snapshots(engine, 50))
    with working(settings):
        summary = retry_job.run(make_retry_job(settings), Event())
    assert (summary.result, summary.outcomes.succeeded) == (RunResult.COMPLETED, 50)
    assert {(r.status, r.attempts) for r in rows(engine, entries)} == {("Done", 1)}
    assert len(endpoint.calls) == 2
    asked = endpoint.calls[0]
    assert parse_qs(asked.body.decode()) == {"grant_type": ["client_credentials"]}
    assert asked.header("authorization") == "Basic " + base64.b64encode(b"news:s3cr%3Aet").decode()
    assert {bearer_of(call) for call in selections.calls} == {"token-1", "token-2"}


@pytest.mark.case("A8")
@pytest.mark.req("G3", "J14", "J33")
def test_an_endpoint_down_for_two_minutes_stops_the_pass_says_why_and_quarantines_nothing(
    engine: Engine,
    job_settings: MakeJobSettings,
    make_retry_job: MakeJob,
    selections: FakeSelections,
    endpoint: FakeSelections,
    auth: AuthOptions,
) -> None:
    endpoint.answer = lambda _call: [Close()]
    retry = FAST["retry"].model_copy(update={"batch_size": 10})
    queue = FAST["queue"].model_copy(update={"max_batches_in_flight": 1})
    settings = job_settings(selections.url, auth=auth, retry=retry, queue=queue)
    with wall_clock_at("2026-03-01T12:00:00+00:00") as clock, working(settings):
        entries = stage(engine, active_snapshots(engine, 30))
        job = make_retry_job(settings)
        down = [retry_job.run(job, Event())]
        clock.forward(timedelta(minutes=2))
        down.append(retry_job.run(job, Event()))
        assert {r.status for r in rows(engine, entries)} == {"Pending"}
        assert selections.calls == []
        assert sum(run.claimed for run in down) < 60, "the pass has stopped"
        endpoint.answer = lambda _call: granted("good")

        def ticked() -> bool:
            clock.forward(timedelta(minutes=5))
            retry_job.run(job, Event())
            return {r.status for r in rows(engine, entries)} == {"Done"}

        eventually(ticked, within=20)
    assert [run.result for run in down] == [RunResult.HALTED] * 2
    halted = query(engine, "SELECT halted_by FROM news.snapshot_detach_run WHERE result = 'Halted'")
    assert {r.halted_by for r in halted} == {"CREDENTIAL"}


@pytest.mark.case("A8")
@pytest.mark.req("G3", "J14")
def test_a_401_that_a_new_token_does_not_mend_stops_the_pass_after_one_renewal(
    engine: Engine,
    job_settings: MakeJobSettings,
    make_retry_job: MakeJob,
    selections: FakeSelections,
    endpoint: FakeSelections,
    auth: AuthOptions,
) -> None:
    selections.answer = lambda _call: PROXY
    worker = WorkerOptions(time_limit=timedelta(seconds=15), concurrency=10)
    settings = job_settings(selections.url, auth=auth, worker=worker)
    stage(engine, active_snapshots(engine, 50))
    with working(settings):
        summary = retry_job.run(make_retry_job(settings), Event())
    assert summary.result is RunResult.HALTED
    assert query(engine, "SELECT halted_by FROM news.snapshot_detach_run")[0].halted_by == "HTTP 401"
    assert {r.status for r in rows(engine)} == {"Pending"}
    assert max(Counter(call.path for call in selections.calls).values()) == 2, "one repeat a call, no more"
    assert len(selections.calls) < 50
    assert len(endpoint.calls) < 50


@pytest.mark.case("A8")
@pytest.mark.req("J14")
@pytest.mark.parametrize(
    "answer",
    [
        reply(500, b"secret of the endpoint"),
        reply(401, b"{}"),
        reply(302, headers=[("Location", "/oauth/token")]),
        reply(200, b"<html>", content_type="text/html"),
        reply(200, b"[" * 3000),
        granted(5),
        granted(""),
        granted("two words"),
        granted("line\r\nX-Evil: 1"),
        granted("\u0442\u043e\u043a\u0435\u043d"),
        granted("x" * 9000),
        granted("t", token_type="mac"),
        granted("t", expires_in="soon"),
        granted("t", expires_in="1e999"),
        reply(200, b"\xff\xfe", content_type=JSON),
        [Close()],
    ],
)
def test_whatever_else_the_endpoint_says_is_no_token_and_says_nothing_of_itself(
    endpoint: FakeSelections, auth: AuthOptions, answer: Script
) -> None:
    endpoint.answer = lambda _call: answer
    source = TokenSource.from_settings(auth)
    with pytest.raises(TokenError) as refused:
        source.token()
    assert "secret" not in str(refused.value)
    assert source.at_hand() is None
    with pytest.raises(TokenError):
        source.token()
    assert len(endpoint.calls) == 1, "an endpoint that has just failed is not asked by every call of a batch"


def _in_segments(body: bytes) -> Script:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return [head + body[:20], Pause(0.05), body[20:]]


def _in_chunks(body: bytes) -> Script:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    pieces = [f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in (body[:20], body[20:])]
    return [head + pieces[0], Pause(0.05), pieces[1] + b"0\r\n\r\n"]


@pytest.mark.case("A58")
@pytest.mark.req("G3", "J14")
@pytest.mark.parametrize("sent", [_in_segments, _in_chunks])
def test_a_grant_that_comes_in_two_pieces_is_read_to_its_end(
    endpoint: FakeSelections, auth: AuthOptions, sent: Callable[[bytes], Script]
) -> None:
    grant = {"access_token": "whole" * 100, "token_type": "Bearer", "expires_in": 3600}
    endpoint.answer = lambda _call: sent(json.dumps(grant).encode())
    assert TokenSource.from_settings(auth).token() == "whole" * 100


@pytest.mark.case("A8", "A4")
@pytest.mark.req("J14")
def test_a_trickling_endpoint_meets_a_total_deadline(endpoint: FakeSelections, auth: AuthOptions) -> None:
    endpoint.answer = lambda _call: trickling([b"H", b"T", b"T", b"P", *[b"/"] * 100], 0.1)
    assert auth.token_url is not None
    assert auth.client_secret_file is not None
    began = time.monotonic()
    with pytest.raises(OSError, match="took too long"):
        token_endpoint.fetch_token(auth.token_url, "news", auth.client_secret_file, timeout=0.5)
    assert time.monotonic() - began < 3


@pytest.mark.case("A8", "A2")
@pytest.mark.req("J14")
@pytest.mark.parametrize(
    ("lifetime", "after", "asked"),
    [
        (3600, 3500, 1),
        (3600, 3541, 2),
        (60, 40, 1),
        (60, 46, 2),
        (10**18, 80_000, 1),
        (None, 10**6, 1),
        (-5, 10**6, 1),
    ],
)
def test_a_token_is_renewed_shortly_before_its_end_however_the_endpoint_puts_it(
    endpoint: FakeSelections, auth: AuthOptions, lifetime: int | None, after: int, asked: int
) -> None:
    endpoint.answer = lambda _call: granted(f"token-{len(endpoint.calls)}", expires_in=lifetime)
    with wall_clock_at("2026-03-01T12:00:00+00:00") as clock:
        source = TokenSource.from_settings(auth)
        assert source.at_hand() is None
        assert source.token() == source.at_hand() == "token-1"
        clock.forward(timedelta(seconds=after))
        assert source.token() == f"token-{asked}"
    assert len(endpoint.calls) == asked


@pytest.mark.req("J7")
def test_an_endpoint_without_a_secret_is_refused_at_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=r"auth\.client_secret_file"):
        load_settings({"auth": {"token_url": "http://127.0.0.1:9/token"}})
    with pytest.raises(SettingsError, match=r"auth\.token_url"):
        load_settings({"auth": {"token_url": "nonsense", "client_secret_file": str(tmp_path / "secret")}})


@pytest.mark.case("A61")
@pytest.mark.req("G3", "J14")
def test_a_token_is_used_to_its_end_while_its_renewal_fails(endpoint: FakeSelections, auth: AuthOptions) -> None:
    with wall_clock_at("2026-03-01T12:00:00+00:00") as clock:
        source = TokenSource.from_settings(auth)
        assert source.token() == "token-1"
        endpoint.answer = lambda _call: reply(503)
        clock.forward(timedelta(seconds=3545))
        assert source.at_hand() is None, "it is time for another"
        assert source.token() == source.at_hand() == source.token() == "token-1"
        assert len(endpoint.calls) == 2, "one attempt, and then a while none"
        clock.forward(timedelta(seconds=60))
        assert source.at_hand() is None
        with pytest.raises(TokenError):
            source.token()


@pytest.mark.case("A61")
@pytest.mark.req("G3", "J14")
def test_a_valid_token_is_at_hand_while_another_is_being_fetched(endpoint: FakeSelections, auth: AuthOptions) -> None:
    with wall_clock_at("2026-03-01T12:00:00+00:00") as clock:
        source = TokenSource.from_settings(auth)
        assert source.token() == "token-1"
        slow = Gate()
        endpoint.answer = lambda _call: [slow, *granted("token-2")]
        clock.forward(timedelta(seconds=3545))
        with ThreadPoolExecutor(1) as pool:
            fetching = pool.submit(source.token)
            endpoint.arrived(2)
            assert source.token() == source.at_hand() == "token-1"
            slow.open()
            assert fetching.result(timeout=10) == "token-2"
        assert source.at_hand() == "token-2"


@pytest.mark.case("A61")
@pytest.mark.req("G3", "J14")
def test_two_hundred_calls_that_are_answered_401_fetch_two_tokens(
    endpoint: FakeSelections, selections: FakeSelections, auth: AuthOptions
) -> None:
    selections.answer = lambda _call: PROXY
    client = SelectionsClient(selections.url, TokenSource.from_settings(auth), concurrency=1)
    try:
        for number in range(1, 201):
            call = DetachCall(UUID(int=number), "PostDeleted", UUID(int=77))
            (found,) = client.detach_all([call], call_timeout=timedelta(seconds=5), deadline=time.monotonic() + 30)
            assert found is not None
            assert found.error == "HTTP 401"
    finally:
        client.close()
    assert len(endpoint.calls) == 2
    assert len(selections.calls) == 201, "a call is asked again only with another token"


@pytest.mark.case("A61")
@pytest.mark.req("G3")
def test_secret_token_file_and_key_are_read_again_once_they_are_replaced(
    endpoint: FakeSelections, auth: AuthOptions, tmp_path: Path
) -> None:
    with wall_clock_at("2026-03-01T12:00:00+00:00") as clock:
        file = tmp_path / "token"
        file.write_text("one")
        by_file, by_endpoint = (
            TokenSource.from_settings(AuthOptions(m2m_token_file=file)),
            TokenSource.from_settings(auth),
        )
        assert (by_file.token(), by_endpoint.token()) == ("one", "token-1")
        file.write_text("two")
        clock.forward(timedelta(seconds=11))
        assert by_file.token() == "two"
        file.unlink()
        clock.forward(timedelta(seconds=11))
        assert by_file.token() == "two", "a file that is being replaced takes no token away"
        assert auth.client_secret_file is not None
        auth.client_secret_file.write_text("another")
        clock.forward(timedelta(hours=1))
        assert by_endpoint.token() == "token-2"
    sent = [base64.b64decode((call.header("authorization") or "")[6:]).decode() for call in endpoint.calls]
    assert sent == ["news:s3cr%3Aet", "news:another"]
