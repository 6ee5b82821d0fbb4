"""One sentence on how the job stands, and what to do: a pure function over facts, by the alert rules' thresholds (J27).

Paused      an operator has paused the job
NoRunner    nobody runs, or no run has succeeded for over 15 min
HeldBack    batches lie unconsumed: no worker takes them
Stuck       entries wait and none gets through: on what
Draining    a backlog is being delivered: for how long still
Delivering  all is well
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from db.outbox.alerts import Untold
from db.outbox.runs import SUCCESSFUL, RunResult, RunRow
from db.runner.lock_holder import LockHolder
from db.runner.pause import Pause
from db.views.standing import Answer, Batches, Recent, Waiting
from pin.operations.alerts import in_words

NO_RUN_AFTER = timedelta(minutes=15)
"""No successful run for so long raises the alert (J27)."""
WINDOW = timedelta(minutes=5)
"""Attempts of so long make the rate and tell whether anything gets through."""
BURST = 5
"""So many failures in the window and no success are an outage, though nothing is old yet."""


class VerdictKind(StrEnum):
    """A closed set."""

    DELIVERING = "Delivering"
    DRAINING = "Draining"
    STUCK = "Stuck"
    NO_RUNNER = "NoRunner"
    PAUSED = "Paused"
    HELD_BACK = "HeldBack"

    @property
    def is_well(self) -> bool:
        """Whether nobody needs to do anything."""
        return self in {VerdictKind.DELIVERING, VerdictKind.DRAINING}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`says` is one plain sentence, `advice` what to do, `runbook` a page of docs/runbooks (its name, no ending)."""

    kind: VerdictKind
    says: str
    advice: str | None = None
    runbook: str | None = None
    estimate: timedelta | None = None
    """Draining: until the backlog is gone, at the last minutes' rate and not before the last entry is due."""
    stuck_on: str | None = None
    """Stuck: the error's fingerprint, such as `HTTP 503`; or how the runs end, such as `Failed`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the thresholds come to with these settings."""

    polling_interval: timedelta
    lock_ttl: timedelta
    lease: timedelta
    batch_size: int

    @property
    def age(self) -> timedelta:
        """An entry older than this raises the alert on age (J27, J28)."""
        return 2 * self.polling_interval

    @property
    def unconsumed(self) -> timedelta:
        """A batch that lies longer than this raises the alert on batches nobody takes: 2 min by default."""
        return 3 * self.lease

    @property
    def no_run(self) -> timedelta:
        """15 min, or three ticks where they are rarer."""
        return max(NO_RUN_AFTER, 3 * self.polling_interval)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known at `now`. `last_tick` is any row of a run, skipped ones as well; `last_run` none that was."""

    now: datetime
    waiting: Waiting
    recent: Recent
    pending_errors: Sequence[Answer]
    batches: Batches
    last_tick: RunRow | None
    last_run: RunRow | None
    last_success: datetime | None
    lock: LockHolder | None
    pause: Pause | None
    untold: Sequence[Untold] = ()


def judge(facts: Facts, limits: Limits) -> Verdict:
    """The verdict; the first that holds, from what stops everything to what is merely slow."""
    return (
        _paused(facts)
        or _no_runner(facts, limits)
        or _held_back(facts, limits)
        or _runs_end_badly(facts)
        or _stuck(facts)
        or _no_success(facts, limits)
        or _under_way(facts, limits)
    )


def _paused(facts: Facts) -> Verdict | None:
    if facts.pause is None:
        return None
    pause = facts.pause
    return Verdict(
        VerdictKind.PAUSED,
        f"Paused by {pause.actor} for {span(facts.now - pause.since)}: {pause.reason}. {_count(facts.waiting.pending)}"
        " waiting.",
        "When the reason is gone: pin resume --reason …",
        "no-runs",
    )


def _no_runner(facts: Facts, limits: Limits) -> Verdict | None:
    if facts.last_tick is None:
        says = "No runner: no run has ever been recorded in this database."
        return Verdict(VerdictKind.NO_RUNNER, says, "Start a scheduler: pin scheduler", "no-runs")
    silent = facts.now - facts.last_tick.started_at
    hung = facts.lock is not None and facts.lock.held_seconds > limits.lock_ttl.total_seconds()
    if hung and facts.lock is not None and _long_without_success(facts, limits):
        lock = facts.lock
        held = span(timedelta(seconds=lock.held_seconds))
        return Verdict(
            VerdictKind.NO_RUNNER,
            f"No runner: process {lock.pid} ({lock.application} on {lock.host}) has held the lock for {held},"
            f" and no run has succeeded {_since(facts)}.",
            "See who that is, then: pin lock release --reason …",
            "no-runs",
        )
    if silent <= limits.no_run or (facts.lock is not None and not hung):
        return None
    return Verdict(
        VerdictKind.NO_RUNNER,
        f"No runner: the last tick was {span(silent)} ago; {_count(facts.waiting.pending)} waiting.",
        "Start or mend the scheduler; until then: pin run --once",
        "no-runs",
    )


def _held_back(facts: Facts, limits: Limits) -> Verdict | None:
    batches = facts.batches
    unconsumed = batches.queued + batches.expired
    if not unconsumed or batches.unconsumed_seconds <= limits.unconsumed.total_seconds():
        return None
    lain = span(timedelta(seconds=batches.unconsumed_seconds))
    noun = "batch lies" if unconsumed == 1 else "batches lie"
    return Verdict(
        VerdictKind.HELD_BACK,
        f"Held back: {unconsumed} {noun} unconsumed, for up to {lain}; {_count(facts.waiting.pending)} waiting.",
        "No worker takes them: start or mend the workers (pin worker).",
        "unconsumed",
    )


def _runs_end_badly(facts: Facts) -> Verdict | None:
    run = facts.last_run
    if run is None or not facts.waiting.pending:
        return None
    if run.result == RunResult.HALTED:
        error = run.halted_by or "a refused credential"
        return Verdict(
            VerdictKind.STUCK,
            f"Stuck on {error}: selections refuses every call of news; {_count(facts.waiting.pending)} waiting.",
            "Mend news' credential or the policy at selections; nothing is quarantined meanwhile.",
            "backlog",
            stuck_on=error,
        )
    if run.result in {RunResult.FAILED, RunResult.LOCK_LOST} and not facts.recent.delivered:
        return Verdict(
            VerdictKind.STUCK,
            f"Stuck: the last run ended as {run.result} {span(facts.now - (run.ended_at or run.started_at))} ago;"
            f" {_count(facts.waiting.pending)} waiting.",
            "Look at the scheduler's log and at the database: pin doctor",
            "no-runs",
            stuck_on=run.result,
        )
    return None


def _stuck(facts: Facts) -> Verdict | None:
    waiting, recent = facts.waiting, facts.recent
    if not waiting.pending or not facts.pending_errors:
        return None
    outage = recent.delivered == 0 and recent.failed >= BURST
    old = waiting.overdue > 0 and recent.delivered_overdue == 0
    worst = facts.pending_errors[0]
    failing = sum(answer.count for answer in facts.pending_errors)
    if not outage and not (old and failing >= waiting.overdue):
        return None
    return Verdict(
        VerdictKind.STUCK,
        f"Stuck on {worst.error}: {worst.count} of {waiting.pending} waiting entries failed with it, the oldest entry"
        f" waits for {_age(facts)}.",
        "See whether selections' internal API can be reached (pin doctor); the backlog drains by itself once it can.",
        "backlog",
        stuck_on=worst.error,
    )


def _no_success(facts: Facts, limits: Limits) -> Verdict | None:
    """Runs come and go, and none succeeds: the alert on it fires, whether anything waits or not (J27, G20)."""
    tick, run = facts.last_tick, facts.last_run
    if tick is None or run is None or tick.result == RunResult.PAUSED or not _long_without_success(facts, limits):
        return None
    if facts.last_success is None and run.result not in {RunResult.FAILED, RunResult.LOCK_LOST}:
        return None  # the first runs of a new fleet
    waiting = _count(facts.waiting.pending)
    return Verdict(
        VerdictKind.NO_RUNNER,
        f"No run has succeeded {_since(facts)}: the last ended as {run.result}; {waiting} waiting.",
        "Look at the last runs (pin runs list), the scheduler's log and the database (pin doctor).",
        "no-runs",
    )


def _under_way(facts: Facts, limits: Limits) -> Verdict:
    waiting, recent = facts.waiting, facts.recent
    aside, advice, runbook = "", None, None
    if waiting.quarantined:
        aside = f" {_count(waiting.quarantined)} quarantined: a person must look."
        advice, runbook = "See what they failed with: pin quarantine groups", "quarantined"
    aside += in_words(facts.untold)
    if not waiting.pending:
        return Verdict(VerdictKind.DELIVERING, f"Delivering: nothing waits.{aside}", advice, runbook)
    backlog = waiting.overdue > 0 or waiting.pending > limits.batch_size
    if backlog and recent.delivered:
        estimate = _estimate(facts)
        says = f"Draining: {_count(waiting.pending)} waiting, gone in about {span(estimate)}.{aside}"
        return Verdict(VerdictKind.DRAINING, says, advice, runbook, estimate=estimate)
    if waiting.overdue:
        return Verdict(
            VerdictKind.STUCK,
            f"Stuck: {_count(waiting.overdue)} waiting for longer than {span(limits.age)}, the oldest for"
            f" {_age(facts)}, and nothing was delivered in {span(WINDOW)}.",
            "Look at the last runs: pin runs list; and at what the entries say: pin entries list state:Pending",
            "backlog",
            stuck_on=_last_result(facts),
        )
    says = f"Delivering: {_count(waiting.pending)} waiting, the oldest for {_age(facts)}.{aside}"
    return Verdict(VerdictKind.DELIVERING, says, advice, runbook)


def _estimate(facts: Facts) -> timedelta:
    per_second = facts.recent.delivered / WINDOW.total_seconds()
    if facts.recent.delivered_last_minute:
        per_second = max(per_second, facts.recent.delivered_last_minute / 60)
    by_rate = timedelta(seconds=facts.waiting.pending / per_second)
    last_due = facts.waiting.last_due
    return max(by_rate, last_due - facts.now if last_due else by_rate)


def _long_without_success(facts: Facts, limits: Limits) -> bool:
    return facts.last_success is None or facts.now - facts.last_success > limits.no_run


def _since(facts: Facts) -> str:
    return f"for {span(facts.now - facts.last_success)}" if facts.last_success else "yet"


def _last_result(facts: Facts) -> str:
    run = facts.last_run
    if run is None or run.result is None or run.result in SUCCESSFUL:
        return "nothing delivered"
    return run.result


def _age(facts: Facts) -> str:
    return span(facts.now - facts.waiting.oldest) if facts.waiting.oldest else "0 s"


def _count(number: int) -> str:
    return "1 entry is" if number == 1 else f"{number} entries are"


def span(length: timedelta) -> str:
    """A span of time as people say it: `42 s`, `5 min`, `3 h 20 min`, `2 d 4 h`."""
    seconds = max(0, round(length.total_seconds()))
    if seconds < 120:  # noqa: PLR2004 - up to two minutes, seconds say more
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if hours < 2:  # noqa: PLR2004
        return f"{minutes} min"
    if days < 2:  # noqa: PLR2004
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"
