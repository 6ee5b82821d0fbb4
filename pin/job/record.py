"""Decide on what was answered and record it: one short transaction a batch (J13–J17, G7, G9, G21)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from db.errors import describe, is_away, is_passing, is_victim
from db.outbox import alerts, outcome, quarantine, runs
from db.outbox.outcome import Answered, AttemptOrigin, Decided
from db.outbox.runs import RunOutcomes
from pin.clock import new_id
from pin.rules.alerts import QuarantinedEvent
from pin.rules.outbox import Entry, Outcome, OutcomeKind, Policy, Status, Verdict, decide, ends_pass
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

Announce = Callable[[Connection, Sequence[UUID]], None]
"""Writes the alert's message for these quarantine events into the caller's transaction (G21)."""

_VICTIM_TRIES = 3


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """A transaction whose COMMIT had no answer, what it decided, and the error that came instead."""

    transaction: str
    decided: list[Decided]
    error: DBAPIError


@dataclass(slots=True)
class Recording:
    """The outcomes of one batch on their way into the database; `run` may be called again after the database was away.

    A transaction whose COMMIT had no answer is asked about before anything is done again, so that what is answered,
    logged and counted is what the rows say (A47).
    """

    answered: Sequence[Answered]
    origin: AttemptOrigin
    policy: Policy
    announce: Announce
    redelivered: bool = False
    """An earlier delivery of the batch may have called what this one did not (G22)."""
    _left: list[list[Answered]] = field(init=False)
    _decided: list[Decided] = field(default_factory=list)
    _unknown: "_Unanswered | None" = None

    def __post_init__(self) -> None:
        self._left = _rounds(self.answered)

    def run(self, engine: Engine, now: datetime) -> list[Decided]:
        """Record what is not recorded yet; answers all that was decided (J13).

        An entry that was answered twice is decided on twice, one transaction after the other. If the data is refused,
        the rows are recorded singly and the bad one is isolated. Raises sqlalchemy.exc.DBAPIError or the pool's
        TimeoutError for whatever passes by itself (`db.errors.is_passing`); then `run` goes on where it was.
        """
        while self._left:
            batch = self._left[0]
            try:
                found = self._settled(engine)
                if found is None:
                    found = self._record(engine, batch, now)
            except DBAPIError as error:
                if is_passing(error):
                    raise
                if len(batch) == 1:
                    one = batch[0].called
                    log.exception("outcome not recorded", entryId=str(one.id), snapshotId=str(one.snapshot_id))
                    found = []
                else:
                    log.warning("batch outcome refused, recording singly", rows=len(batch), error=describe(error))
                    self._left[0:1] = [[one] for one in batch]
                    continue
            self._decided += found
            del self._left[0]
        return self._decided

    def _settled(self, engine: Engine) -> list[Decided] | None:
        """What a transaction with a lost answer decided, None where there is none or it came to nothing."""
        if self._unknown is None:
            return None
        unknown = self._unknown
        with engine.connect() as connection:
            committed = outcome.was_committed(connection, unknown.transaction)
        if committed is None:
            raise unknown.error  # the server has not noticed yet that we are gone: ask again in a moment
        self._unknown = None
        return unknown.decided if committed else None

    def _record(self, engine: Engine, batch: Sequence[Answered], now: datetime) -> list[Decided]:
        """One transaction: lock the rows in id order, decide on them as they stand, write, keep the history (G21)."""
        for tries_left in reversed(range(_VICTIM_TRIES)):
            written: tuple[str | None, list[Decided]] | None = None
            try:
                with engine.begin() as connection:
                    written = self._write(connection, batch, now)
                return written[1]
            except DBAPIError as error:
                if written is not None and written[0] is not None and is_away(error):
                    self._unknown = _Unanswered(written[0], written[1], error)
                if tries_left == 0 or not is_victim(error):
                    raise
        raise AssertionError("the last try returns or raises")

    def _write(
        self, connection: Connection, batch: Sequence[Answered], now: datetime
    ) -> tuple[str | None, list[Decided]]:
        standing = outcome.lock(connection, [one.called.id for one in batch])
        decided = [
            Decided(one.called, entry, one.reply, decide(entry, one.called.version, one.reply, now, self.policy))
            for one in batch
            if (entry := standing.entries.get(one.called.id)) is not None
        ]
        kept = [each for each in decided if not _has_nothing_to_tell(each)]
        outcome.write(connection, kept, self.origin, now, redelivered=self.redelivered)
        moves = [(each.entry, each.outcome) for each in kept]
        write_quarantined(connection, moves, now, self.policy.backoff_base, self.announce)
        quarantine.write_audit(connection, [_late_success(d) for d in kept if _is_late_success(d)], now)
        if self.origin.run_id is not None:
            halted_by = ends_pass(one.reply for one in batch)
            runs.note(connection, self.origin.run_id, _counted(kept), halted_by=halted_by)
        return standing.transaction, kept


def record(
    engine: Engine,
    answered: Sequence[Answered],
    *,
    origin: AttemptOrigin,
    policy: Policy,
    now: datetime,
    announce: Announce,
) -> list[Decided]:
    """Record the outcomes of a batch, once (`Recording`)."""
    return Recording(answered, origin, policy, announce).run(engine, now)


def _has_nothing_to_tell(decided: Decided) -> bool:
    """Not called, and its entry has moved on since."""
    return decided.reply.verdict is Verdict.NOT_CALLED and decided.outcome.kind is OutcomeKind.LATE


def _counted(decided: Sequence[Decided]) -> RunOutcomes:
    kinds = Counter(each.outcome.kind for each in decided)
    return RunOutcomes(
        kinds[OutcomeKind.SUCCEEDED],
        kinds[OutcomeKind.RETRIED],
        kinds[OutcomeKind.QUARANTINED],
        kinds[OutcomeKind.NOT_CALLED],
    )


def _rounds(answered: Sequence[Answered]) -> list[list[Answered]]:
    """The answers so that each round has an entry once: a second answer is decided on what the first has left."""
    rounds: list[list[Answered]] = []
    turns: Counter[UUID] = Counter()
    for one in answered:
        turn = turns[one.called.id]
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(one)
        turns[one.called.id] += 1
    return rounds


def write_quarantined(
    connection: Connection,
    decided: Sequence[tuple[Entry, Outcome]],
    now: datetime,
    lease: timedelta,
    announce: Announce,
) -> None:
    """Leave the event of each move to Quarantined, and its alert's message, in the same transaction (J15, G21, G27).

    lease: how long the message has until a tick sends another; BackoffBase, which is longer than a worker needs.
    """
    events = [
        QuarantinedEvent(
            id=new_id(),
            entry_id=entry.id,
            snapshot_id=entry.snapshot_id,
            post_id=entry.post_id,
            reason=str(entry.reason),
            attempts=entry.attempts,
            last_error=decision.error,
            occurred_at=now,
        )
        for entry, decision in decided
        if decision.kind is OutcomeKind.QUARANTINED
    ]
    if events:
        alerts.write_events(connection, events, now, lease)
        announce(connection, [event.id for event in events])


def _is_late_success(decided: Decided) -> bool:
    return decided.outcome.kind is OutcomeKind.SUCCEEDED and decided.entry.status == Status.QUARANTINED


def _late_success(decided: Decided) -> quarantine.AuditRow:
    return quarantine.AuditRow(
        id=new_id(),
        entry_id=decided.entry.id,
        snapshot_id=decided.entry.snapshot_id,
        actor="system",
        action="late-success",
        reason="a success arrived after the quarantine (G9)",
        details={"calledVersion": decided.called.version},
    )
