"""One bad row holds up nobody (A3)."""

from collections.abc import Callable
from datetime import datetime
from threading import Event

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import Engine

from pin.clock import utc_now
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from pin.operations import RequeueResult, list_quarantined, requeue
from tests.job.conftest import MakeJobSettings
from tests.job.scene import active_snapshots, change, query, row, rows, stage, working
from tests.waiting import eventually

INT_MAX = 2**31 - 1
MakeJob = Callable[[Settings], RetryJob]


def _quarantined() -> float:
    return REGISTRY.get_sample_value("news_snapshot_detach_quarantined_total") or 0.0


def _tick_and_alert(settings: Settings, job: RetryJob, engine: Engine, alerts: int) -> None:
    with working(settings):
        retry_job.run(job, Event())
        alerted = "SELECT FROM news.snapshot_detach_quarantined_event WHERE alerted_at > '-infinity'"
        eventually(lambda: len(query(engine, alerted)) == alerts)


@pytest.mark.case("A3")
@pytest.mark.req("J17", "G7", "J15")
def test_a_row_whose_attempts_cannot_be_raised_is_isolated_counted_and_alerted(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    entries = stage(engine, active_snapshots(engine, 20))
    bad = entries[7]
    change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = :most WHERE id = :id", most=INT_MAX, id=bad)
    before, settings = _quarantined(), job_settings(selections_url)

    _tick_and_alert(settings, make_retry_job(settings), engine, alerts=1)

    assert {r.status for r in rows(engine, [e for e in entries if e != bad])} == {"Done"}
    stuck = row(engine, bad)
    assert (stuck.status, stuck.attempts, stuck.last_error) == ("Quarantined", INT_MAX, "ATTEMPTS_SPENT")
    (event,) = query(engine, "SELECT entry_id, attempts FROM news.snapshot_detach_quarantined_event")
    assert (event.entry_id, event.attempts) == (bad, INT_MAX)
    assert _quarantined() == before + 1


@pytest.mark.case("A3")
@pytest.mark.req("J9", "J17", "D14")
def test_a_reason_that_a_newer_release_wrote_is_refused_by_selections_alone(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    entries = stage(engine, active_snapshots(engine, 20))
    bad = entries[3]
    change(engine, "ALTER TABLE news.snapshot_detach_outbox DROP CONSTRAINT ck_sdo_reason")
    change(engine, "UPDATE news.snapshot_detach_outbox SET reason = 'PostMerged' WHERE id = :id", id=bad)
    before, settings = _quarantined(), job_settings(selections_url)

    _tick_and_alert(settings, make_retry_job(settings), engine, alerts=1)

    assert {r.status for r in rows(engine, [e for e in entries if e != bad])} == {"Done"}
    assert row(engine, bad).status == "Quarantined"
    (listed,) = list_quarantined(engine)
    assert (listed.entry.id, listed.entry.reason) == (bad, "PostMerged")
    assert _quarantined() == before + 1


@pytest.mark.case("A3")
@pytest.mark.req("J9", "J10", "J17")
def test_a_status_that_a_newer_release_wrote_is_left_to_that_release(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    entries = stage(engine, active_snapshots(engine, 20))
    foreign = entries[11]
    change(engine, "ALTER TABLE news.snapshot_detach_outbox DROP CONSTRAINT ck_sdo_status")
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Held' WHERE id = :id", id=foreign)
    untouched, settings = row(engine, foreign), job_settings(selections_url)

    _tick_and_alert(settings, make_retry_job(settings), engine, alerts=0)
    answers = requeue(engine, entries[10:12], actor="ada", reason="to see", now=utc_now())

    assert {r.status for r in rows(engine, [e for e in entries if e != foreign])} == {"Done"}
    assert row(engine, foreign) == untouched
    assert [(a.result, a.status) for a in answers] == [
        (RequeueResult.NOT_QUARANTINED, "Done"),
        (RequeueResult.NOT_QUARANTINED, "Held"),
    ]


@pytest.mark.case("A3")
@pytest.mark.req("J13", "J17")
def test_a_due_time_at_the_end_of_time_neither_fails_nor_holds_up_a_claim(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    entries = stage(engine, active_snapshots(engine, 3))
    far: datetime = datetime.max.replace(tzinfo=utc_now().tzinfo)
    change(
        engine, "UPDATE news.snapshot_detach_outbox SET next_attempt_at = :far WHERE id = :id", far=far, id=entries[0]
    )
    settings = job_settings(selections_url)
    _tick_and_alert(settings, make_retry_job(settings), engine, alerts=0)
    assert [row(engine, e).status for e in entries] == ["Pending", "Done", "Done"]
