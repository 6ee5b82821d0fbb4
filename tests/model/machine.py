"""The machine that drives the real storage verbs on PostgreSQL and the model of the state table side by side."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from sqlalchemy import Connection, Engine, text

from db.outbox import claim, outcome
from db.outbox import intents as outbox
from db.outbox.claim import START as CURSOR
from db.outbox.claim import Claimed, Pass
from db.outbox.intents import Intent
from db.outbox.outcome import Answered, AttemptOrigin
from pin import operations
from pin.clock import new_id
from pin.job import record as delivery
from pin.rules.contract import Reason
from pin.rules.outbox import Entry, Outcome, OutcomeKind, Policy, Reply, Verdict
from tests.claiming import terms_of
from tests.model.table import (
    BASE,
    CAP,
    FACTOR,
    INVALID,
    MAX_ATTEMPTS,
    NOT_CALLED,
    NOT_FOUND,
    REFUSED,
    SUCCESS,
    TRANSIENT,
    ModelCall,
    ModelRow,
    OutboxTable,
)

START = datetime(2026, 3, 1, tzinfo=UTC)
POLICY = Policy(MAX_ATTEMPTS, BASE, FACTOR, CAP)
SNAPSHOTS = [UUID(int=number) for number in range(1, 6)]
USER = UUID(int=99)
VERDICTS = {
    SUCCESS: Verdict.DETACHED,
    TRANSIENT: Verdict.TRANSIENT,
    REFUSED: Verdict.REFUSED,
    NOT_FOUND: Verdict.NOT_FOUND,
    INVALID: Verdict.INVALID,
    NOT_CALLED: Verdict.NOT_CALLED,
}
WAITS = [None, timedelta(seconds=-5), timedelta(seconds=5), timedelta(minutes=2), timedelta(days=400)]
sizes = st.sampled_from([1, 2, 3, 100])
picks = st.lists(st.integers(0, 1000), min_size=1, max_size=5)


class OutboxMachine(RuleBasedStateMachine):
    """Each rule does one thing to the database and to the model; after it both are compared."""

    def __init__(self, engine: Engine, seen: Counter[str]) -> None:
        super().__init__()
        self.engine = engine
        self.table = OutboxTable(seen=seen)
        self.calls: list[Entry] = []
        self.versions: dict[UUID, int] = {}
        self.announced: list[UUID] = []
        self.now = START

    @initialize()
    def empty(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(
                text("""
                    TRUNCATE news.snapshot_detach_outbox, news.snapshot_detach_attempt, news.snapshot_detach_audit,
                        news.snapshot_detach_quarantined_event, news.snapshot_detach_alert
                """)
            )

    @rule(
        wanted=st.lists(st.tuples(st.sampled_from(SNAPSHOTS), st.booleans()), min_size=1, max_size=4),
        wait=st.integers(-60, 60),
        commits=st.sampled_from([True, True, True, False]),
    )
    def stage(self, wanted: list[tuple[UUID, bool]], wait: int, commits: bool) -> None:
        due = self._moment() + timedelta(seconds=wait)
        intents = [
            Intent(new_id(), snapshot, USER, Reason.POST_DELETED, USER, due + timedelta(microseconds=number), guard)
            for number, (snapshot, guard) in enumerate(wanted)
        ]
        with self.engine.connect() as connection:
            made = outbox.stage(connection, intents, self.now)
            assert {entry.snapshot_id for entry in made} == {s for s, _ in wanted if not self.table.active(s)}
            assert len(made) == len({entry.snapshot_id for entry in made})
            if not commits:
                connection.rollback()
                return
            connection.commit()
        for entry in made:
            row = ModelRow(entry.id, entry.snapshot_id, entry.is_guard, entry.next_attempt_at, entry.next_attempt_at)
            assert entry.next_attempt_at in {intent.due_at for intent in intents if intent.id == entry.id}
            self.table.stage(row)
        self.calls += made

    @precondition(lambda self: self.table.rows)
    @rule(picked=picks)
    def remove_guards(self, picked: list[int]) -> None:
        ids = self._rows(picked)
        with self.engine.begin() as connection:
            removed = outbox.remove_guards(connection, ids)
        assert removed == self.table.remove_guards(ids)

    @rule(size=sizes, lone=st.booleans(), behind=st.sampled_from([0, 0, 30]), later=st.sampled_from([0, 250]))
    def claim(self, size: int, lone: bool, behind: int, later: int) -> None:
        """A run's first claim, and with `lone` the first row that goes alone."""
        self.now += timedelta(seconds=later)
        now = self._moment()
        due = now - timedelta(seconds=behind)
        candidates = self.table.claimable(due)
        with self.engine.begin() as connection:
            taken = self._claim(connection, due, size)
            self._expect_claim(taken, candidates, size)
            alone = self._claim_lost(connection, due, taken.lost[0]) if lone and taken.lost else None
        self._claimed(taken, now)
        if alone is not None:
            assert [each.entry_id for each in alone.claimed] == [taken.lost[0]]
            self._claimed(alone, now)

    @rule(size=st.sampled_from([1, 2, 3]), steps=st.lists(st.integers(-20000, 20000), min_size=8, max_size=8))
    def a_whole_run(self, size: int, steps: list[int]) -> None:
        """A run reads the clock once: whatever the clock does meanwhile, it claims what is due, and each row once."""
        started = self._moment()
        due = [row for row in self.table.claimable(started) if not row.outcome_due]
        cursor, seen = CURSOR, []
        for step in steps:
            self.now += timedelta(seconds=step)  # the wall clock, which the run does not ask again
            with self.engine.begin() as connection:
                taken = claim.claim_due(
                    connection, terms_of(connection, due=started, policy=POLICY), after=cursor, size=size, now=started
                )
            self._claimed(taken, started)
            seen += [each.entry_id for each in taken.claimed]
            cursor = taken.cursor
            if taken.last:
                break
        assert seen == sorted(set(seen), key=seen.index), "none twice"
        assert set(seen) == {row.id for row in due[: len(seen)]}
        assert taken.last == (len(seen) == len(due) and len(taken.claimed) < size)
        self.now = max(self.now, started)

    @rule(sizes=st.tuples(sizes, sizes), commit=st.tuples(*[st.booleans()] * 2))
    def two_runners(self, sizes: tuple[int, int], commit: tuple[bool, bool]) -> None:
        """The second claims while the first's transaction is open: never a row of the first's window."""
        now = self._moment()
        with self.engine.connect() as one, self.engine.connect() as other:
            candidates = self.table.claimable(now)
            first = self._claim(one, now, sizes[0])
            second = self._claim(other, now, sizes[1])
            mine, theirs = ({c.entry_id for c in taken.claimed} for taken in (first, second))
            assert not mine & theirs
            self._expect_claim(first, candidates, sizes[0])
            self._expect_claim(second, [row for row in candidates if row.id not in mine], sizes[1], alone=False)
            self.table.seen["two runners, both with rows"] += bool(mine and theirs)
            for connection, taken, committed in ((one, first, commit[0]), (other, second, commit[1])):
                if committed:
                    connection.commit()
                    self._claimed(taken, now)
                else:
                    connection.rollback()

    @rule(limit=st.sampled_from([MAX_ATTEMPTS, MAX_ATTEMPTS, 1]))
    def quarantine_spent(self, limit: int) -> None:
        """Also under a limit that an operator has lowered meanwhile; rows that are not spent stay, though named."""
        now = self._moment()
        expected = self.table.spent(now, limit)
        with self.engine.begin() as connection:
            spent = claim.quarantine_spent(connection, list(self.table.rows), due=now, now=now, max_attempts=limit)
            found = [(entry, Outcome(OutcomeKind.QUARANTINED, error)) for entry, error in spent]
            delivery.write_quarantined(connection, found, now, BASE, self._announce)
        ids = {entry.id for entry, _ in spent}
        assert ids == {row.id for row in expected}
        for each in ids:
            self.table.quarantine_uncalled(self.table.rows[each])

    @precondition(lambda self: self.calls)
    @rule(
        picked=picks,
        replies=st.lists(st.tuples(st.sampled_from(sorted(VERDICTS)), st.sampled_from(WAITS)), min_size=5, max_size=5),
        newest=st.sampled_from([True, True, False]),
    )
    def record(self, picked: list[int], replies: list[tuple[str, timedelta | None]], newest: bool) -> None:
        """Replies to calls new and old, several in one batch, the same call more than once."""
        calls = self.calls[-3:] if newest else self.calls
        answered: list[Answered] = []
        for number, (kind, wait) in zip(picked, replies, strict=False):
            error = None if kind in {SUCCESS, NOT_CALLED} else f"HTTP {len(kind)}"
            answered.append(Answered(calls[number % len(calls)], Reply(VERDICTS[kind], error, retry_after=wait)))
        now = self._moment()
        origin = AttemptOrigin(None, "model", None)
        delivery.record(self.engine, answered, origin=origin, policy=POLICY, now=now, announce=self._announce)
        for one, (kind, wait) in _in_effect(list(zip(answered, replies, strict=False))):
            self.table.record(ModelCall(one.called.id, one.called.version), kind, one.reply.error, wait, now)

    @precondition(lambda self: self.table.rows)
    @rule(picked=picks, unknown=st.booleans())
    def requeue(self, picked: list[int], unknown: bool) -> None:
        ids = [*self._rows(picked), *([new_id()] if unknown else [])]
        now = self._moment()
        answers = operations.requeue(self.engine, ids, actor="model", reason="why not", now=now)
        assert {answer.entry_id: answer.result.value for answer in answers} == self.table.requeue(ids, now)

    @rule(seconds=st.integers(-600, 1200))
    def time_moves(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @invariant()
    def both_say_the_same(self) -> None:
        self.table.seen["compared"] += 1
        with self.engine.connect() as connection:
            found = list(connection.execute(text("SELECT * FROM news.snapshot_detach_outbox")))
            counts = connection.execute(
                text("""
                    SELECT (SELECT count(*) FROM news.snapshot_detach_quarantined_event) AS events,
                           (SELECT count(*) FROM news.snapshot_detach_audit) AS audits
                """)
            ).one()
            kept = connection.execute(
                text("SELECT outcome, count(*) AS count FROM news.snapshot_detach_attempt GROUP BY outcome")
            )
            history = {row.outcome: row.count for row in kept}
        assert {row.id for row in found} == set(self.table.rows)
        active = [row.snapshot_id for row in found if row.status != "Done"]
        assert len(active) == len(set(active))
        for row in found:
            self.table.compare(row)
            assert row.version >= self.versions.get(row.id, 0), "a version never falls"
            self.versions[row.id] = row.version
        assert (counts.events, counts.audits) == (self.table.events, self.table.audits)
        assert len(self.announced) == self.table.events
        assert history == +self.table.history

    def _moment(self) -> datetime:
        """Now; no two rules share one."""
        self.now += timedelta(microseconds=10)
        return self.now

    def _rows(self, picked: Sequence[int]) -> list[UUID]:
        known = list(self.table.rows)
        return [known[number % len(known)] for number in picked]

    def _announce(self, _connection: Connection, event_ids: Sequence[UUID]) -> None:
        self.announced += event_ids

    def _claim(self, connection: Connection, due: datetime, size: int) -> Pass:
        terms = terms_of(connection, due=due, policy=POLICY)
        return claim.claim_due(connection, terms, after=CURSOR, size=size, now=self.now)

    def _claim_lost(self, connection: Connection, due: datetime, entry_id: UUID) -> Pass:
        terms = terms_of(connection, due=due, policy=POLICY)
        return claim.claim_lost(connection, terms, entry_id=entry_id, now=self.now)

    def _expect_claim(self, taken: Pass, candidates: Sequence[ModelRow], size: int, *, alone: bool = True) -> None:
        """The first in the due order that do not go alone; those of the others that stand before the last of them."""
        together = [row for row in candidates if not row.outcome_due]
        window = together[:size]
        assert taken.open
        assert {each.entry_id for each in taken.claimed} == {row.id for row in window}
        assert taken.last == (len(window) < size)
        if alone:
            edge = (window[-1].due, window[-1].id) if len(window) == size else None
            lost = [row.id for row in candidates if row.outcome_due and (edge is None or (row.due, row.id) < edge)]
            assert list(taken.lost) == lost

    def _claimed(self, taken: Pass, now: datetime) -> None:
        for each in taken.claimed:
            row = self.table.rows[each.entry_id]
            self.table.claim(row, now)
            assert each.version == row.version
        if taken.claimed:
            stale = [Claimed(each.entry_id, each.version - 1) for each in taken.claimed]
            with self.engine.connect() as connection:
                assert outcome.still_claimed(connection, stale) == []
                called = outcome.still_claimed(connection, taken.claimed)
            assert {entry.id for entry in called} == {each.entry_id for each in taken.claimed}
            self.calls += called


def _in_effect(answers: Sequence[tuple[Answered, Any]]) -> list[tuple[Answered, Any]]:
    """The answers in the order they take effect: each entry's first, then each one's second, …"""
    turns: Counter[UUID] = Counter()
    ordered = []
    for one, reply in answers:
        ordered.append((turns[one.called.id], one, reply))
        turns[one.called.id] += 1
    return [(one, reply) for _, one, reply in sorted(ordered, key=lambda each: each[0])]
