"""The verdict as a table: facts in, one sentence out."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from db.outbox.runs import RunResult, RunRow
from db.runner.lock_holder import LockHolder
from db.runner.pause import Pause
from db.views.standing import Answer, Batches, Recent, Waiting
from pin.clock import new_id
from pin.operations.verdict import Facts, Limits, VerdictKind, judge, span

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIMITS = Limits(timedelta(minutes=5), timedelta(minutes=6), timedelta(seconds=40), 100)
NOTHING = Waiting(0, 0, 0, None, None, None, 0)
QUIET = Recent(0, 0, 0, 0)
NO_BATCHES = Batches(0, 0, 0, 0, 0.0)


def ago(**units: float) -> datetime:
    return NOW - timedelta(**units)


def run(result: RunResult, halted_by: str | None = None, **units: float) -> RunRow:
    moment = ago(**(units or {"minutes": 2}))
    return RunRow(new_id(), "host:1", moment, moment, result.value, halted_by, 0, 0, 0, 0, 0)


def waits(pending: int, *, oldest: timedelta = timedelta(minutes=1), overdue: int = 0, quarantined: int = 0) -> Waiting:
    later = NOW + timedelta(minutes=3)
    return Waiting(pending, pending, overdue, NOW - oldest if pending else None, NOW, later, quarantined)


def failed(count: int, error: str = "HTTP 503") -> list[Answer]:
    return [Answer(error, count, NOW)]


GOOD = Facts(
    now=NOW,
    waiting=NOTHING,
    recent=QUIET,
    pending_errors=[],
    batches=NO_BATCHES,
    last_tick=run(RunResult.COMPLETED),
    last_run=run(RunResult.COMPLETED),
    last_success=ago(minutes=2),
    lock=None,
    pause=None,
)
OLD = timedelta(minutes=11)
HOLDER = LockHolder(7, "pin-runner-lock", "10.0.0.7", ago(minutes=20), "host:1", 1200.0)
OVERDUE = waits(40, oldest=OLD, overdue=40)


@pytest.mark.req("J27", "J29", "G20")
@pytest.mark.parametrize(
    ("facts", "kind", "says"),
    [
        (GOOD, "Delivering", "Delivering: nothing waits."),
        (replace(GOOD, waiting=waits(1)), "Delivering", "Delivering: 1 entry is waiting, the oldest for 60 s."),
        (
            replace(GOOD, waiting=waits(0, quarantined=3)),
            "Delivering",
            "Delivering: nothing waits. 3 entries are quarantined: a person must look.",
        ),
        # One that fails beside many that get through is no outage.
        (replace(GOOD, waiting=waits(1), recent=Recent(90, 20, 0, 9), pending_errors=failed(1)), "Delivering", "1 ent"),
        (replace(GOOD, waiting=waits(20), recent=Recent(0, 0, 0, 4), pending_errors=failed(20)), "Delivering", "20 en"),
        (replace(GOOD, waiting=waits(20), recent=Recent(0, 0, 0, 5), pending_errors=failed(20)), "Stuck", "HTTP 503"),
        (replace(GOOD, waiting=OVERDUE, pending_errors=failed(40)), "Stuck", "Stuck on HTTP 503: 40 of 40 waiting"),
        # New entries get through, the old ones do not.
        (replace(GOOD, waiting=OVERDUE, recent=Recent(5, 1, 0, 9), pending_errors=failed(40)), "Stuck", "HTTP 503"),
        # The old ones get through as well: that is the end of an outage.
        (
            replace(GOOD, waiting=OVERDUE, recent=Recent(60, 60, 60, 9), pending_errors=failed(40)),
            "Draining",
            "Draining: 40 entries are waiting, gone in about 3 min.",
        ),
        (replace(GOOD, waiting=waits(500), recent=Recent(300, 50, 0, 0)), "Draining", "500 entries are waiting"),
        (replace(GOOD, waiting=OVERDUE), "Stuck", "nothing was delivered in 5 min"),
        (replace(GOOD, last_run=run(RunResult.HALTED, "HTTP 401"), waiting=waits(3)), "Stuck", "Stuck on HTTP 401"),
        (replace(GOOD, last_run=run(RunResult.FAILED), waiting=waits(3)), "Stuck", "the last run ended as Failed"),
        (replace(GOOD, last_run=run(RunResult.FAILED)), "Delivering", "nothing waits"),
        (replace(GOOD, batches=Batches(1, 0, 0, 0, 121.0)), "HeldBack", "1 batch lies unconsumed, for up to 2 min"),
        (replace(GOOD, batches=Batches(0, 1, 2, 0, 300.0)), "HeldBack", "2 batches lie unconsumed, for up to 5 min"),
        (replace(GOOD, batches=Batches(1, 0, 0, 0, 119.0)), "Delivering", "nothing waits"),
        (replace(GOOD, last_tick=None, last_run=None, last_success=None), "NoRunner", "no run has ever been recorded"),
        (
            replace(GOOD, last_tick=run(RunResult.COMPLETED, minutes=16), last_success=ago(minutes=16)),
            "NoRunner",
            "the last tick was 16 min ago",
        ),
        # Ticks are skipped for a holder that hangs.
        (
            replace(GOOD, last_tick=run(RunResult.SKIPPED), last_success=ago(minutes=20), lock=HOLDER),
            "NoRunner",
            "process 7 (pin-runner-lock on 10.0.0.7) has held the lock for 20 min, and no run has succeeded for 20 min",
        ),
        # Runs come and go and none succeeds, though nothing waits.
        (
            replace(GOOD, last_run=run(RunResult.FAILED), last_success=ago(minutes=16)),
            "NoRunner",
            "No run has succeeded for 16 min: the last ended as Failed",
        ),
        (replace(GOOD, last_run=run(RunResult.STOPPED), last_success=None), "Delivering", "nothing waits"),
        (replace(GOOD, last_run=run(RunResult.FAILED), last_success=None), "NoRunner", "No run has succeeded yet"),
        (replace(GOOD, last_tick=run(RunResult.PAUSED), last_success=ago(hours=2)), "Delivering", "nothing waits"),
        (replace(GOOD, lock=replace(HOLDER, held_seconds=200)), "Delivering", "nothing waits"),
        (
            replace(GOOD, pause=Pause("ada", "deploy", ago(minutes=30)), last_tick=None, waiting=OVERDUE),
            "Paused",
            "Paused by ada for 30 min: deploy. 40 entries are waiting.",
        ),
    ],
)
def test_the_verdict(facts: Facts, kind: str, says: str) -> None:
    verdict = judge(facts, LIMITS)
    assert verdict.kind == kind
    assert says in verdict.says
    assert (verdict.stuck_on is not None) == (kind == "Stuck")
    if not verdict.kind.is_well:
        assert verdict.advice
        assert verdict.runbook


@pytest.mark.req("J27")
def test_the_estimate_waits_for_the_last_entry_to_be_due() -> None:
    draining = replace(GOOD, waiting=waits(1000), recent=Recent(300, 60, 0, 0))
    assert judge(draining, LIMITS).estimate == timedelta(seconds=1000)
    few = replace(GOOD, waiting=waits(101), recent=Recent(6000, 6000, 0, 0))
    assert judge(few, LIMITS).estimate == timedelta(minutes=3)


@pytest.mark.req("J27")
def test_rare_ticks_are_not_taken_for_none() -> None:
    rare = replace(LIMITS, polling_interval=timedelta(minutes=20))
    late = replace(GOOD, last_tick=run(RunResult.COMPLETED, minutes=50), last_success=ago(minutes=50))
    assert judge(late, rare).kind is VerdictKind.DELIVERING
    assert judge(late, LIMITS).kind is VerdictKind.NO_RUNNER


@pytest.mark.req("J29")
@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (119, "119 s"), (300, "5 min"), (7300, "2 h 1 min"), (7200, "2 h"), (187200, "2 d 4 h")],
)
def test_spans_are_said_as_people_say_them(seconds: int, said: str) -> None:
    assert span(timedelta(seconds=seconds)) == said
