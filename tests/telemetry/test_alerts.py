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

from pin.clock import new_id, utc_now
from pin.config.rules import cross_field_faults
from pin.config.sections import AlertOptions
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from pin.outgoing.alert_sinks import Sink, SinkError, sinks_of
from pin.outgoing.client import HttpClient
from pin.rules.alerts import QuarantinedEvent
from tests.job.conftest import MakeJobSettings
from tests.job.scene import change, query, stage, working
from tests.telemetry.receivers import Receiver
from tests.waiting import eventually

MakeJob = Callable[[Settings], RetryJob]
UNSTAMPED = "SELECT FROM news.snapshot_detach_quarantined_event WHERE alerted_at IS NULL"


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


def alerts(engine: Engine) -> dict[str, list[Any]]:
    """The rows of each sink, by event."""
    found: dict[str, list[Any]] = {}
    for row in query(engine, "SELECT * FROM news.snapshot_detach_alert ORDER BY event_id"):
        found.setdefault(row.sink, []).append(row)
    return found


def time_passes(engine: Engine, span: str = "1 hour") -> None:
    """Whatever is to be told again is due."""
    change(engine, f"UPDATE news.snapshot_detach_alert SET next_try_at = next_try_at - interval '{span}'")


def an_event() -> QuarantinedEvent:
    return QuarantinedEvent(new_id(), new_id(), new_id(), new_id(), "PostDeleted", 12, "HTTP 503", utc_now())


@pytest.fixture
def client() -> Iterator[HttpClient]:
    made = HttpClient()
    yield made
    made.close()


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
            eventually(lambda: [row.last_error for row in alerts(engine).get("webhook", [])] == ["HTTP 500"])
            eventually(lambda: alerts(engine)["alertmanager"][0].state == "Told")
            assert {sink: row.state for sink, (row,) in alerts(engine).items()} == {
                "log": "Told",
                "alertmanager": "Told",
                "webhook": "Untold",
            }
            assert query(engine, UNSTAMPED)

            # Before its backoff is over no tick announces it; afterwards the next one does, and the sink is back.
            webhook.status = 204
            retry_job.run(job, Event())
            assert not query(engine, "SELECT FROM dramatiq.queue WHERE state = 'queued'")
            time_passes(engine)
            retry_job.run(job, Event())
            eventually(
                lambda: query(
                    engine, "SELECT FROM news.snapshot_detach_quarantined_event WHERE alerted_at > '-infinity'"
                )
            )
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


@pytest.mark.req("J27")
def test_a_sink_that_does_not_answer_is_given_up_in_time(client: HttpClient) -> None:
    with Receiver() as silent:
        silent.hold.clear()
        sink = Sink("webhook", silent.url, timedelta(milliseconds=300), "https://x")
        began = time.monotonic()
        with pytest.raises(SinkError, match=r"^TIMEOUT$"):
            sink.send([an_event()], utc_now(), client)
        assert time.monotonic() - began < 5


@pytest.mark.req("J27", "J24")
def test_what_a_sink_says_is_not_repeated_nor_its_password(client: HttpClient) -> None:
    with Receiver(status=302) as moved:
        url = moved.url.replace("http://", "http://user:hunter2@")
        with pytest.raises(SinkError, match=r"^HTTP 302$"):
            Sink("webhook", url, timedelta(seconds=5), "https://x").send([an_event()], utc_now(), client)
    with pytest.raises(SinkError) as refused:
        Sink("webhook", url, timedelta(seconds=5), "https://x").send([an_event()], utc_now(), client)
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
