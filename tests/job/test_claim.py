"""The claim: what it takes, in which order, under which plan, and how it marks the attempt."""

from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from db.outbox import claim
from db.outbox import intents as outbox
from db.outbox.claim import Claimed
from db.outbox.intents import Intent
from pin.clock import new_id, utc_now
from pin.rules.contract import Reason
from pin.rules.outbox import Policy
from tests import claiming
from tests.job.scene import change, query, row, rows, stage

POLICY = Policy(12, timedelta(minutes=1), 2.0, timedelta(minutes=30))
SECOND = timedelta(seconds=1)


def claim_due(connection: Connection, *, size: int = 100, policy: Policy = POLICY) -> list[Claimed]:
    return list(claiming.claim_due(connection, now=utc_now(), size=size, policy=policy).claimed)


@pytest.mark.req("J10", "J11", "G6")
def test_the_longest_due_are_claimed_first_and_marked_before_any_call(engine: Engine) -> None:
    now = utc_now()
    late, later, not_due = (
        stage(engine, [new_id()], due=now - timedelta(minutes=minutes))[0] for minutes in (9, 5, -1)
    )
    with engine.begin() as connection:
        assert [c.entry_id for c in claim_due(connection, size=1)] == [late]
        assert claim_due(connection, size=5) == [Claimed(later, 1)]
    assert [(r.attempts, r.version, r.outcome_due, r.status) for r in rows(engine, [late, later])] == [
        (1, 1, True, "Pending")
    ] * 2
    assert row(engine, not_due).version == 0
    for entry in (late, later):
        assert 60 * SECOND <= row(engine, entry).next_attempt_at - now < 66 * SECOND + SECOND


@pytest.mark.req("J10", "J15")
def test_done_and_quarantined_rows_are_never_claimed(engine: Engine) -> None:
    stage(engine, [new_id() for _ in range(2)])
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Done'")
    stage(engine, [new_id() for _ in range(2)])
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Quarantined' WHERE status = 'Pending'")
    with engine.begin() as connection:
        assert claim_due(connection) == []


@pytest.mark.req("J4", "J30.7", "G21")
def test_two_runners_at_once_take_disjoint_rows(engine: Engine) -> None:
    entries = set(stage(engine, [new_id() for _ in range(6)]))
    with engine.connect() as one, engine.connect() as other:
        first = {c.entry_id for c in claim_due(one, size=3)}
        second = {c.entry_id for c in claim_due(other, size=100)}
        one.commit()
        other.commit()
    assert len(first) == 3
    assert first | second == entries
    assert not first & second


@pytest.mark.case("A10")
@pytest.mark.req("J5", "J10")
@pytest.mark.parametrize(
    "forced",
    [
        "SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off",
        "SET LOCAL enable_seqscan = off",
        "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_material = off",
        "SET LOCAL enable_nestloop = off",
        "SET LOCAL plan_cache_mode = force_generic_plan",
    ],
)
def test_a_claim_never_takes_more_than_its_batch_under_any_plan(engine: Engine, forced: str) -> None:
    stage(engine, [new_id() for _ in range(50)])
    with engine.begin() as connection:
        for setting in forced.split(";"):
            connection.execute(text(setting))
        for _ in range(7):  # past the fifth execution, where a generic plan may take over
            assert len(claim_due(connection, size=5)) == 5
    assert sum(r.attempts for r in rows(engine)) == 35


@pytest.mark.req("J8", "J10")
def test_the_claim_reads_the_due_index(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("""
                INSERT INTO news.snapshot_detach_outbox
                    (id, snapshot_id, post_id, reason, requested_by_user_id, status, next_attempt_at, created_at,
                     updated_at)
                SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'BlockReplaced', gen_random_uuid(),
                       CASE WHEN n % 100 = 0 THEN 'Pending' ELSE 'Done' END, now(), now(), now()
                FROM generate_series(1, 20000) AS n
            """)
        )
        connection.execute(text("ANALYZE news.snapshot_detach_outbox"))
        plan = connection.execute(
            text("""
                EXPLAIN SELECT id FROM news.snapshot_detach_outbox
                WHERE status = 'Pending' AND next_attempt_at <= now() AND attempts <= 12 AND outcome_due = false
                ORDER BY next_attempt_at LIMIT 100 FOR UPDATE SKIP LOCKED
            """)
        )
        assert "ix_sdo_due" in "\n".join(line for (line,) in plan)


@pytest.mark.case("A2")
@pytest.mark.req("J11", "G7")
@pytest.mark.parametrize("attempts", [0, 11, 30, 31, 62, 999])
def test_any_number_of_attempts_has_a_delay_between_base_and_cap(engine: Engine, attempts: int) -> None:
    patient = Policy(1000, timedelta(minutes=1), 100.0, timedelta(minutes=30))
    (entry,) = stage(engine, [new_id()])
    change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = :n", n=attempts)
    now = utc_now()
    with engine.begin() as connection:
        assert len(claim_due(connection, policy=patient)) == 1
    delay = row(engine, entry).next_attempt_at - now
    expected = timedelta(minutes=1) if attempts == 0 else timedelta(minutes=30)
    assert expected <= delay <= expected * 1.1 + 2 * SECOND


@pytest.mark.case("A2")
@pytest.mark.req("G7", "J15", "J28")
def test_rows_beyond_every_limit_are_quarantined_uncalled(engine: Engine) -> None:
    numbers = [13, 30, 31, 62, 1023, 1100, 2147483646, 2147483647]
    entries = stage(engine, [new_id() for _ in numbers])
    for entry, number in zip(entries, numbers, strict=True):
        change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = :n WHERE id = :id", n=number, id=entry)
    change(engine, "UPDATE news.snapshot_detach_outbox SET outcome_due = true WHERE attempts = 13")
    (within,) = stage(engine, [new_id()])
    now = utc_now()
    with engine.begin() as connection:
        taken = claiming.claim_due(connection, now=now, policy=POLICY)
        assert [c.entry_id for c in taken.claimed] == [within]
        assert (set(taken.spent), taken.lost) == (set(entries), ())
        spent = claim.quarantine_spent(connection, taken.spent, due=now, now=now, max_attempts=12)
    assert {entry.id for entry, _ in spent} == set(entries)
    assert {(r.status, r.attempts, r.last_error) for r in rows(engine, entries)} == {
        ("Quarantined", number, "OUTCOME_LOST" if number == 13 else "ATTEMPTS_SPENT") for number in numbers
    }


@pytest.mark.req("G7")
def test_a_row_whose_outcome_was_lost_is_claimed_alone_and_once_more_at_the_limit(engine: Engine) -> None:
    lost = stage(engine, [new_id() for _ in range(2)])
    change(engine, "UPDATE news.snapshot_detach_outbox SET outcome_due = true, attempts = 12, version = 12")
    others = stage(engine, [new_id() for _ in range(3)])
    now = utc_now()
    with engine.begin() as connection:
        taken = claiming.claim_due(connection, now=now, policy=POLICY)
        assert {c.entry_id for c in taken.claimed} == set(others)
        assert set(taken.lost) == set(lost)
        alone = [
            claiming.claim_lost(connection, one, now=now, policy=POLICY).claimed for one in (*taken.lost, taken.lost[0])
        ]
    assert [len(batch) for batch in alone] == [1, 1, 0]
    assert {r.attempts for r in rows(engine, lost)} == {13}


@pytest.mark.req("J16", "G6")
def test_each_claim_raises_the_version_so_that_it_fences(engine: Engine) -> None:
    (entry,) = stage(engine, [new_id()])
    versions = []
    for _ in range(3):
        change(
            engine, "UPDATE news.snapshot_detach_outbox SET next_attempt_at = :now, outcome_due = false", now=utc_now()
        )
        with engine.begin() as connection:
            versions += [c.version for c in claim_due(connection)]
    assert versions == [1, 2, 3]
    assert row(engine, entry).attempts == 3


@pytest.mark.case("A11")
@pytest.mark.req("J18", "J20")
def test_thirty_intents_on_one_connection_all_succeed_and_duplicates_do_not_break_it(engine: Engine) -> None:
    snapshots = [new_id() for _ in range(30)]
    with engine.connect() as connection:
        for snapshot in [*snapshots, *snapshots]:
            now = utc_now()
            with connection.begin():
                outbox.stage(
                    connection, [Intent(new_id(), snapshot, new_id(), Reason.POST_DELETED, new_id(), now)], now
                )
    assert len(rows(engine)) == 30
    assert query(engine, "SELECT count(DISTINCT snapshot_id) AS n FROM news.snapshot_detach_outbox")[0].n == 30


@pytest.mark.case("A11")
@pytest.mark.req("J20", "G14")
def test_a_second_owner_of_the_same_snapshot_waits_no_longer_than_the_lock_timeout(engine: Engine) -> None:
    snapshot = new_id()
    now = utc_now()
    with engine.connect() as first, engine.connect() as second:
        assert second.execute(text("SHOW lock_timeout")).scalar_one() == "10s"
        second.execute(text("SET lock_timeout = '100ms'"))
        second.commit()
        outbox.stage(first, [Intent(new_id(), snapshot, new_id(), Reason.POST_DELETED, new_id(), now)], now)
        with pytest.raises(OperationalError, match="lock timeout"), second.begin():
            outbox.stage(second, [Intent(new_id(), snapshot, new_id(), Reason.BLOCK_REPLACED, new_id(), now)], now)
        first.commit()
        with second.begin():
            assert (
                outbox.stage(second, [Intent(new_id(), snapshot, new_id(), Reason.BLOCK_REPLACED, new_id(), now)], now)
                == []
            )
    assert [r.reason for r in rows(engine)] == ["PostDeleted"]
