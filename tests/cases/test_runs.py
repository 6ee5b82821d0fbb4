"""A run reads the clock once, its stages are isolated, and its figures are what the rows say (A40, A43, A50, A52)."""

import threading
from collections.abc import Callable
from datetime import timedelta
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import Engine

from db.outbox import runs
from db.outbox.runs import RunResult
from db.runner import pause as store
from pin.clock import new_id, utc_now
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from pin.operations import pause, plans
from pin.operations.plans import Filter
from tests.fake_selections import FakeSelections, Gate, detached, problem
from tests.job.conftest import MakeJobSettings
from tests.job.scene import FAST, active_snapshots, change, history, query, row, rows, stage, working
from tests.timetravel import wall_clock_at
from tests.waiting import eventually

MakeJob = Callable[[Settings], RetryJob]


def retry(**changed: Any) -> Any:
    return FAST["retry"].model_copy(update=changed)


def with_hand_over(job: RetryJob, hand_over: Callable[..., UUID]) -> RetryJob:
    """The same job, but for what hands a batch over."""
    return RetryJob(**{name: getattr(job, name) for name in RetryJob.__slots__} | {"hand_over": hand_over})


@pytest.mark.case("A40")
@pytest.mark.req("G25", "J10", "J11")
@pytest.mark.parametrize("step", [timedelta(hours=-3), timedelta(hours=3)])
def test_a_clock_that_steps_in_mid_run_claims_no_row_twice_and_quarantines_none(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections: FakeSelections, step: timedelta
) -> None:
    selections.answer = lambda _call: problem(503, "UNAVAILABLE")
    start = utc_now()
    stage(engine, active_snapshots(engine, 40), due=start, now=start)
    settings = job_settings(selections.url, retry=retry(batch_size=10))
    job = make_retry_job(settings)
    with wall_clock_at(start) as clock, working(settings):

        def hand_over(*given: Any) -> UUID:
            clock.forward(step)
            return job.hand_over(*given)

        summary = retry_job.run(with_hand_over(job, hand_over), Event())
    assert (summary.result, summary.claimed, summary.outcomes.retried) == (RunResult.COMPLETED, 40, 40)
    after = rows(engine)
    assert {(r.status, r.attempts) for r in after} == {("Pending", 1)}
    assert {len(history(engine, r.id)) for r in after} == {1}
    assert all(timedelta(minutes=1) <= r.next_attempt_at - start < timedelta(minutes=3) for r in after)


@pytest.mark.case("A43")
@pytest.mark.req("J17", "G21")
def test_a_row_that_a_session_holds_delays_its_plan_and_nothing_else(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections_url: str
) -> None:
    quarantined = stage(engine, active_snapshots(engine, 3))
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Quarantined', version = 24, attempts = 12")
    first, held, free = sorted(quarantined)
    now = utc_now()
    plan_id = plans.keep(engine, plans.preview(engine, Filter()), actor="ada", now=now)
    plans.start(engine, plan_id, canary=1, actor="ada", reason="fixed", now=now)
    settings = job_settings(selections_url)
    job = make_retry_job(settings)
    with working(settings):
        assert retry_job.run(job, Event()).result is RunResult.COMPLETED
        assert row(engine, first).status == "Done"
        (due,) = stage(engine, active_snapshots(engine, 1))
        with engine.begin() as other:
            other.exec_driver_sql("SELECT FROM news.snapshot_detach_outbox WHERE id = %(id)s FOR UPDATE", {"id": held})
            summary = retry_job.run(job, Event())
            assert (summary.result, summary.outcomes.succeeded) == (RunResult.COMPLETED, 1)
            assert (row(engine, due).status, row(engine, held).status) == ("Done", "Quarantined")
            assert retry_job.run(job, Event()).outcomes.succeeded == 1
            assert (row(engine, free).status, row(engine, held).status) == ("Done", "Quarantined")
        retry_job.run(job, Event())
        assert retry_job.run(job, Event()).outcomes.succeeded == 1
    assert row(engine, held).status == "Done"
    assert {str(plan.state) for plan in plans.list_plans(engine)} == {"Completed"}


@pytest.mark.case("A43")
@pytest.mark.req("J17")
def test_a_stage_that_fails_is_counted_and_ends_neither_the_run_nor_the_next_stage(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections_url: str
) -> None:
    entries = stage(engine, active_snapshots(engine, 2))
    spent = stage(engine, active_snapshots(engine, 1))
    change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 13 WHERE id = ANY(:ids)", ids=spent)
    settings = job_settings(selections_url)
    job = make_retry_job(settings)
    change(engine, "ALTER TABLE news.snapshot_detach_requeue RENAME TO gone")
    failures = _counter("news_snapshot_detach_stage_failures_total", stage="plans")
    with working(settings):
        summary = retry_job.run(job, Event())
    assert (summary.result, summary.outcomes.succeeded) == (RunResult.COMPLETED, 2)
    assert {r.status for r in rows(engine, entries)} == {"Done"}
    assert row(engine, spent[0]).status == "Quarantined"
    assert _counter("news_snapshot_detach_stage_failures_total", stage="plans") == failures + 1


@pytest.mark.case("A50")
@pytest.mark.req("J29")
def test_a_pause_that_was_answered_lets_no_claim_under_way_commit_after_it(engine: Engine) -> None:
    answered = threading.Event()

    def pausing() -> None:
        pause.pause(engine, actor="ada", reason="too much", now=utc_now())
        answered.set()

    with engine.begin() as claiming:
        store.share_claims(claiming)
        thread = threading.Thread(target=pausing)
        thread.start()
        eventually(lambda: query(engine, "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        assert query(engine, "SELECT FROM news.snapshot_detach_pause") != [], "the next claim sees it already"
        assert not answered.is_set()
    thread.join(10)
    assert answered.is_set()


@pytest.mark.case("A50")
@pytest.mark.req("J29")
def test_the_claim_itself_sees_a_pause_that_came_after_the_last_look(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections_url: str
) -> None:
    entries = stage(engine, active_snapshots(engine, 4))
    settings = job_settings(selections_url, retry=retry(batch_size=2))
    job = make_retry_job(settings)

    def hand_over(*given: Any) -> UUID:
        threading.Thread(target=pause.pause, args=(engine,), kwargs=_BY_ADA | {"now": utc_now()}).start()
        eventually(lambda: query(engine, "SELECT FROM news.snapshot_detach_pause"))
        return job.hand_over(*given)

    with working(settings):
        summary = retry_job.run(with_hand_over(job, hand_over), Event())
    assert (summary.result, summary.claimed, summary.outcomes.succeeded) == (RunResult.PAUSED, 2, 2)
    assert sorted(r.attempts for r in rows(engine, entries)) == [0, 0, 1, 1]


@pytest.mark.case("A52")
@pytest.mark.req("J24", "G16", "G7")
def test_what_was_quarantined_uncalled_is_in_the_runs_figures(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections_url: str
) -> None:
    spent = stage(engine, [new_id() for _ in range(3)])
    change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 13")
    stage(engine, active_snapshots(engine, 2))
    settings = job_settings(selections_url)
    with working(settings):
        summary = retry_job.run(make_retry_job(settings), Event())
    assert (summary.outcomes.succeeded, summary.outcomes.quarantined) == (2, 3)
    [run] = query(engine, "SELECT * FROM news.snapshot_detach_run")
    assert (run.succeeded, run.quarantined, run.retried) == (2, 3, 0)
    assert {one.outcome for each in spent for one in history(engine, each)} == {"Quarantined"}


@pytest.mark.case("A52")
@pytest.mark.req("J24", "J5")
def test_a_run_that_is_out_of_time_has_the_figures_of_what_came_after_it_too(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections: FakeSelections
) -> None:
    stage(engine, active_snapshots(engine, 3))
    late = Gate()
    selections.answer = lambda call: [late, *detached(call)]
    settings = job_settings(selections.url, retry=retry(max_run_duration=timedelta(milliseconds=600), batch_size=3))
    with working(settings):
        summary = retry_job.run(make_retry_job(settings), Event())
        assert summary.outcomes.succeeded == 0
        late.open()
        eventually(lambda: query(engine, "SELECT FROM dramatiq.queue") == [])
    with engine.connect() as connection:
        found = runs.one(connection, summary.run_id)
    assert found is not None
    assert (found.claimed, found.succeeded) == (3, 3)


_BY_ADA = {"actor": "ada", "reason": "too much"}


def _counter(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0
