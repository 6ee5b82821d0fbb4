"""Nothing costs an attempt but a call: refusals, stops and deadlines give back what was not called (A41, A42)."""

from collections.abc import Callable
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine

from actors import detach_broker
from db.outbox.runs import RunResult
from pin.clock import utc_now
from pin.config.sections import WorkerOptions
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from tests.fake_selections import Call, FakeSelections, Gate, Script, detached, reply
from tests.job.conftest import MakeJobSettings
from tests.job.scene import FAST, active_snapshots, change, history, query, rows, stage, working
from tests.timetravel import wall_clock_at
from tests.waiting import eventually

MakeJob = Callable[[Settings], RetryJob]
REFUSED = reply(401, b"<html>no</html>", content_type="text/html")
TICKS, ENTRIES = 12, 500


@pytest.mark.case("A41")
@pytest.mark.req("G22", "G23", "G3")
def test_a_credential_refused_for_twelve_ticks_spends_no_attempt_without_a_call(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections: FakeSelections
) -> None:
    settings = job_settings(selections.url)
    start = utc_now()
    entries = stage(engine, active_snapshots(engine, ENTRIES), due=start)
    due = {r.id: r.next_attempt_at for r in rows(engine)}
    selections.answer = lambda _call: REFUSED
    job = make_retry_job(settings)
    with wall_clock_at(start) as clock, working(settings):
        for number in range(TICKS):
            clock.move_to(start + timedelta(minutes=5) * number)
            assert retry_job.run(job, Event()).result is RunResult.HALTED

        outage = rows(engine, entries)
        calls = {entry: sum(one.outcome == "Retried" for one in history(engine, entry)) for entry in due}
        assert {r.id: r.attempts for r in outage} == calls, "an attempt for each call, and none for anything else"
        assert sum(calls.values()) < ENTRIES, "and those were few"
        assert {r.next_attempt_at - due[r.id] for r in outage if not r.attempts} == {timedelta(0)}
        assert not any(r.outcome_due for r in outage)
        assert {r.status for r in outage} == {"Pending"}

        selections.answer = detached
        clock.move_to(start + timedelta(minutes=5) * TICKS + timedelta(hours=1))
        summary = retry_job.run(job, Event())
    assert (summary.result, summary.outcomes.succeeded) == (RunResult.COMPLETED, ENTRIES)
    [last] = query(engine, "SELECT batches FROM news.snapshot_detach_run WHERE id = :id", id=summary.run_id)
    assert last.batches == ENTRIES // settings.retry.batch_size
    assert query(engine, "SELECT FROM news.snapshot_detach_attempt WHERE error LIKE 'OUTCOME_LOST%'") == []


@pytest.mark.case("A41")
@pytest.mark.req("G22", "J6")
def test_a_batch_whose_time_is_up_gives_back_what_it_did_not_call(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections: FakeSelections
) -> None:
    entries = stage(engine, active_snapshots(engine, 6))
    due = {r.id: r.next_attempt_at for r in rows(engine)}
    silent = Gate()
    selections.answer = lambda _call: [silent]
    worker = WorkerOptions(time_limit=timedelta(seconds=9), concurrency=1)
    retry = FAST["retry"].model_copy(update={"batch_size": 6, "detach_call_timeout": timedelta(seconds=1.4)})
    settings = job_settings(selections.url, worker=worker, retry=retry)
    slow = settings.model_copy(update={"retry": retry.model_copy(update={"detach_call_timeout": timedelta(seconds=5)})})
    with working(slow):
        retry_job.run(make_retry_job(settings), Event())
    silent.open()
    after = rows(engine, entries)
    called = {r.id for r in after if history(engine, r.id)[0].outcome == "Retried"}
    assert 0 < len(called) < len(entries)
    for one in after:
        if one.id in called:
            assert (one.attempts, one.last_error) == (1, "TIMEOUT")
        else:
            assert (one.attempts, one.outcome_due, one.next_attempt_at) == (0, False, due[one.id])


@pytest.mark.case("A41")
@pytest.mark.req("G22", "G6", "J6")
def test_what_a_stopping_worker_gives_back_is_not_claimed_again_by_the_same_run(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections: FakeSelections
) -> None:
    stage(engine, active_snapshots(engine, 40))
    settings = job_settings(selections.url, worker=FAST["worker"].model_copy(update={"concurrency": 10}))

    def answer(call: Call) -> Script:
        detach_broker.draining.set()
        return detached(call)

    selections.answer = answer
    with working(settings):
        summary = retry_job.run(make_retry_job(settings), Event())
    assert summary.outcomes.not_called > 0
    assert summary.outcomes.not_called + summary.outcomes.succeeded == summary.claimed == 40
    assert {r.attempts for r in rows(engine) if r.status == "Pending"} == {0}


@pytest.mark.case("A41")
@pytest.mark.req("G22", "G7")
def test_what_an_earlier_delivery_may_have_called_keeps_its_backoff_and_goes_alone(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections: FakeSelections
) -> None:
    """A worker died in mid-batch, and the next one to have the batch is stopped before it has called all of it."""
    entries = stage(engine, active_snapshots(engine, 3))
    short: Any = FAST["retry"].model_copy(update={"max_run_duration": timedelta(milliseconds=2100)})
    retry_job.run(make_retry_job(job_settings(selections.url, retry=short)), Event())  # nobody takes the batch
    change(engine, "UPDATE dramatiq.queue SET state = 'consumed', deliveries = 1, mtime = now() - interval '1 hour'")
    claimed = {r.id: r.next_attempt_at for r in rows(engine, entries)}

    def answer(call: Call) -> Script:
        detach_broker.draining.set()
        return detached(call)

    selections.answer = answer
    with working(job_settings(selections.url, worker=FAST["worker"].model_copy(update={"concurrency": 1}))):
        eventually(lambda: not query(engine, "SELECT FROM dramatiq.queue"))
    given_back = [one for one in rows(engine, entries) if one.status == "Pending"]
    assert len(given_back) == 2
    for one in given_back:
        assert (one.attempts, one.outcome_due, one.next_attempt_at) == (0, True, claimed[one.id])
        assert [each.outcome for each in history(engine, one.id)] == ["NotCalled"]


@pytest.mark.case("A42")
@pytest.mark.req("G24", "G7")
def test_rows_whose_outcome_was_lost_take_turns_with_full_batches_whatever_is_due_first(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections_url: str
) -> None:
    now = utc_now()
    lost = stage(engine, active_snapshots(engine, 22), due=now - timedelta(hours=1), now=now)
    change(engine, "UPDATE news.snapshot_detach_outbox SET outcome_due = true, attempts = 1, version = 1")
    stage(engine, active_snapshots(engine, 60), due=now, now=now)
    retry: Any = FAST["retry"].model_copy(update={"batch_size": 20})
    settings = job_settings(selections_url, retry=retry)
    job = make_retry_job(settings)
    sizes: list[int] = []

    def hand_over(*given: Any) -> Any:
        sizes.append(len(given[1].claimed))
        return job.hand_over(*given)

    counting = RetryJob(**{name: getattr(job, name) for name in RetryJob.__slots__} | {"hand_over": hand_over})
    with working(settings):
        summary = retry_job.run(counting, Event())
    assert (summary.result, summary.claimed) == (RunResult.COMPLETED, 82)
    assert sizes[:7] == [20, 1, 20, 1, 20, 1, 1]
    assert sizes[7:] == [1] * (len(lost) - 4)
    assert {r.status for r in rows(engine)} == {"Done"}
