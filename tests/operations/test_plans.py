"""Re-enqueue many: the frozen set, the canary, the stop."""

from datetime import datetime
from threading import Event
from uuid import UUID

import pytest
from sqlalchemy import Engine

from db.outbox.plans import PlanState
from pin.clock import new_id, utc_now
from pin.job import tick as retry_job
from pin.operations import audit, plans, quarantine
from pin.operations.plans import Filter, PlanError
from scheduler import make_job
from tests.job.conftest import MakeJobSettings
from tests.job.scene import change, query, row, stage

NOW = utc_now()


DONE = "UPDATE news.snapshot_detach_outbox SET status = 'Done', last_error = NULL WHERE id = :id"


def quarantined(engine: Engine, count: int, error: str | None = "HTTP 404 SELECTIONS_SNAPSHOT_NOT_FOUND") -> list[UUID]:
    made = stage(engine, [new_id() for _ in range(count)], now=NOW)
    change(
        engine,
        """UPDATE news.snapshot_detach_outbox
           SET status = 'Quarantined', attempts = 12, version = 24, last_error = :error WHERE id = ANY(:ids)""",
        ids=made,
        error=error,
    )
    return sorted(made)


def statuses(engine: Engine) -> dict[str, int]:
    found = query(engine, "SELECT status, count(*) AS n FROM news.snapshot_detach_outbox GROUP BY status")
    return {one.status: one.n for one in found}


def delivered(engine: Engine, ids: list[UUID]) -> None:
    """They went out with the plan, and the job delivered them."""
    change(
        engine,
        "UPDATE news.snapshot_detach_outbox SET status = 'Done', last_error = NULL WHERE id = ANY(:ids)",
        ids=ids,
    )
    change(
        engine,
        """INSERT INTO news.snapshot_detach_attempt
               (entry_id, entry_version, attempt, outcome, duration_ms, worker, recorded_at)
           SELECT id, 26, 1, 'Succeeded', 1, 'w', :now FROM unnest(CAST(:ids AS uuid[])) AS one (id)""",
        ids=ids,
        now=NOW,
    )


def kept(engine: Engine, wanted: Filter | None = None) -> UUID:
    return plans.keep(engine, plans.preview(engine, wanted or Filter()), actor="ada", now=NOW)


def started(engine: Engine, plan_id: UUID, canary: int, now: datetime = NOW) -> PlanState | str:
    return plans.start(engine, plan_id, canary=canary, actor="ada", reason="mended", now=now).state


@pytest.mark.req("J29")
def test_groups_are_by_class_and_code(engine: Engine) -> None:
    first = quarantined(engine, 3, "HTTP 503")
    quarantined(engine, 1, None)
    many, none = quarantine.groups(engine)
    assert (many.error, many.count, many.sample) == ("HTTP 503", 3, first[0])
    assert (none.error, none.count) == (None, 1)
    assert many.first_at <= many.last_at


@pytest.mark.req("J29")
def test_a_preview_finds_what_its_filter_says_and_changes_nothing(engine: Engine) -> None:
    ids, other = quarantined(engine, 3, "HTTP 503"), quarantined(engine, 1, None)
    stage(engine, [new_id()])

    def found(wanted: Filter) -> list[UUID]:
        return sorted(one.entry_id for one in plans.preview(engine, wanted).entries)

    assert found(Filter()) == sorted(ids + other)
    assert found(Filter(error="HTTP 503", by_error=True)) == ids
    assert found(Filter(by_error=True)) == other
    assert found(Filter(ids=(ids[0], new_id()))) == [ids[0]]
    seen = plans.preview(engine, Filter(error="HTTP 503", by_error=True))
    assert ([one.version for one in seen.entries], len(seen.sample), seen.is_cut) == ([24, 24, 24], 3, False)
    assert statuses(engine) == {"Quarantined": 4, "Pending": 1}


@pytest.mark.req("J29", "G21")
def test_only_the_set_that_was_seen_is_moved(engine: Engine) -> None:
    ids = quarantined(engine, 3)
    plan_id = kept(engine)
    change(engine, "UPDATE news.snapshot_detach_outbox SET version = 26 WHERE id = :id", id=ids[1])  # failed anew
    late = quarantined(engine, 1)  # came after the preview

    assert started(engine, plan_id, 0) is PlanState.COMPLETED

    assert [row(engine, one).status for one in ids + late] == ["Pending", "Quarantined", "Pending", "Quarantined"]
    view = plans.show(engine, plan_id)
    assert view is not None
    assert (view.plan.requeued, view.standing, view.plan.reason) == (2, None, "mended")
    rows = audit.list_audit(engine, action="requeue").rows
    assert sorted(one.entry_id for one in rows if one.entry_id) == [ids[0], ids[2]]
    assert {one.details["plan"] for one in rows} == {str(plan_id)}
    with pytest.raises(PlanError, match="Completed already"):
        started(engine, plan_id, 0)


@pytest.mark.req("J29")
def test_the_rest_follows_once_every_canary_is_done(engine: Engine) -> None:
    ids = quarantined(engine, 5)
    plan_id = kept(engine)
    assert started(engine, plan_id, 2) is PlanState.CANARY
    assert statuses(engine) == {"Quarantined": 3, "Pending": 2}
    assert plans.advance(engine, NOW) == []

    delivered(engine, ids[:1])
    assert plans.advance(engine, NOW) == []
    delivered(engine, ids[1:2])
    assert plans.advance(engine, NOW) == [(plan_id, PlanState.COMPLETED)]

    assert statuses(engine) == {"Done": 2, "Pending": 3}
    (plan,) = plans.list_plans(engine)
    assert (plan.requeued, plan.canary, plan.ended_at) == (5, 2, NOW)
    assert len(audit.list_audit(engine).rows) == 5


@pytest.mark.req("J29")
def test_the_first_failure_of_a_canary_stops_the_rest(engine: Engine) -> None:
    ids = quarantined(engine, 5)
    plan_id = kept(engine)
    started(engine, plan_id, 2)
    for version in (23, 26):  # an old failure's late record, and one of the re-enqueued attempt
        assert plans.advance(engine, NOW) == []
        change(
            engine,
            """INSERT INTO news.snapshot_detach_attempt
                   (entry_id, entry_version, attempt, outcome, error, duration_ms, worker, recorded_at)
               VALUES (:id, :version, 1, 'Retried', 'HTTP 500', 1, 'w', :now)""",
            id=ids[0],
            version=version,
            now=NOW,
        )

    assert plans.advance(engine, NOW) == [(plan_id, PlanState.STOPPED)]

    view = plans.show(engine, plan_id)
    assert view is not None
    assert view.plan.said == "1 of the first 2 failed again: HTTP 500"
    assert view.standing is not None
    assert (view.standing.done, view.standing.failed, view.standing.waiting) == (0, 1, 1)
    assert statuses(engine) == {"Quarantined": 3, "Pending": 2}
    assert plans.advance(engine, NOW) == []


@pytest.mark.req("J29")
def test_an_operator_stops_a_plan(engine: Engine) -> None:
    quarantined(engine, 3)
    plan_id = kept(engine)
    started(engine, plan_id, 1)
    assert plans.stop(engine, plan_id, actor="bob", reason="wrong ones", now=NOW).state is PlanState.STOPPED
    assert audit.list_audit(engine, actor="bob").rows[0].action == "stop-requeue"
    with pytest.raises(PlanError, match="Stopped already"):
        plans.stop(engine, plan_id, actor="bob", reason="r", now=NOW)
    with pytest.raises(PlanError, match="no such plan"):
        plans.stop(engine, new_id(), actor="bob", reason="r", now=NOW)
    with pytest.raises(ValueError, match="reason"):
        plans.start(engine, plan_id, canary=0, actor="bob", reason=" ", now=NOW)


@pytest.mark.req("J29")
def test_a_run_moves_the_plan_on(engine: Engine, job_settings: MakeJobSettings) -> None:
    ids = quarantined(engine, 3)
    started(engine, kept(engine), 1)
    delivered(engine, ids[:1])
    job = make_job(job_settings())
    retry_job.run(job, Event())
    job.engine.dispose()
    assert statuses(engine) == {"Done": 1, "Pending": 2}


@pytest.mark.req("J29")
@pytest.mark.case("A45")
def test_a_canary_that_did_not_move_is_replaced_by_the_next(engine: Engine) -> None:
    ids = quarantined(engine, 4)
    plan_id = kept(engine)
    change(
        engine, "UPDATE news.snapshot_detach_outbox SET status = 'Done', last_error = NULL WHERE id = :id", id=ids[0]
    )

    assert started(engine, plan_id, 1) is PlanState.CANARY

    assert statuses(engine) == {"Done": 1, "Pending": 1, "Quarantined": 2}
    assert plans.advance(engine, NOW) == [], "the first is Done, and proves nothing"


@pytest.mark.req("J29")
@pytest.mark.case("A45")
def test_a_canary_that_is_done_without_a_call_of_the_plans_proves_nothing(engine: Engine) -> None:
    ids = quarantined(engine, 4)
    plan_id = kept(engine)
    started(engine, plan_id, 1)
    # An answer to a call from before the quarantine: late, and true (G9).
    change(
        engine, "UPDATE news.snapshot_detach_outbox SET status = 'Done', last_error = NULL WHERE id = :id", id=ids[0]
    )

    assert plans.advance(engine, NOW) == [(plan_id, PlanState.CANARY)]
    assert statuses(engine) == {"Done": 1, "Pending": 1, "Quarantined": 2}
    assert plans.advance(engine, NOW) == []
    delivered(engine, ids[1:2])
    assert plans.advance(engine, NOW) == [(plan_id, PlanState.COMPLETED)]
    assert statuses(engine) == {"Done": 2, "Pending": 2}
