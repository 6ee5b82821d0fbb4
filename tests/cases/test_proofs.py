"""Ten marks whose mutants once survived (A62); `make mutants` breaks each behaviour, and these notice."""

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from threading import Event
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import structlog
from prometheus_client import REGISTRY
from sqlalchemy import Connection, Engine, text

from db.news import Post, PostStatus
from db.outbox import intents, quarantine, runs
from db.outbox.outcome import Answered, AttemptOrigin
from db.outbox.runs import RunResult
from db.views.backlog import read_backlog
from pin.clock import new_id, utc_now
from pin.job import delivery, observe, record
from pin.job import tick as retry_job
from pin.news.detaching import stage_detach
from pin.outgoing.detach import DetachCall
from pin.rules.contract import Reason
from pin.rules.outbox import Entry, Policy, Reply, Verdict
from tests.job.conftest import MakeJobSettings
from tests.job.scene import FAST, change, query, row, rows, stage
from tests.telemetry.test_alerts import MakeJob
from tests.waiting import eventually

POLICY = Policy(12, timedelta(minutes=1), 2.0, timedelta(minutes=30))
_SHORT = FAST["retry"].model_copy(update={"max_run_duration": timedelta(seconds=1)})
UNAVAILABLE = Reply(Verdict.TRANSIENT, "HTTP 503", http_status=503)


@pytest.fixture
def said() -> Iterator[list[dict[str, Any]]]:
    """What this process logs from now on, its bound context included."""
    kept: list[dict[str, Any]] = []

    def keep(_logger: object, _method: str, event: Any) -> Any:
        kept.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep], cache_logger_on_first_use=False)
    yield kept
    structlog.reset_defaults()


def called(engine: Engine, ids: Sequence[UUID], *, attempts: int = 1) -> list[Entry]:
    """The entries as a claim left them."""
    change(
        engine,
        "UPDATE news.snapshot_detach_outbox SET attempts = :attempts, version = version + 1, outcome_due = true"
        " WHERE id = ANY(CAST(:ids AS uuid[]))",
        ids=list(ids),
        attempts=attempts,
    )
    with engine.connect() as connection:
        return intents.by_id(connection, ids)


def recorded(engine: Engine, entries: Sequence[Entry], reply: Reply) -> Any:
    return record.record(
        engine,
        [Answered(entry, reply) for entry in entries],
        origin=AttemptOrigin(new_id(), "test:1", None),
        policy=POLICY,
        now=utc_now(),
        announce=lambda *_: None,
    )


def counted(name: str) -> float:
    return REGISTRY.get_sample_value(f"news_snapshot_detach_{name}") or 0.0


@pytest.mark.case("A62")
@pytest.mark.req("J24")
def test_a_quarantine_without_a_call_is_logged_with_its_reason(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, said: list[dict[str, Any]]
) -> None:
    (spent,) = stage(engine, [new_id()])
    change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 13, reason = 'PostDeleted'")
    retry_job.run(make_retry_job(job_settings()), Event())
    [line] = [each for each in said if each["event"] == "entry quarantined"]
    entry = row(engine, spent)
    assert entry.status == "Quarantined"
    assert (line["snapshotId"], line["reason"]) == (str(entry.snapshot_id), "PostDeleted")


@pytest.mark.case("A62")
@pytest.mark.req("J31")
def test_a_run_acts_as_system_and_is_its_own_correlation(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, said: list[dict[str, Any]]
) -> None:
    stage(engine, [new_id()])
    summary = retry_job.run(make_retry_job(job_settings(retry=_SHORT)), Event())
    told = [each for each in said if each["event"] in {"job started", "batch claimed", "job completed"}]
    assert len(told) == 3
    assert {(each["jobRunId"], each["correlationId"], each["actor"]) for each in told} == {
        (str(summary.run_id), str(summary.run_id), "system")
    }


@pytest.mark.case("A62")
@pytest.mark.req("G16")
def test_a_quarantine_is_counted_as_failed_and_not_as_retried(engine: Engine) -> None:
    entries = called(engine, stage(engine, [new_id()]), attempts=12)
    names = ("failed_total", "retried_total", "quarantined_total")
    before = [counted(name) for name in names]
    observe.observe_attempts(recorded(engine, entries, UNAVAILABLE), utc_now())
    assert [now - then for now, then in zip(map(counted, names), before, strict=True)] == [1, 0, 1]


@pytest.mark.case("A62")
@pytest.mark.req("G20")
def test_a_run_that_was_held_back_is_no_successful_one(engine: Engine) -> None:
    now = utc_now()
    for number, result in enumerate([RunResult.COMPLETED, *set(RunResult) - set(runs.SUCCESSFUL)]):
        moment, run_id = now + timedelta(seconds=number), new_id()
        with engine.begin() as connection:
            runs.start(connection, run_id=run_id, runner="r", now=moment)
            runs.end(connection, run_id=run_id, result=result, batches=0, claimed=0, now=moment)
    with engine.connect() as connection:
        assert runs.last_success(connection) == now


@pytest.mark.case("A62")
@pytest.mark.req("G1", "J18")
def test_an_intent_names_who_deletes_and_not_who_wrote(engine: Engine) -> None:
    author, deleter, snapshot, now = new_id(), new_id(), new_id(), utc_now()
    post = Post(
        id=new_id(),
        tenant_id=new_id(),
        author_id=author,
        title="t",
        status=PostStatus.PUBLISHED,
        version=1,
        revision=1,
        created_at=now,
        updated_at=now,
    )
    desk: Any = SimpleNamespace(clock=lambda: now, new_id=new_id, detach_call_timeout=timedelta(seconds=5))
    with engine.begin() as connection:
        stage_detach(desk, connection, post, [snapshot], Reason.POST_DELETED, deleter)
    [intent] = rows(engine)
    assert (intent.snapshot_id, intent.requested_by_user_id) == (snapshot, deleter)


@pytest.mark.case("A62")
@pytest.mark.req("G21")
def test_outcomes_lock_their_rows_in_the_order_of_their_ids(engine: Engine) -> None:
    first, second, third = entries = sorted(stage(engine, [new_id() for _ in range(3)]))
    for each in (third, second, first):  # an update moves the row: they lie in the table the other way round
        change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 1 WHERE id = :id", id=each)
    [(name,)] = query(engine, "SELECT current_database()")
    change(engine, f"ALTER DATABASE {name} SET enable_indexscan = off")
    change(engine, f"ALTER DATABASE {name} SET enable_bitmapscan = off")
    engine.dispose()
    with engine.connect() as connection:
        claimed = intents.by_id(connection, entries)
    with engine.connect() as rival, engine.connect() as look:
        rival.execute(text("SELECT FROM news.snapshot_detach_outbox WHERE id = :id FOR UPDATE"), {"id": second})
        recorder = threading.Thread(target=recorded, args=(engine, claimed[::-1], UNAVAILABLE))
        recorder.start()
        assert eventually(lambda: _waiting(look), within=20)
        assert _free(look) == [third], "the first is locked, the second waited for, the third not touched yet"
        rival.rollback()
        recorder.join(20)
    assert {each.last_error for each in rows(engine)} == {"HTTP 503"}


def _waiting(look: Connection) -> bool:
    look.rollback()
    return bool(
        look.execute(
            text(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
        ).scalar()
    )


def _free(look: Connection) -> list[UUID]:
    found = look.execute(text("SELECT id FROM news.snapshot_detach_outbox ORDER BY id FOR UPDATE SKIP LOCKED"))
    free = [each.id for each in found]
    look.rollback()
    return free


@pytest.mark.case("A62")
@pytest.mark.req("G21")
def test_requeue_moves_only_what_is_quarantined_whatever_it_is_given(engine: Engine) -> None:
    pending, done, poison = stage(engine, [new_id() for _ in range(3)])
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Done' WHERE id = :id", id=done)
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Quarantined' WHERE id = :id", id=poison)
    with engine.begin() as connection:
        moved = quarantine.requeue(connection, [pending, done, poison], utc_now())
    assert moved == {poison}
    assert [row(engine, each).version for each in (pending, done, poison)] == [0, 0, 1]


class _Detaches:
    """Selections, for which every call succeeds."""

    def detach_all(self, calls: Sequence[DetachCall], **_: object) -> list[Reply]:
        return [Reply(Verdict.DETACHED, http_status=200) for _ in calls]


@pytest.mark.case("A62")
@pytest.mark.req("J25", "J19")
def test_a_detach_within_the_request_is_observed_with_its_lag(engine: Engine) -> None:
    (entry_id,) = stage(engine, [new_id()], now=utc_now() - timedelta(seconds=40))
    with engine.connect() as connection:
        entries = intents.by_id(connection, [entry_id])
    before = [counted("lag_seconds_count"), counted("lag_seconds_sum"), counted("succeeded_total")]
    client: Any = _Detaches()
    delivery.first_attempts(
        entries, engine=engine, client=client, policy=POLICY, call_timeout=timedelta(seconds=1), deadline=0.0
    )
    assert row(engine, entry_id).status == "Done"
    count, total, succeeded = (
        counted(name) - then
        for name, then in zip(("lag_seconds_count", "lag_seconds_sum", "succeeded_total"), before, strict=True)
    )
    assert (count, succeeded) == (1, 1)
    assert 40 <= total < 100


@pytest.mark.case("A62")
@pytest.mark.req("J25")
def test_the_oldest_age_is_that_of_the_oldest(engine: Engine) -> None:
    now = utc_now()
    for minutes in (3, 7, 1):
        stage(engine, [new_id()], now=now - timedelta(minutes=minutes))
    with engine.connect() as connection:
        assert read_backlog(connection, now).oldest_age == 7 * 60


@pytest.mark.case("A62")
@pytest.mark.req("J11")
def test_the_delay_of_an_attempt_is_its_place_in_the_schedule() -> None:
    assert [POLICY.delay(number) for number in range(1, 13)] == list(POLICY.schedule[:12])
