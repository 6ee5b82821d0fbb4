"""Search and one entry's life."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from db.views.entries import OF_SNAPSHOT
from pin.clock import new_id, utc_now
from pin.config.sections import SnapshotDetachRetryOptions
from pin.operations import paging, requeue
from pin.operations.entries import COUNT_UP_TO, EntryLife, NextKind, SearchError, search, show
from pin.operations.life import MomentKind
from tests.job.scene import change, row, stage

RETRY = SnapshotDetachRetryOptions()


def life_of(engine: Engine, entry: UUID, now: datetime) -> EntryLife:
    life = show(engine, entry, now=now, retry=RETRY)
    assert life is not None
    return life


def put(engine: Engine, entry: UUID, **columns: object) -> None:
    setting = ", ".join(f"{name} = :{name}" for name in columns)
    change(engine, f"UPDATE news.snapshot_detach_outbox SET {setting} WHERE id = :id", id=entry, **columns)


def answered(engine: Engine, entry: UUID, attempt: int, version: int, at: datetime, error: str | None) -> None:
    change(
        engine,
        """INSERT INTO news.snapshot_detach_attempt
               (entry_id, entry_version, attempt, run_id, outcome, error, http_status, duration_ms, worker, recorded_at)
           VALUES (:entry, :version, :attempt, :run, :outcome, :error, 503, 12, 'w:1', :at)""",
        entry=entry,
        version=version,
        attempt=attempt,
        run=new_id(),
        outcome="Retried" if error else "Succeeded",
        error=error,
        at=at,
    )


def ids(engine: Engine, query: str, now: datetime) -> list[UUID]:
    return [stored.entry.id for stored in search(engine, query, now=now).entries]


@pytest.mark.req("J29")
def test_the_search_line_narrows_by_every_token(engine: Engine) -> None:
    now = utc_now()
    (old,) = stage(engine, [new_id()], now=now - timedelta(hours=1))
    (young,) = stage(engine, [new_id()], now=now - timedelta(minutes=1))
    (guard,) = stage(engine, [new_id()], now=now, is_guard=True)
    put(engine, old, status="Quarantined", last_error="HTTP 404 SELECTIONS_SNAPSHOT_NOT_FOUND", reason="PostDeleted")
    first = row(engine, old)

    assert ids(engine, "", now) == [guard, young, old]
    assert ids(engine, "state:quarantined", now) == [old]
    assert ids(engine, "state:Pending kind:intent", now) == [young]
    assert ids(engine, "kind:guard", now) == [guard]
    for same in (f"post:{first.post_id}", f"snapshot:{first.snapshot_id}", f"id:{old}", str(old), str(first.post_id)):
        assert ids(engine, same, now) == [old]
    assert ids(engine, 'error:"http 404"', now) == [old]
    assert ids(engine, "error:NOT_FOUND reason:postdeleted age:>5m", now) == [old]
    assert ids(engine, "age:<5m", now) == [guard, young]
    assert ids(engine, "error:%", now) == []


@pytest.mark.req("J29")
@pytest.mark.parametrize(
    ("query", "token", "rule"),
    [
        ("state:Lost", "state:Lost", "must be one of Pending, Done, Quarantined"),
        ("state:Pending color:red", "color:red", "no such token; known are state:"),
        ("post:7", "post:7", "must be a whole id"),
        ("age:5m", "age:5m", "say age:>5m"),
        ("age:>05:00", "age:>05:00", "must be a span of time"),
        ("age:>9999999999h", "age:>9999999999h", "must be a span of time"),
        ("id:", "id:", "a value is missing"),
        ("state:Done state:Done", "state:Done", "is given twice"),
        ("hello", "hello", "neither an id nor a token"),
        ('error:"HTTP 503', 'error:"HTTP', "quotes belong around a whole value"),
    ],
)
def test_a_token_that_is_none_is_named(engine: Engine, query: str, token: str, rule: str) -> None:
    with pytest.raises(SearchError) as refused:
        search(engine, query, now=utc_now())
    assert refused.value.token == token
    assert rule in str(refused.value)


@pytest.mark.case("A21", "A22")
@pytest.mark.parametrize("query", ["error:';DROP", "error:\x1b]52;c;", "error:%_\\"])
def test_hostile_search_lines_find_nothing_and_break_nothing(engine: Engine, query: str) -> None:
    stage(engine, [new_id()])
    assert search(engine, query, now=utc_now()).entries == ()
    with pytest.raises(SearchError):
        search(engine, f"{query}\0b", now=utc_now())


@pytest.mark.req("J29")
def test_pages_follow_each_other_without_gap_and_counts_are_of_all(engine: Engine) -> None:
    now = utc_now()
    made: Sequence[UUID] = stage(engine, [new_id() for _ in range(7)], now=now)  # one created_at: the id decides
    put(engine, made[0], status="Done")
    seen: list[UUID] = []
    after, pages = None, 0
    while True:
        page = search(engine, "", now=now, after=after, limit=3)
        assert page.counts == {"Pending": 6, "Done": 1, "Quarantined": 0}
        seen += [stored.entry.id for stored in page.entries]
        pages += 1
        if (after := page.next) is None:
            break
    assert (pages, seen) == (3, sorted(made, reverse=True))
    assert search(engine, "state:Done", now=now).counts == {"Pending": 6, "Done": 1, "Quarantined": 0}
    assert COUNT_UP_TO == 10_000


@pytest.mark.req("J29")
@pytest.mark.parametrize("key", ["x", "!!", "MjAyNi0wMS0wMXx4", "\u0660"])
def test_a_foreign_page_key_is_refused(engine: Engine, key: str) -> None:
    with pytest.raises(paging.PageKeyError):
        search(engine, "", now=utc_now(), after=key)


@pytest.mark.req("J29", "G7")
def test_the_timeline_shows_lost_outcomes_and_begins_anew_at_a_requeue(engine: Engine) -> None:
    start = utc_now() - timedelta(hours=2)
    (entry,) = stage(engine, [new_id()], now=start)

    def at(minutes: float) -> datetime:
        return start + timedelta(minutes=minutes)

    answered(engine, entry, 0, 0, at(0), "TIMEOUT")
    answered(engine, entry, 1, 2, at(1), "HTTP 503")
    answered(engine, entry, 3, 5, at(8), "HTTP 503")  # attempt 2 left no answer
    put(engine, entry, status="Quarantined", attempts=5, version=8, last_error="HTTP 503")  # nor did attempt 5
    requeue(engine, [entry], actor="ada", reason="mended", now=at(60))
    answered(engine, entry, 4, 6, at(61), "HTTP 500")  # the answer to attempt 4, later than the requeue
    put(engine, entry, attempts=1, version=10, outcome_due=True, updated_at=at(62), next_attempt_at=at(63))

    life = life_of(engine, entry, at(62.5))

    told = [(moment.kind, moment.number) for moment in life.timeline]
    assert told == [
        (MomentKind.STAGED, None),
        (MomentKind.ATTEMPT, 0),
        (MomentKind.ATTEMPT, 1),
        (MomentKind.LOST, 2),
        (MomentKind.ATTEMPT, 3),
        (MomentKind.LOST, 5),
        (MomentKind.AUDIT, None),
        (MomentKind.ATTEMPT, 4),
        (MomentKind.UNDER_WAY, 1),
    ]
    assert (life.next.kind, life.next.at) == (NextKind.RESULT, at(63))
    assert "mended" in life.timeline[6].says

    later = life_of(engine, entry, at(64))
    assert [moment.kind for moment in later.timeline][-1] is MomentKind.LOST
    assert (later.next.kind, later.next.at) == (NextKind.ATTEMPT, at(64))
    assert "attempt 2 of 12 alone in its batch" in later.next.says


@pytest.mark.case("A41")
@pytest.mark.req("J29", "G22", "G7")
def test_the_timeline_tells_what_was_not_called_from_what_was_lost(engine: Engine) -> None:
    start = utc_now() - timedelta(hours=2)
    (entry,) = stage(engine, [new_id()], now=start)
    answered(engine, entry, 1, 1, start + timedelta(minutes=1), None)
    change(engine, "UPDATE news.snapshot_detach_attempt SET outcome = 'NotCalled', http_status = NULL")
    put(engine, entry, version=2)

    given_back = life_of(engine, entry, utc_now())
    assert [(moment.kind, moment.number) for moment in given_back.timeline] == [
        (MomentKind.STAGED, None),
        (MomentKind.NOT_CALLED, 1),
    ]
    assert "was not made" in given_back.timeline[1].says
    assert "attempt 1 of 12." in given_back.next.says

    claimed, due = start + timedelta(minutes=59), start + timedelta(minutes=60)
    put(engine, entry, attempts=1, version=3, outcome_due=True, updated_at=claimed, next_attempt_at=due)
    lost = life_of(engine, entry, utc_now())
    assert [moment.kind for moment in lost.timeline[1:]] == [MomentKind.NOT_CALLED, MomentKind.LOST]
    assert lost.timeline[2].says == "attempt 1: outcome unknown; the worker died before recording it"


@pytest.mark.req("J29", "G13")
def test_what_comes_next_is_said_for_every_state(engine: Engine) -> None:
    now = utc_now()
    due = now + timedelta(minutes=3)
    change(
        engine,
        "INSERT INTO news.snapshot_detach_run (id, runner, started_at) VALUES (:id, 'r', :at)",
        id=new_id(),
        at=now - timedelta(minutes=1),
    )
    waiting, spent, done, lost = stage(engine, [new_id() for _ in range(4)], now=now, due=due)
    (guard,) = stage(engine, [new_id()], now=now, due=due, is_guard=True)
    put(engine, spent, attempts=13, next_attempt_at=now)
    put(engine, done, status="Done")
    put(engine, lost, status="Quarantined")
    tick = now + timedelta(minutes=4)
    for entry, kind, at in [
        (waiting, NextKind.ATTEMPT, tick),
        (spent, NextKind.QUARANTINE, tick),
        (done, NextKind.NOTHING, None),
        (lost, NextKind.OPERATOR, None),
        (guard, NextKind.SWITCH, due),
    ]:
        found = life_of(engine, entry, now).next
        assert (found.kind, found.at) == (kind, at)
    assert show(engine, new_id(), now=now, retry=RETRY) is None


@pytest.mark.req("J29")
def test_the_entries_of_a_snapshot_are_found_by_index(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        statement = f"EXPLAIN SELECT FROM news.snapshot_detach_outbox WHERE {OF_SNAPSHOT}"
        plan = "\n".join(row[0] for row in connection.execute(text(statement), {"snapshot": new_id()}))
    assert "ux_sdo_snapshot" in plan
    assert "ix_sdo_snapshot_done" in plan
