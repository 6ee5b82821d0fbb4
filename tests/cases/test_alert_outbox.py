"""Alerts as an outbox of their own: one row an event and a sink, and none holds up another (A44, A43, G27)."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, text

from actors.alert import announce
from db.outbox import alerts as store
from pin.clock import new_id, utc_now
from pin.config.sections import AlertOptions
from pin.config.settings import Settings
from pin.job import alerting
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from pin.operations import pause, purge
from pin.rules.alerts import AlertState, QuarantinedEvent
from tests.cases.fleet import Fleet
from tests.job.conftest import MakeJobSettings
from tests.job.scene import active_snapshots, change, query, rows, stage, working
from tests.serving import Keys
from tests.telemetry.receivers import Receiver
from tests.timetravel import wall_clock_at
from tests.waiting import eventually

MakeJob = Callable[[Settings], RetryJob]

pytestmark = [pytest.mark.req("G27"), pytest.mark.case("A44")]

DAY = timedelta(days=1)


def spent(engine: Engine, count: int = 1) -> list[UUID]:
    """Entries that the next run quarantines; answers their snapshots, in order."""
    snapshots = [new_id() for _ in range(count)]
    entries = stage(engine, snapshots)
    change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 13 WHERE id = ANY(:ids)", ids=entries)
    return snapshots


def quarantined(engine: Engine, count: int = 1, status: str = "Done") -> list[UUID]:
    """Events as the job writes them, untold, of entries of this status; answers the events' ids."""
    now = utc_now()
    entries = stage(engine, [new_id() for _ in range(count)], now=now - 9 * DAY)
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = :status", status=status)
    events = [
        QuarantinedEvent(new_id(), entry, new_id(), new_id(), "PostDeleted", 12, "HTTP 503", now) for entry in entries
    ]
    with engine.begin() as connection:
        store.write_events(connection, events, now, timedelta(minutes=1))
    return [event.id for event in events]


def states(engine: Engine, sink: str) -> dict[str, int]:
    """How many alerts of a sink are in each state."""
    counted = "SELECT state, count(*) AS n FROM news.snapshot_detach_alert WHERE sink = :sink GROUP BY state"
    return {row.state: row.n for row in query(engine, counted, sink=sink)}


def one(engine: Engine, sink: str) -> Any:
    """The one row of a sink; None before there is one."""
    found = query(engine, "SELECT * FROM news.snapshot_detach_alert WHERE sink = :sink", sink=sink)
    assert len(found) <= 1
    return found[0] if found else None


def all_due(engine: Engine) -> None:
    """Leases and backoffs are over."""
    change(engine, "UPDATE news.snapshot_detach_alert SET next_try_at = next_try_at - interval '1 hour'")


def both(manager: Receiver, webhook: Receiver, timeout: float = 5.0) -> AlertOptions:
    return AlertOptions(
        alertmanager_url=manager.url, webhook_url=SecretStr(webhook.url), timeout=timedelta(seconds=timeout)
    )


@pytest.mark.parametrize("status", [400, 500], ids=["refused", "the sink fails on it"])
def test_one_event_that_a_sink_does_not_take_holds_up_no_other(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, status: int
) -> None:
    bad = str(spent(engine, 150)[70]).encode()
    with Receiver() as manager, Receiver(judge=lambda body: status if bad in body else None) as webhook:
        settings = job_settings(alerts=both(manager, webhook))
        with working(settings):
            retry_job.run(make_retry_job(settings), Event())
            eventually(lambda: states(engine, "webhook") == {"Told": 149, "Untold": 1})
            eventually(lambda: states(engine, "alertmanager") == {"Told": 150})
            eventually(lambda: query(engine, "SELECT FROM news.snapshot_detach_alert WHERE last_error IS NOT NULL"))
    (left,) = query(engine, "SELECT * FROM news.snapshot_detach_alert WHERE state = 'Untold'")
    assert (left.sink, left.tries, left.last_error) == ("webhook", 1, f"HTTP {status}")
    assert left.next_try_at > utc_now()
    assert len(webhook.posted) < 60, "split, not sent one by one"


def test_a_sink_that_hangs_holds_up_no_delivery_and_no_other_sink(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    with Receiver() as manager, Receiver() as webhook:
        webhook.hold.clear()
        settings = job_settings(selections_url, alerts=both(manager, webhook, timeout=7.0))
        job = make_retry_job(settings)
        with working(settings, threads=1):
            spent(engine)
            retry_job.run(job, Event())
            eventually(lambda: webhook.posted)
            entries = stage(engine, active_snapshots(engine, 20))
            retry_job.run(job, Event())
            assert {row.status for row in rows(engine, entries)} == {"Done"}
            spent(engine)
            retry_job.run(job, Event())
            eventually(lambda: states(engine, "alertmanager") == {"Told": 2})
            assert len(webhook.posted) == 1, "the hanging request was over: this test proves nothing"
            assert states(engine, "webhook") == {"Untold": 2}
            webhook.hold.set()
            eventually(lambda: states(engine, "webhook") == {"Told": 2})


@contextmanager
def slow_names(name: str, released: Event) -> Iterator[None]:
    """The resolver does not answer for `name` until then."""
    real = socket.getaddrinfo

    def resolve(host: Any, *rest: Any, **named: Any) -> Any:
        if host in {name, name.encode()}:
            released.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return real(host, *rest, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", resolve)
        yield


@pytest.mark.case("A60")
def test_a_sink_whose_name_takes_longer_than_the_timeout_is_over_by_it(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    answered = Event()
    with Receiver() as manager, slow_names("sink.test", answered):
        options = AlertOptions(
            alertmanager_url=manager.url,
            webhook_url=SecretStr("http://sink.test/T0KEN"),
            timeout=timedelta(milliseconds=500),
        )
        settings = job_settings(alerts=options)
        with working(settings):
            spent(engine)
            retry_job.run(make_retry_job(settings), Event())
            eventually(lambda: (found := one(engine, "webhook")) is not None and found.last_error == "TIMEOUT")
            eventually(lambda: states(engine, "alertmanager") == {"Told": 1})
            assert not answered.is_set()
            answered.set()
    assert not query(engine, "SELECT FROM news.snapshot_detach_alert a WHERE a::text LIKE '%T0KEN%'")


def test_a_sink_that_is_down_for_an_hour_is_told_once_it_is_back(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    with Receiver() as manager, Receiver(status=503) as webhook, wall_clock_at("2026-03-01T12:00:00Z") as clock:
        settings = job_settings(alerts=both(manager, webhook))
        job = make_retry_job(settings)
        with working(settings):
            for told in range(1, 13):  # a tick every five minutes, and a quarantine in each
                spent(engine)
                retry_job.run(job, Event())
                eventually(_at_rest(engine))
                assert states(engine, "alertmanager") == {"Told": told}
                clock.forward(timedelta(minutes=5))
            assert states(engine, "webhook") == {"Untold": 12}
            (oldest, *_) = query(engine, "SELECT * FROM news.snapshot_detach_alert WHERE sink = 'webhook' ORDER BY 1")
            assert (oldest.last_error, 5 <= oldest.tries < 12) == ("HTTP 503", True), "it backs off"
            asked = len(webhook.posted)
            webhook.status = 200
            clock.forward(timedelta(minutes=35))  # the longest backoff
            retry_job.run(job, Event())
            eventually(lambda: states(engine, "webhook") == {"Told": 12})
            assert asked < 12 * 12
    assert not query(engine, "SELECT FROM news.snapshot_detach_quarantined_event WHERE alerted_at IS NULL")


def _at_rest(engine: Engine) -> Callable[[], bool]:
    """No message lies in the queue and no alert is in a worker's hands."""
    busy = """
        SELECT FROM dramatiq.queue WHERE state IN ('queued', 'consumed')
        UNION ALL SELECT FROM news.snapshot_detach_alert WHERE handed_over
    """
    return lambda: not query(engine, busy)


@pytest.mark.req("J29")
def test_no_event_is_purged_before_its_sinks_were_told_or_given_up(engine: Engine) -> None:
    told, untold = quarantined(engine, 2)
    now = utc_now() + DAY
    with engine.begin() as connection:
        store.end(connection, [(told, "log")], AlertState.TOLD, now)
    would = purge.preview(engine, older_than=DAY, now=now)
    assert (would.entries, would.events, would.untold) == (1, 1, 1)
    gone = list(purge.purge(engine, older_than=DAY, actor="ada", reason="space", now=now))
    assert [(part.entries, part.events) for part in gone] == [(1, 1)]
    assert [row.id for row in query(engine, "SELECT id FROM news.snapshot_detach_quarantined_event")] == [untold]
    with engine.begin() as connection:
        store.end(connection, [(untold, "log")], AlertState.GIVEN_UP, now)
    assert [part.entries for part in purge.purge(engine, older_than=DAY, actor="a", reason="r", now=now)] == [1]
    assert query(engine, "SELECT FROM news.snapshot_detach_alert") == []


def test_alerts_go_on_while_the_job_is_paused(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    quarantined(engine, 3)
    all_due(engine)
    pause.pause(engine, actor="ada", reason="selections is being moved", now=utc_now())
    with Receiver() as webhook:
        settings = job_settings(alerts=AlertOptions(webhook_url=SecretStr(webhook.url)))
        with working(settings):
            assert retry_job.run(make_retry_job(settings), Event()).result == "Paused"
            eventually(lambda: states(engine, "webhook") == {"Told": 3})
    assert states(engine, "log") == {"Told": 3}


def test_a_worker_killed_while_it_tells_leaves_the_alert_to_its_lease(
    engine: Engine, database: str, keys: Keys, tmp_path: Path
) -> None:
    with Receiver() as webhook:
        webhook.hold.clear()
        extra = {"PIN_ALERTS__WEBHOOK_URL": webhook.url, "PIN_ALERTS__TIMEOUT": "1.9s"}
        with Fleet(tmp_path, database, "http://127.0.0.1:9", keys, extra) as fleet:
            first = fleet.worker()
            quarantined(engine)
            all_due(engine)
            fleet.scheduler()
            eventually(lambda: webhook.posted, within=30)
            first.kill()
            killed = one(engine, "webhook")
            assert (killed.state, killed.tries, killed.last_error, killed.handed_over) == ("Untold", 0, None, True)
            webhook.hold.set()
            fleet.worker()
            eventually(lambda: one(engine, "webhook").state == "Told", within=30)
    assert len(webhook.posted) == 2


@pytest.mark.case("A43")
def test_an_alert_that_somebody_holds_waits_and_the_rest_goes_on(engine: Engine) -> None:
    held, free = quarantined(engine, 2)
    all_due(engine)
    with engine.connect() as holder, engine.begin() as connection:
        holder.execute(
            text("SELECT FROM news.snapshot_detach_alert WHERE event_id = :id FOR UPDATE"), {"id": held}
        ).all()
        connection.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
        announced: list[UUID] = []

        def note(_: object, ids: Sequence[UUID]) -> None:
            announced.extend(ids)

        alerting.stage(connection, now=utc_now(), lease=timedelta(minutes=1), announce=note)
    assert announced == [free]


def test_two_sinks_that_are_told_at_the_same_moment_leave_the_event_stamped(engine: Engine) -> None:
    (event,) = quarantined(engine)
    now = utc_now()
    with engine.begin() as connection:
        store.take_up(connection, [event], ["alertmanager", "webhook"], now, timedelta(minutes=1))

    def end_webhook() -> None:
        with engine.begin() as connection:
            waiting.set()
            store.end(connection, [(event, "webhook")], AlertState.TOLD, now)

    waiting = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as connection:
            store.end(connection, [(event, "alertmanager")], AlertState.TOLD, now)
            second = pool.submit(end_webhook)
            assert waiting.wait(10)
            eventually(lambda: query(engine, "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
        second.result(10)
    assert not query(engine, "SELECT FROM news.snapshot_detach_quarantined_event WHERE alerted_at IS NULL")


@pytest.mark.req("J15")
def test_an_event_of_an_older_release_is_told_to_whom_it_was_not(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    quarantined(engine)
    change(engine, "DELETE FROM news.snapshot_detach_alert")
    change(engine, "UPDATE news.snapshot_detach_quarantined_event SET told = '{log,alertmanager}'")
    with Receiver() as manager, Receiver() as webhook:
        settings = job_settings(alerts=both(manager, webhook))
        with working(settings):
            retry_job.run(make_retry_job(settings), Event())
            eventually(lambda: states(engine, "webhook") == {"Told": 1})
    assert manager.posted == []
    assert not query(engine, "SELECT FROM news.snapshot_detach_quarantined_event WHERE alerted_at IS NULL")


def test_a_sink_configured_later_is_told_of_events_from_then_on(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    quarantined(engine)
    all_due(engine)
    settings = job_settings()
    with working(settings):
        retry_job.run(make_retry_job(settings), Event())
        eventually(lambda: states(engine, "log") == {"Told": 1})
    with Receiver() as webhook:
        settings = job_settings(alerts=AlertOptions(webhook_url=SecretStr(webhook.url)))
        with working(settings):
            quarantined(engine)
            all_due(engine)
            retry_job.run(make_retry_job(settings), Event())
            eventually(lambda: states(engine, "webhook") == {"Told": 1})
    assert states(engine, "log") == {"Told": 2}


def test_a_sink_that_is_configured_no_more_stays_untold_until_it_is_given_up(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    (event,) = quarantined(engine)
    with engine.begin() as connection:
        store.take_up(connection, [event], ["webhook"], utc_now(), timedelta(minutes=1))
    all_due(engine)
    settings = job_settings()
    with working(settings):
        retry_job.run(make_retry_job(settings), Event())
        eventually(lambda: one(engine, "webhook").last_error == "NOT_CONFIGURED")
    assert query(engine, "SELECT FROM news.snapshot_detach_quarantined_event WHERE alerted_at IS NULL")


def test_while_no_worker_takes_the_messages_ticks_add_no_more_of_them(engine: Engine) -> None:
    quarantined(engine, 3)
    for _ in range(60):
        all_due(engine)
        with engine.begin() as connection:
            alerting.stage(connection, now=utc_now(), lease=timedelta(minutes=1), announce=announce)
    assert len(query(engine, "SELECT FROM dramatiq.queue")) == 20
