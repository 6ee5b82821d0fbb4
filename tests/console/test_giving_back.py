"""What an operator changes: entries given back by a plan, the job paused and resumed, the lock taken away."""

from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text

from db.runner.lock import runner_lock
from pin.clock import utc_now
from tests.console import seeds
from tests.console.browsing import OPERATOR, Reading, Visitor

pytestmark = pytest.mark.req("J29", "G21")


@pytest.fixture
def now(engine: Engine) -> datetime:
    """The moment; nothing is in the outbox before each test."""
    tables = ("outbox", "attempt", "run", "audit", "pause", "requeue", "quarantined_event", "alert")
    with engine.begin() as connection:
        connection.execute(text(f"TRUNCATE {', '.join(f'news.snapshot_detach_{name}' for name in tables)}"))
    return utc_now()


def _states(engine: Engine, ids: list[UUID]) -> dict[str, int]:
    """How many of these entries are in each state."""
    statement = text("""
        SELECT status, count(*) FROM news.snapshot_detach_outbox WHERE id = ANY(:ids) GROUP BY status
    """)
    with engine.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(statement, {"ids": ids})}


def _audit(engine: Engine) -> list[tuple[str, str, str, UUID | None]]:
    statement = text("SELECT actor, action, reason, entry_id FROM news.snapshot_detach_audit ORDER BY occurred_at, id")
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(statement)]


def _group(operator: Visitor, error: str) -> str:
    """The word that stands for the group of this error on the page."""
    page = operator.get("/ops/quarantine").text
    (row,) = [part for part in page.split("<tr>") if f">{error}</span></a>" in part]
    return Reading(row).having("input", name="group")[0]["value"]


def _preview(operator: Visitor, **fields: str | list[str]) -> str:
    answer = operator.change("/ops/quarantine/preview", **fields)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def test_groups_are_shown_with_count_first_and_last_seen(operator: Visitor, engine: Engine, now: datetime) -> None:
    with engine.begin() as connection:
        seeds.entries(connection, now, 3, status="Quarantined", error="HTTP 503", updated=now - timedelta(hours=2))
        seeds.entries(connection, now, 1, status="Quarantined", error="HTTP 503", updated=now - timedelta(minutes=5))
        seeds.entries(connection, now, 2, status="Quarantined", error=None)
    said = Reading(operator.get("/ops/quarantine").text).text
    assert "HTTP 503 4 2 h ago 5 min ago" in said
    assert "no error is known 2" in said
    only = Reading(operator.get(f"/ops/quarantine?group={_group(operator, 'HTTP 503')}").text)
    assert len(only.having("input", type="checkbox", name="id")) == 4


def test_the_preview_freezes_the_set_and_moves_nothing(operator: Visitor, engine: Engine, now: datetime) -> None:
    with engine.begin() as connection:
        ids = seeds.entries(connection, now, 3, status="Quarantined", error="HTTP 503", attempts=12)
    plan = _preview(operator, what="group", group=_group(operator, "HTTP 503"))
    assert _states(engine, ids) == {"Quarantined": 3}
    said = Reading(operator.get(plan).text).text
    assert "nothing has moved yet" in said
    assert "pin quarantine requeue --error 'HTTP 503' --reason WHY" in said
    with engine.begin() as connection:
        later = seeds.entries(connection, now, 2, status="Quarantined", error="HTTP 503")
    assert operator.change(f"{plan}/start", reason="mended", canary="0").status_code == 303
    assert (_states(engine, ids), _states(engine, later)) == ({"Pending": 3}, {"Quarantined": 2})
    assert _audit(engine) == [(OPERATOR, "requeue", "mended", id_) for _, _, _, id_ in _audit(engine)]
    assert {id_ for *_, id_ in _audit(engine)} == set(ids)
    said = Reading(operator.get(plan).text).text
    assert "Requeued 3 of 3" in said
    assert f"pin quarantine plan show {plan.rpartition('/')[2]}" in said


@pytest.mark.parametrize("fails", [False, True], ids=["delivered", "fails-again"])
def test_a_few_go_first_and_the_rest_follows_or_stays(
    operator: Visitor, viewer: Visitor, engine: Engine, now: datetime, fails: bool
) -> None:
    with engine.begin() as connection:
        ids = seeds.entries(connection, now, 8, status="Quarantined", error="HTTP 503", version=9)
    plan = _preview(operator, what="all")
    proposed = Reading(operator.get(plan).text).having("input", name="canary")[0]["value"]
    assert operator.change(f"{plan}/start", reason="mended?", canary=proposed).status_code == 303
    assert _states(engine, ids) == {"Pending": 5, "Quarantined": 3}
    waiting = Reading(viewer.get(f"{plan}/live").text).text
    assert "the first 5 are with the job, 3 wait" in waiting
    assert _states(engine, ids) == {"Pending": 5, "Quarantined": 3}
    with engine.begin() as connection:
        given = [
            row[0]
            for row in connection.execute(text("SELECT id FROM news.snapshot_detach_outbox WHERE status = 'Pending'"))
        ]
        if fails:
            connection.execute(
                text("""
                    INSERT INTO news.snapshot_detach_attempt
                        (entry_id, entry_version, attempt, outcome, error, duration_ms, worker, recorded_at)
                    VALUES (:id, 11, 1, 'Retried', 'HTTP 503', 5, 'w', :now)
                """),
                {"id": given[0], "now": utc_now()},
            )
        else:
            connection.execute(
                text("UPDATE news.snapshot_detach_outbox SET status = 'Done', last_error = NULL WHERE id = ANY(:ids)"),
                {"ids": given},
            )
            connection.execute(
                text("""
                    INSERT INTO news.snapshot_detach_attempt
                        (entry_id, entry_version, attempt, outcome, duration_ms, worker, recorded_at)
                    VALUES (:id, 11, 1, 'Succeeded', 5, 'w', :now)
                """),
                {"id": given[0], "now": utc_now()},
            )
    said = Reading(viewer.get(f"{plan}/live").text).text
    if fails:
        assert "Stopped" in said
        assert "1 of the first 5 failed again: HTTP 503" in said
        assert _states(engine, ids) == {"Pending": 5, "Quarantined": 3}
    else:
        assert "Completed" in said
        assert _states(engine, ids) == {"Done": 5, "Pending": 3}


def test_an_operator_stops_a_plan(operator: Visitor, engine: Engine, now: datetime) -> None:
    with engine.begin() as connection:
        ids = seeds.entries(connection, now, 4, status="Quarantined", error="HTTP 503")
    plan = _preview(operator, what="all")
    operator.change(f"{plan}/start", reason="try", canary="1")
    answer = operator.change(f"{plan}/stop", reason="not yet")
    assert answer.headers["location"] == f"{plan}?notice=stopped"
    said = Reading(operator.get(answer.headers["location"]).text).text
    assert "The re-enqueue is stopped" in said
    assert "stopped by otto: not yet" in said
    assert _states(engine, ids) == {"Pending": 1, "Quarantined": 3}
    assert operator.change(f"{plan}/stop", reason="again").status_code == 400


@pytest.mark.case("A15")
def test_only_what_is_quarantined_still_is_given_back(operator: Visitor, engine: Engine, now: datetime) -> None:
    with engine.begin() as connection:
        quarantined = seeds.entry(connection, now, status="Quarantined", error="HTTP 503")
        pending = seeds.entry(connection, now, outcome_due=True)
        done = seeds.entry(connection, now, status="Done")
    for one in (pending, done, uuid4()):
        answer = operator.change("/ops/quarantine/preview", what="selected", id=str(one))
        assert (answer.status_code, "Nothing of that is quarantined" in answer.text) == (400, True)
    plans = [_preview(operator, what="selected", id=[str(quarantined), str(done)]) for _ in range(2)]
    for plan in plans:
        assert operator.change(f"{plan}/start", reason="twice", canary="0").status_code == 303
    assert operator.change(f"{plans[0]}/start", reason="thrice").status_code == 400
    assert _states(engine, [quarantined]) == {"Pending": 1}
    assert len(_audit(engine)) == 1


@pytest.mark.parametrize(
    "fields",
    [{"what": "selected"}, {"what": "group", "group": "0" * 16}, {"what": "selected", "id": "xyz"}, {}],
    ids=["none", "unknown-group", "no-id", "nothing"],
)
def test_a_form_that_names_nothing_is_told_so(operator: Visitor, now: datetime, fields: dict[str, str]) -> None:
    del now
    answer = operator.change("/ops/quarantine/preview", **fields)
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    ("reason", "canary"), [("", "0"), ("   ", "0"), ("x" * 513, "0"), ("ok", "-1"), ("ok", "many"), ("ok", "9" * 30)]
)
def test_a_start_needs_a_reason_and_a_number(
    operator: Visitor, engine: Engine, now: datetime, reason: str, canary: str
) -> None:
    with engine.begin() as connection:
        ids = seeds.entries(connection, now, 2, status="Quarantined", error="HTTP 503")
    plan = _preview(operator, what="all")
    assert operator.change(f"{plan}/start", reason=reason, canary=canary).status_code == 400
    assert _states(engine, ids) == {"Quarantined": 2}


def test_an_unknown_plan_is_not_found(operator: Visitor) -> None:
    assert operator.get(f"/ops/quarantine/plans/{uuid4()}").status_code == 404
    assert operator.change(f"/ops/quarantine/plans/{uuid4()}/start", reason="x").status_code == 400


def test_the_job_is_paused_and_resumed_with_a_reason_shown_on_every_page(
    operator: Visitor, viewer: Visitor, engine: Engine, now: datetime
) -> None:
    with engine.begin() as connection:
        seeds.run(connection, now)
    assert operator.change("/ops/pause", reason="").status_code == 400
    assert operator.change("/ops/pause", reason="selections is being moved").headers["location"].endswith("=paused")
    assert operator.change("/ops/pause", reason="again").headers["location"].endswith("=paused-before")
    for path in ("/ops", "/ops/runs", "/ops/audit", "/ops/system"):
        said = Reading(viewer.get(path).text).text
        assert "The job is paused since" in said
        assert "by otto: selections is being moved" in said
    assert not Reading(viewer.get("/ops").text).having("form", action="/ops/resume")
    assert "pin resume --reason WHY" in Reading(operator.get("/ops").text).text
    assert operator.change("/ops/resume", reason="moved").headers["location"].endswith("=resumed")
    assert operator.change("/ops/resume", reason="moved").headers["location"].endswith("=not-paused")
    assert "The job is paused" not in operator.get("/ops").text
    rows = [(actor, action, reason) for actor, action, reason, _ in _audit(engine)]
    assert rows == [(OPERATOR, "pause", "selections is being moved"), (OPERATOR, "resume", "moved")]
    listed = Reading(operator.get("/ops/audit?action=resume").text).text
    assert "moved" in listed
    assert "selections is being moved" in listed  # what was ended is told with it


def test_the_lock_is_taken_from_the_session_that_was_shown(
    operator: Visitor, engine: Engine, database: str, now: datetime
) -> None:
    del now
    assert "Free: no run is under way." in Reading(operator.get("/ops/system").text).text
    with runner_lock(database, timedelta(minutes=6)) as lock:
        assert lock is not None
        page = Reading(operator.get("/ops/system").text)
        (pid,) = [field["value"] for field in page.having("input", name="pid")]
        assert int(pid) == lock.backend_pid
        assert operator.change("/ops/lock/release", pid="x", reason="hangs").status_code == 400
        assert operator.change("/ops/lock/release", pid="1", reason="hangs").headers["location"].endswith("=not-held")
        assert operator.change("/ops/lock/release", pid=pid, reason="hangs").headers["location"].endswith("=released")
    assert [(actor, action) for actor, action, *_ in _audit(engine)] == [(OPERATOR, "release-lock")]
