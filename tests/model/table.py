"""What an outbox row may do, written from the state table alone: a plain in-memory model without SQL and without pin's
own rules, which it is there to contradict.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

MAX_ATTEMPTS = 3
BASE, FACTOR, CAP = timedelta(minutes=1), 2, timedelta(minutes=3)
JITTER = 0.1

SUCCESS, TRANSIENT, REFUSED, NOT_FOUND, INVALID = "success", "transient", "refused", "not found", "invalid"
NOT_CALLED = "not called"


@dataclass
class ModelRow:
    """One row. `earliest` and `latest` bound its due time; once read, both are what the database has."""

    id: UUID
    snapshot: UUID
    guard: bool
    earliest: datetime
    latest: datetime
    status: str = "Pending"
    attempts: int = 0
    version: int = 0
    outcome_due: bool = False
    error: str | None = None
    claimed_from: datetime | None = None
    """When it was due before its last claim."""

    @property
    def due(self) -> datetime:
        """When it falls due; known once it was read."""
        assert self.earliest == self.latest
        return self.latest


@dataclass(frozen=True)
class ModelCall:
    """A call that was made or is on the wire: of which row, at which version."""

    id: UUID
    version: int


@dataclass
class OutboxTable:
    """All rows, and how many history, event and audit rows must stand beside them."""

    rows: dict[UUID, ModelRow] = field(default_factory=dict)
    history: Counter[str] = field(default_factory=Counter)
    events: int = 0
    audits: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    """The transitions that were walked, by name."""

    def active(self, snapshot: UUID) -> bool:
        """Is there a row of the snapshot that is not Done?"""
        return any(row.snapshot == snapshot and row.status != "Done" for row in self.rows.values())

    def stage(self, made: ModelRow) -> None:
        """(none) -> Pending."""
        assert not self.active(made.snapshot)
        self.rows[made.id] = made
        self.seen["stage guard" if made.guard else "stage"] += 1

    def remove_guards(self, ids: Iterable[UUID]) -> int:
        """Untouched guards go; anything else stays."""
        going = [i for i in dict.fromkeys(ids) if i in self.rows and self._is_untouched_guard(self.rows[i])]
        for each in going:
            del self.rows[each]
        self.seen["guard removed"] += len(going)
        return len(going)

    def claimable(self, due: datetime, held: Collection[UUID] = ()) -> list[ModelRow]:
        """What a claim may look at, in its order."""
        found = [
            row
            for row in self.rows.values()
            if row.status == "Pending" and row.due <= due and row.attempts <= MAX_ATTEMPTS and row.id not in held
        ]
        return sorted(found, key=lambda row: (row.due, row.id))

    def spent(self, due: datetime, limit: int) -> list[ModelRow]:
        """What leaves Pending uncalled under this limit of attempts, in its order."""
        found = [
            row for row in self.rows.values() if row.status == "Pending" and row.due <= due and row.attempts > limit
        ]
        return sorted(found, key=lambda row: (row.due, row.id))

    def claim(self, row: ModelRow, now: datetime) -> None:
        """Pending -> Pending, the attempt marked before the call."""
        self.seen["claim after a lost outcome" if row.outcome_due else "claim"] += 1
        row.attempts += 1
        row.version += 1
        row.outcome_due = True
        row.claimed_from = row.due
        delay = min(BASE * FACTOR ** (row.attempts - 1), CAP)
        row.earliest, row.latest = now + delay, now + delay * (1 + JITTER) + timedelta(milliseconds=1)

    def quarantine_uncalled(self, row: ModelRow) -> None:
        """Pending, attempts above the limit -> Quarantined."""
        row.error = "OUTCOME_LOST" if row.outcome_due else row.error or "ATTEMPTS_SPENT"
        self.seen[f"spent, {row.error if row.outcome_due else 'error kept'}"] += 1
        self._quarantine(row)

    def record(self, call: ModelCall, kind: str, error: str | None, wait: timedelta | None, now: datetime) -> None:
        """What a reply makes of the row as it stands."""
        row = self.rows.get(call.id)
        if row is None:
            self.seen["reply for a removed guard"] += 1
            return
        if kind == SUCCESS:
            self._success(row, call)
        elif kind == NOT_CALLED:
            self._give_back(row, call)
        elif row.status != "Pending" or row.version != call.version:
            self._remember("Late", f"late failure, {row.status}")
        elif kind == NOT_FOUND and row.guard:
            self._remember("Succeeded", "guard without a snapshot")
            self._end(row)
        elif row.attempts == 0:
            self._remember("Retried", "first attempt fails")
            self._keep(row, error)
        elif kind in {NOT_FOUND, INVALID} or row.attempts >= MAX_ATTEMPTS:
            permanent = kind in {NOT_FOUND, INVALID}
            self._remember("Quarantined", "permanent refusal" if permanent else "attempts spent")
            row.error = error
            self._quarantine(row)
        else:
            self._remember("Retried", "retry")
            self._keep(row, error)
            if wait is not None and wait > timedelta(0):
                later = max(row.due, now + min(wait, CAP))
                self.seen["retry-after moves the due time"] += later > row.due
                row.earliest = row.latest = later

    def _give_back(self, row: ModelRow, call: ModelCall) -> None:
        """Not called: as before the claim; of an older version it is nothing at all."""
        if row.status != "Pending" or row.version != call.version or row.attempts == 0:
            self.seen["not called, moved on"] += 1
            return
        self._remember("NotCalled", "not called")
        row.attempts -= 1
        row.version += 1
        row.outcome_due = False
        assert row.claimed_from is not None
        row.earliest = row.latest = row.claimed_from

    def requeue(self, ids: Sequence[UUID], now: datetime) -> dict[UUID, str]:
        """Quarantined -> Pending by an operator; the answer of each id."""
        answers: dict[UUID, str] = {}
        for each in dict.fromkeys(ids):
            row = self.rows.get(each)
            if row is None:
                answers[each] = "Unknown"
            elif row.status != "Quarantined":
                answers[each] = "NotQuarantined"
                self.seen[f"requeue refused, {row.status}"] += 1
            else:
                answers[each] = "Requeued"
                self.seen["requeue"] += 1
                self.audits += 1
                row.status, row.attempts, row.outcome_due = "Pending", 0, False
                row.version += 1
                row.earliest = row.latest = now
        return answers

    def compare(self, found: Any) -> None:
        """The database's row against the model's; its due time is taken over."""
        row = self.rows[found.id]
        assert (found.status, found.attempts, found.version, found.outcome_due, found.last_error, found.is_guard) == (
            row.status,
            row.attempts,
            row.version,
            row.outcome_due,
            row.error,
            row.guard,
        )
        assert row.earliest <= found.next_attempt_at <= row.latest
        row.earliest = row.latest = found.next_attempt_at

    def _success(self, row: ModelRow, call: ModelCall) -> None:
        if row.status == "Done":
            self._remember("Late", "success again")
            return
        if row.status == "Quarantined":
            self.audits += 1
            self._remember("Succeeded", "late success, Quarantined")
        else:
            late = row.version != call.version
            first = row.attempts == 0 and not late
            self._remember(
                "Succeeded", "late success, Pending" if late else "first attempt succeeds" if first else "success"
            )
        self._end(row)

    def _remember(self, outcome: str, transition: str) -> None:
        self.history[outcome] += 1
        self.seen[transition] += 1

    def _end(self, row: ModelRow) -> None:
        row.status, row.error, row.outcome_due = "Done", None, False
        row.version += 1

    def _keep(self, row: ModelRow, error: str | None) -> None:
        row.error, row.outcome_due = error, False
        row.version += 1

    def _quarantine(self, row: ModelRow) -> None:
        row.status, row.outcome_due = "Quarantined", False
        row.version += 1
        self.events += 1

    @staticmethod
    def _is_untouched_guard(row: ModelRow) -> bool:
        return row.guard and row.status == "Pending" and row.version == 0
