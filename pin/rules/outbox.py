"""The rules of an intent: its states, its schedule, and what a reply makes of it. Pure: no I/O, no framework.

The lifecycle of `SnapshotDetachOutboxEntry` (docs/lifecycle.md has the same table):

    (none)       stage                                    -> Pending, attempts 0, version 0
    Pending      claim                                    -> Pending, attempts + 1, version + 1, outcome due
    Pending      the contract's success, of any attempt   -> Done
    Pending      failure of the current version           -> Pending; Quarantined once the attempts are spent
    Pending      permanent refusal, current version       -> Quarantined (a guard that meets 404: Done)
    Pending      claimed and not called                   -> Pending as before the claim, version + 1
    Pending      due with attempts above the limit        -> Quarantined, uncalled
    Quarantined  a late success                           -> Done
    Quarantined  re-enqueue by an operator                -> Pending, attempts 0, version + 1
    any          a late failure of an older version       -> unchanged, history only
    Done         anything                                 -> Done

`version` is the fence: raised by every change, never reset. `attempts` is the budget: reset by a re-enqueue.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from uuid import UUID

import backoff

from pin.rules.contract import Reason

JITTER = 0.1
"""Greatest jitter, as a share of the delay, added after the cap (G17)."""

LAST_ERROR_LENGTH = 512


class Status(StrEnum):
    """`SnapshotDetachOutboxStatus` (J9), stored as text."""

    PENDING = "Pending"
    DONE = "Done"
    QUARANTINED = "Quarantined"


class ErrorClass(StrEnum):
    """Classes of `last_error` that carry no status code (J14). A status code reads `HTTP 503`."""

    TIMEOUT = "TIMEOUT"
    NETWORK = "NETWORK"
    INVALID_RESPONSE = "INVALID_RESPONSE"
    CREDENTIAL = "CREDENTIAL"
    CLIENT = "CLIENT"
    OUTCOME_LOST = "OUTCOME_LOST"
    ATTEMPTS_SPENT = "ATTEMPTS_SPENT"


class Verdict(StrEnum):
    """What a reply means, whoever asked. A closed set."""

    DETACHED = "Detached"
    """The contract's success: 200, JSON, the same snapshot, status Detached (G4)."""
    TRANSIENT = "Transient"
    """Anything that is neither success nor permanent (J14, G3)."""
    REFUSED = "Refused"
    """Transient, and the same for every row: 401 and 403 end the pass (G3)."""
    NOT_FOUND = "NotFound"
    """404 with the contract's SELECTIONS_SNAPSHOT_NOT_FOUND: permanent; a guard's good end (G13)."""
    INVALID = "Invalid"
    """400 with the contract's VALIDATION_ERROR: permanent (G3)."""
    NOT_CALLED = "NotCalled"
    """No call was made: the pass ended, the worker stopped or its time was up before the entry's turn (G22)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back from one detach call. `error` is class and code alone, never text from the reply (J14)."""

    verdict: Verdict
    error: str | None = None
    http_status: int | None = None
    retry_after: timedelta | None = None
    duration: timedelta = timedelta(0)


class OutcomeKind(StrEnum):
    """What becomes of the entry: each is one transition. `LATE` changes nothing and is history only."""

    SUCCEEDED = "Succeeded"
    RETRIED = "Retried"
    QUARANTINED = "Quarantined"
    LATE = "Late"
    NOT_CALLED = "NotCalled"
    """Given back: attempt, due time and place as before the claim (G22)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The decision for one entry. `not_before` moves the due time later, never sooner (G17)."""

    kind: OutcomeKind
    error: str | None = None
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One intent, as it stands in its row."""

    id: UUID
    snapshot_id: UUID
    post_id: UUID
    reason: Reason | str
    requested_by_user_id: UUID
    status: Status | str
    attempts: int
    version: int
    is_guard: bool
    created_at: datetime
    next_attempt_at: datetime


@dataclass(frozen=True)
class Policy:
    """The retry schedule (J11, J15, G17)."""

    max_attempts: int
    backoff_base: timedelta
    backoff_factor: float
    backoff_cap: timedelta

    @cached_property
    def schedule(self) -> tuple[timedelta, ...]:
        """Delay after the 1st, 2nd, … attempt, without jitter: min(Base · Factor^(n-1), Cap).

        As long as attempts can get: MaxAttempts and the one call more of G7. The generator stops raising the power
        once the cap is reached, so that no attempt number overflows it (A2).
        """
        cap = self.backoff_cap.total_seconds()
        waits = backoff.expo(base=self.backoff_factor, factor=self.backoff_base.total_seconds(), max_value=cap)
        seconds = (wait for wait in waits if wait)
        return tuple(timedelta(seconds=min(wait, cap)) for wait in itertools.islice(seconds, self.max_attempts + 1))

    def delay(self, attempts: int, jitter: float = 0.0) -> timedelta:
        """The wait after attempt number `attempts` (1 and up); `jitter` in [0, 1] is the share of the greatest jitter.

        Never negative and never above Cap · (1 + JITTER), whatever the number (A2).
        """
        at = min(max(attempts, 1), len(self.schedule)) - 1
        return self.schedule[at] * (1 + JITTER * min(max(jitter, 0.0), 1.0))

    def window(self, polling_interval: timedelta, max_run_duration: timedelta) -> timedelta:
        """The backoff window W (G19): no entry is Pending longer while runner and workers run."""
        waits = sum((delay * (1 + JITTER) for delay in self.schedule[: self.max_attempts]), timedelta(0))
        return waits + self.max_attempts * polling_interval + polling_interval + max_run_duration


NOT_CALLED = Reply(Verdict.NOT_CALLED)
"""Of an entry whose call was not started."""


def decide(entry: Entry, version: int, reply: Reply, now: datetime, policy: Policy) -> Outcome:
    """What `reply`, to a call made at `version`, makes of `entry` as it stands now (J13–J16, G3, G7, G9, G13, G22).

    A success is the truth whenever it arrives; anything else counts only for the version that was called, and only
    while the entry is Pending. A first, synchronous call (version 0, attempts 0) spends no budget and never
    quarantines (J19).
    """
    error = clean_error(reply.error)
    if reply.verdict is Verdict.DETACHED:
        late = entry.status == Status.DONE
        return Outcome(OutcomeKind.LATE if late else OutcomeKind.SUCCEEDED)
    if entry.status != Status.PENDING or entry.version != version:
        return Outcome(OutcomeKind.LATE, error)
    if reply.verdict is Verdict.NOT_CALLED:
        return Outcome(OutcomeKind.NOT_CALLED if entry.attempts > 0 else OutcomeKind.LATE)
    return _decide_failure(entry, reply, error, now, policy)


def _decide_failure(entry: Entry, reply: Reply, error: str | None, now: datetime, policy: Policy) -> Outcome:
    """Of the version that was called, of an entry that is Pending."""
    if reply.verdict is Verdict.NOT_FOUND and entry.is_guard:
        return Outcome(OutcomeKind.SUCCEEDED)
    if entry.attempts == 0:
        return Outcome(OutcomeKind.RETRIED, error)
    permanent = reply.verdict in {Verdict.NOT_FOUND, Verdict.INVALID}
    if permanent or entry.attempts >= policy.max_attempts:
        return Outcome(OutcomeKind.QUARANTINED, error)
    return Outcome(OutcomeKind.RETRIED, error, _not_before(reply.retry_after, now, policy))


def _not_before(retry_after: timedelta | None, now: datetime, policy: Policy) -> datetime | None:
    """Retry-After, at most BackoffCap from now (G17). The storage takes the later of this and the backoff."""
    if retry_after is None or retry_after <= timedelta(0):
        return None
    return now + min(retry_after, policy.backoff_cap)


def clean_error(error: str | None) -> str | None:
    """`error` as last_error can hold it: printable ASCII, at most 512 characters (A1)."""
    if error is None:
        return None
    return "".join(char if " " <= char <= "~" else "?" for char in error[:LAST_ERROR_LENGTH])


def ends_pass(replies: Iterable[Reply]) -> str | None:
    """The error that is the same for every row and so ends the pass, if there is one (G3: 401 and 403)."""
    return next((reply.error for reply in replies if reply.verdict is Verdict.REFUSED), None)
