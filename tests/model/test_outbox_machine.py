"""The storage verbs on PostgreSQL against a model of the state table: whatever order they come in, both say the same.

A failing run prints the blob that repeats it (`@reproduce_failure`); with CI in the environment every run is the same.
"""

import os
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Engine

from pin.rules.outbox import Entry
from tests.model.machine import SNAPSHOTS, OutboxMachine
from tests.model.table import INVALID, MAX_ATTEMPTS, NOT_CALLED, NOT_FOUND, REFUSED, SUCCESS, TRANSIENT

WALKED = {
    "stage",
    "stage guard",
    "guard removed",
    "claim",
    "claim after a lost outcome",
    "spent, OUTCOME_LOST",
    "spent, error kept",
    "reply for a removed guard",
    "success",
    "success again",
    "first attempt succeeds",
    "first attempt fails",
    "late success, Pending",
    "late success, Quarantined",
    "late failure, Pending",
    "late failure, Quarantined",
    "late failure, Done",
    "guard without a snapshot",
    "permanent refusal",
    "attempts spent",
    "retry",
    "retry-after moves the due time",
    "requeue",
    "requeue refused, Pending",
    "requeue refused, Done",
    "two runners, both with rows",
    "not called",
    "not called, moved on",
}
"""Every line of the table, and the races beside it."""


class Walk:
    """The machine driven by hand, one snapshot at a time; after each step both are compared as well."""

    def __init__(self, machine: OutboxMachine) -> None:
        self.machine = machine
        machine.empty()

    def stage(self, number: int, *, guard: bool = False) -> Entry:
        """The entry as it was staged, which is also its first, synchronous call."""
        self.machine.stage(wanted=[(SNAPSHOTS[number], guard)], wait=0, commits=True)
        return self._last()

    def claim(self) -> Entry:
        """The one row that is due by the end of the day, as it was claimed."""
        self.machine.now += timedelta(days=1)
        self.machine.claim(size=1, lone=True, behind=0, later=0)
        return self._last()

    def reply(self, call: Entry, kind: str, wait: timedelta | None = None) -> None:
        self.machine.record(picked=[self.machine.calls.index(call)], replies=[(kind, wait)], newest=False)
        self.machine.both_say_the_same()

    def requeue(self) -> None:
        """All rows there are."""
        self.machine.requeue(picked=list(range(len(self.machine.table.rows))), unknown=True)
        self.machine.both_say_the_same()

    def spend(self, limit: int) -> None:
        self.machine.now += timedelta(days=1)
        self.machine.quarantine_spent(limit=limit)
        self.machine.both_say_the_same()

    def remove_guards(self) -> None:
        self.machine.remove_guards(picked=list(range(len(self.machine.table.rows))))
        self.machine.both_say_the_same()

    def _last(self) -> Entry:
        self.machine.both_say_the_same()
        return self.machine.calls[-1]


@pytest.mark.req("J9", "J11", "J15", "J16", "G7", "G9", "G13", "G17")
def test_every_line_of_the_state_table_is_walked(engine: Engine) -> None:
    machine = OutboxMachine(engine, Counter())
    walk = Walk(machine)
    # A guard, removed by the switch; its create's call is answered after that. Then one that fires.
    guard = walk.stage(0, guard=True)
    walk.remove_guards()
    walk.reply(guard, SUCCESS)
    walk.stage(0, guard=True)
    walk.reply(walk.claim(), NOT_FOUND)
    # A first call that fails, a retry, and late answers to both.
    first = walk.stage(1)
    walk.reply(first, TRANSIENT)
    second = walk.claim()
    walk.reply(second, TRANSIENT, timedelta(minutes=2))
    walk.reply(second, INVALID)
    walk.requeue()
    walk.reply(first, SUCCESS)
    walk.reply(second, TRANSIENT)
    walk.reply(second, SUCCESS)
    walk.requeue()
    # First calls that succeed at once, and calls that do.
    walk.reply(walk.stage(2), SUCCESS)
    walk.stage(2)
    walk.reply(walk.claim(), SUCCESS)
    # Claimed and not called: as before, and once it has moved on nothing more.
    walk.stage(2)
    given_back = walk.claim()
    walk.reply(given_back, NOT_CALLED)
    walk.reply(given_back, NOT_CALLED)
    walk.reply(walk.claim(), SUCCESS)
    # Quarantined by refusal, back, again by spent attempts, and detached all the same.
    walk.stage(3)
    early = walk.claim()
    walk.reply(early, INVALID)
    walk.reply(early, TRANSIENT)
    walk.requeue()
    for _ in range(MAX_ATTEMPTS):
        walk.reply(walk.claim(), REFUSED)
    walk.reply(early, SUCCESS)
    # Outcomes lost until no attempt is left; and a limit lowered under a row that has its outcome.
    walk.stage(4)
    for _ in range(MAX_ATTEMPTS + 1):
        walk.claim()
    walk.spend(MAX_ATTEMPTS)
    walk.stage(2)
    for _ in range(2):
        walk.reply(walk.claim(), TRANSIENT)
    walk.spend(1)
    machine.stage(wanted=[(SNAPSHOTS[0], False), (SNAPSHOTS[1], False)], wait=0, commits=True)
    machine.two_runners(sizes=(1, 1), commit=(True, True))
    machine.both_say_the_same()
    assert {name for name in WALKED if not machine.table.seen[name]} == set()


@pytest.mark.timeout(600)  # a failure is made small before it is told, which may take minutes
@pytest.mark.req("J4", "J9", "J10", "J11", "J13", "J16", "J20", "G6", "G7", "G9", "G13", "G17", "G21", "G22", "G25")
def test_the_storage_verbs_and_the_state_table_say_the_same(engine: Engine) -> None:
    seen: Counter[str] = Counter()
    machine: Any = partial(OutboxMachine, engine, seen)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=70,
            stateful_step_count=45,
            deadline=None,
            derandomize=bool(os.environ.get("CI")),
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert seen["compared"] > 100, f"the runs went nowhere: {seen}"
