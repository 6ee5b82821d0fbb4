"""The alert of a quarantine at its sinks: each told once, a dead one harming nothing (J15, J27)."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from pydantic import SecretStr
from sqlalchemy import Engine

from actors import alert
from pin.clock import new_id, utc_now
from pin.config.rules import cross_field_faults
from pin.config.sections import AlertOptions
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from pin.outgoing.alert_sinks import Alert, Sink, SinkError, sinks_of
from tests.job.conftest import MakeJobSettings
from tests.job.scene import change, query, stage, working
from tests.telemetry.receivers import Receiver
from tests.waiting import eventually

MakeJob = Callable[[Settings], RetryJob]


@pytest.fixture(autouse=True)
def _no_sink_is_paused() -> Iterator[None]:
    alert._paused.clear()
    yield
    alert._paused.clear()


def count(sink: str, result: str) -> float:
    labels = {"sink": sink, "result": result}
    return REGISTRY.get_sample_value("news_snapshot_detach_alerts_total", labels) or 0.0


def quarantine_one(engine: Engine, job: RetryJob) -> UUID:
    """An entry whose attempts are spent leaves Pending in a run; answers its snapshot."""
    snapshot = new_id()
    stage(engine, [snapshot])
    change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 13 WHERE status = 'Pending'")
    retry_job.run(job, Event())
    return snapshot


def events(engine: Engine) -> list[Any]:
    return query(engine, "SELECT told, alerted_at, occurred_at FROM news.snapshot_detach_quarantined_event")


def logged(engine: Engine) -> int:
    return sum("log" in row.told for row in events(engine))


def an_alert() -> Alert:
    return Alert(new_id(), new_id(), new_id(), new_id(), "PostDeleted", 12, "HTTP 503", utc_now())


@pytest.mark.req("J15", "J27")
def test_each_sink_is_told_once_and_a_dead_one_later(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    before = {pair: count(*pair) for pair in [("log", "sent"), ("webhook", "failed"), ("webhook", "sent")]}
    with Receiver() as manager, Receiver(status=500) as webhook:
        options = AlertOptions(alertmanager_url=manager.url, webhook_url=SecretStr(f"{webhook.url}/hook?key=1"))
        settings = job_settings(alerts=options)
        job = make_retry_job(settings)
        with working(settings):
            snapshot = quarantine_one(engine, job)
            eventually(lambda: webhook.posted and not query(engine, "SELECT FROM dramatiq.queue"))
            (row,) = events(engine)
            assert (set(row.told), row.alerted_at) == ({"log", "alertmanager"}, None)

            # The next tick after a PollingInterval announces it again, and the sink is back.
            webhook.status = 204
            alert._paused.clear()
            change(
                engine, "UPDATE news.snapshot_detach_quarantined_event SET occurred_at = occurred_at - interval '1 h'"
            )
            retry_job.run(job, Event())
            eventually(lambda: events(engine)[0].alerted_at)
            retry_job.run(job, Event())
    assert [len(manager.posted), len(webhook.posted)] == [1, 2]
    assert {pair: count(*pair) - was for pair, was in before.items()} == {
        ("log", "sent"): 1,
        ("webhook", "failed"): 1,
        ("webhook", "sent"): 1,
    }
    (sent,) = manager.posted[0].json()
    assert manager.posted[0].path == "/api/v2/alerts"
    assert sent["labels"]["alertname"] == "SnapshotDetachQuarantinedEvent"
    assert sent["labels"]["snapshotId"] == str(snapshot)
    assert sent["annotations"]["runbook_url"].endswith("/quarantined.md")
    body = webhook.posted[1].json()
    assert webhook.posted[1].path == "/hook?key=1"
    assert body["event"] == "SnapshotDetachQuarantinedEvent"
    (entry,) = body["entries"]
    assert (entry["snapshotId"], entry["attempts"]) == (str(snapshot), 13)
    assert entry.keys() >= {"snapshotId", "postId", "reason", "attempts"}, "the document's event"


@pytest.mark.req("J15", "J27")
def test_a_sink_that_failed_is_left_alone_for_a_while(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    with Receiver(status=500) as webhook:
        settings = job_settings(alerts=AlertOptions(webhook_url=SecretStr(webhook.url)))
        job = make_retry_job(settings)
        with working(settings):
            quarantine_one(engine, job)
            eventually(lambda: logged(engine) == 1)
            quarantine_one(engine, job)
            eventually(lambda: logged(engine) == 2 and not query(engine, "SELECT FROM dramatiq.queue"))
    assert len(webhook.posted) == 1


@pytest.mark.req("J27")
def test_a_sink_that_does_not_answer_is_given_up_in_time() -> None:
    with Receiver() as silent:
        silent.hold.clear()
        sink = Sink("webhook", silent.url, timedelta(milliseconds=300), "https://x")
        began = time.monotonic()
        with pytest.raises(SinkError, match=r"^TIMEOUT$"):
            sink.send([an_alert()], utc_now())
        assert time.monotonic() - began < 5


@pytest.mark.req("J27", "J24")
def test_what_a_sink_says_is_not_repeated_nor_its_password() -> None:
    with Receiver(status=302) as moved:
        url = moved.url.replace("http://", "http://user:hunter2@")
        with pytest.raises(SinkError, match=r"^HTTP 302$"):
            Sink("webhook", url, timedelta(seconds=5), "https://x").send([an_alert()], utc_now())
    with pytest.raises(SinkError) as refused:
        Sink("webhook", url, timedelta(seconds=5), "https://x").send([an_alert()], utc_now())
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.req("J27", "J7")
def test_sinks_are_those_that_are_configured() -> None:
    assert sinks_of(AlertOptions()) == ()
    both = sinks_of(AlertOptions(alertmanager_url="http://am:9093/", webhook_url=SecretStr("http://hook")))
    assert [(sink.name, sink.url) for sink in both] == [
        ("alertmanager", "http://am:9093/api/v2/alerts"),
        ("webhook", "http://hook"),
    ]
    wrong = Settings(
        alerts=AlertOptions(
            alertmanager_url="am:9093", webhook_url=SecretStr("ftp://x/T0KEN"), timeout=timedelta(seconds=15)
        )
    )
    faults = list(cross_field_faults(wrong))
    assert not [fault for fault in faults if "T0KEN" in str(fault)]
    assert [fault.field for fault in faults] == [
        "alerts.alertmanager_url",
        "alerts.webhook_url",
        "alerts.timeout",
    ]
