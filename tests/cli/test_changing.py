"""Commands that change something: asked for, refused, done, audited."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from litestar import Litestar
from sqlalchemy import Engine

from db.runner.lock import runner_lock
from pin.clock import new_id, utc_now
from tests.cli.conftest import Pin
from tests.cli.test_quarantine import entries, row
from tests.job.scene import active_snapshots, change, query, stage, working
from tests.serving import Keys, MakeSettings, app_settings, keys, serve
from web.app import create_app

__all__ = ["app_settings", "keys", "serve"]

WHY = ("--reason", "mended", "--actor", "ada")


def audits(engine: Engine) -> list[tuple[str, str, str]]:
    found = query(engine, "SELECT action, actor, reason FROM news.snapshot_detach_audit ORDER BY occurred_at, id")
    return [(one.action, one.actor, one.reason) for one in found]


def statuses(engine: Engine, ids: list[UUID]) -> list[str]:
    return [row(engine, one)[0] for one in ids]


@pytest.mark.req("J29", "G21")
def test_a_group_goes_back_with_a_canary_and_is_stopped(pin: Pin, database: str, engine: Engine) -> None:
    ids = entries(engine, ["Quarantined"] * 4)
    (other,) = entries(engine, ["Quarantined"], last_error="HTTP 400 VALIDATION_ERROR")
    requeue = ("quarantine", "requeue", "--error", "HTTP 503", "--canary", "2", *WHY)

    groups = pin("quarantine", "groups", "-o", "json", PIN_DATABASE_URL=database)
    dry = pin(*requeue, "--dry-run", "-o", "json", PIN_DATABASE_URL=database)
    unasked = pin(*requeue, PIN_DATABASE_URL=database)

    assert [(one["lastError"], one["count"]) for one in json.loads(groups.out)] == [
        ("HTTP 503", 4),
        ("HTTP 400 VALIDATION_ERROR", 1),
    ]
    assert (dry.code, [one["id"] for one in json.loads(dry.out)]) == (0, [str(one) for one in ids])
    assert dry.err == "4 quarantined entries (error HTTP 503), 2 of them first\n"
    assert (unasked.code, unasked.out) == (2, "")
    assert "4 entries and no terminal to ask on" in unasked.err
    assert statuses(engine, [*ids, other]) == ["Quarantined"] * 5
    assert audits(engine) == []

    (plan,) = json.loads(pin(*requeue, "--yes", "-o", "json", PIN_DATABASE_URL=database).out)

    assert (plan["state"], plan["entries"], plan["canary"], plan["requeued"]) == ("Canary", 4, 2, 2)
    assert statuses(engine, [*ids, other]) == ["Pending", "Pending", "Quarantined", "Quarantined", "Quarantined"]
    shown = json.loads(pin("quarantine", "plan", "show", plan["id"], "-o", "json", PIN_DATABASE_URL=database).out)
    assert (shown["canaryDone"], shown["canaryFailed"], shown["canaryWaiting"]) == (0, 0, 2)
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Quarantined' WHERE id = :id", id=ids[0])
    shown = json.loads(pin("quarantine", "plan", "show", plan["id"], "-o", "json", PIN_DATABASE_URL=database).out)
    assert shown["state"] == "Stopped"
    assert shown["said"] == "1 of the first 2 failed again: HTTP 503"
    again = pin("quarantine", "plan", "stop", plan["id"], *WHY, PIN_DATABASE_URL=database)
    assert (again.code, again.err) == (1, "pin: the plan is Stopped already\n")
    listed = json.loads(pin("quarantine", "plan", "list", "-o", "json", PIN_DATABASE_URL=database).out)
    assert [one["id"] for one in listed] == [plan["id"]]
    assert audits(engine) == [("requeue", "ada", "mended")] * 2


@pytest.mark.req("J29")
def test_all_go_back_at_once_and_one_needs_no_question(pin: Pin, database: str, engine: Engine) -> None:
    ids = entries(engine, ["Quarantined"])
    done = pin("quarantine", "requeue", "--all", *WHY, "-o", "json", PIN_DATABASE_URL=database)
    assert json.loads(done.out)[0]["state"] == "Completed"
    assert statuses(engine, ids) == ["Pending"]
    none = pin("quarantine", "requeue", "--all", *WHY, PIN_DATABASE_URL=database)
    assert (none.code, none.out) == (1, "")
    both = pin("quarantine", "requeue", str(ids[0]), "--all", *WHY, PIN_DATABASE_URL=database)
    assert both.code == 2


@pytest.mark.req("J29")
def test_the_job_is_paused_and_resumed(pin: Pin, database: str, engine: Engine) -> None:
    assert pin("pause", *WHY, PIN_DATABASE_URL=database).code == 0
    twice = pin("pause", "--reason", "r", PIN_DATABASE_URL=database)
    assert (twice.code, twice.out) == (1, "")
    assert "paused already, by ada" in twice.err
    status = pin("status", PIN_DATABASE_URL=database)
    assert (status.code, status.out.split(" for ")[0]) == (1, "Paused by ada")
    run = pin("run", "--once", "-o", "json", PIN_DATABASE_URL=database)
    assert (run.code, json.loads(run.out)["result"]) == (1, "Paused")
    assert pin("resume", *WHY, PIN_DATABASE_URL=database).code == 0
    assert pin("resume", *WHY, PIN_DATABASE_URL=database).code == 1
    assert pin("resume", "--reason", " ", PIN_DATABASE_URL=database).code == 2
    assert audits(engine) == [("pause", "ada", "mended"), ("resume", "ada", "mended")]


@pytest.mark.req("J29", "G5")
def test_the_lock_is_shown_and_taken_from_its_holder(pin: Pin, database: str, engine: Engine) -> None:
    free = pin("lock", "show", PIN_DATABASE_URL=database)
    assert (free.code, free.out, free.err) == (0, "", "the lock is free\n")
    assert pin("lock", "release", *WHY, PIN_DATABASE_URL=database).code == 1
    with runner_lock(database, timedelta(seconds=30)) as held:
        assert held is not None
        holder = json.loads(pin("lock", "show", "-o", "json", PIN_DATABASE_URL=database).out)
        assert holder["pid"] == held.backend_pid
        wrong = pin("lock", "release", "--pid", "1", *WHY, PIN_DATABASE_URL=database)
        assert (wrong.code, wrong.err) == (1, "pin: process 1 does not hold it; nothing was done\n")
        skipped = pin("run", "--once", "-o", "json", PIN_DATABASE_URL=database)
        assert (skipped.code, json.loads(skipped.out)["result"]) == (1, "Skipped")
        assert pin("lock", "release", "--pid", str(holder["pid"]), *WHY, PIN_DATABASE_URL=database).code == 0
    assert pin("lock", "show", PIN_DATABASE_URL=database).out == ""
    assert audits(engine) == [("release-lock", "ada", "mended")]


@pytest.mark.req("J1", "J29")
def test_one_tick_now_delivers_what_is_due(
    pin: Pin, database: str, engine: Engine, app_settings: MakeSettings, serve: Callable[[Litestar], str]
) -> None:
    url = serve(create_app(app_settings(database)))
    ids = stage(engine, active_snapshots(engine, 3))
    with working(app_settings(database, selections_url=url)):
        ended = pin("run", "--once", "-o", "json", PIN_DATABASE_URL=database, PIN_LOG__LEVEL="error")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert (found["result"], found["claimed"], found["succeeded"]) == ("Completed", 3, 3)
    assert statuses(engine, ids) == ["Done"] * 3
    assert pin("run", PIN_DATABASE_URL=database).code == 2


@pytest.mark.req("J29")
def test_what_is_over_is_purged_after_a_question(pin: Pin, database: str, engine: Engine) -> None:
    ids = entries(engine, ["Done", "Done", "Pending"])
    change(engine, "UPDATE news.snapshot_detach_outbox SET updated_at = :at", at=utc_now() - timedelta(days=40))
    purge = ("purge", "--older-than", "30d", *WHY)
    dry = pin(*purge, "--dry-run", "-o", "json", PIN_DATABASE_URL=database)
    assert json.loads(dry.out) == {"entries": 2, "attempts": 0, "events": 0, "untold": 0}
    assert pin(*purge, PIN_DATABASE_URL=database).code == 2
    assert pin("purge", "--older-than", "5m", *WHY, "--yes", PIN_DATABASE_URL=database).code == 2
    assert pin("purge", "--older-than", "05:00", *WHY, PIN_DATABASE_URL=database).code == 2
    assert len(query(engine, "SELECT FROM news.snapshot_detach_outbox")) == 3
    done = pin(*purge, "--yes", "-o", "json", PIN_DATABASE_URL=database)
    assert json.loads(done.out)["entries"] == 2
    assert [one.id for one in query(engine, "SELECT id FROM news.snapshot_detach_outbox")] == [ids[2]]
    assert [one[0] for one in audits(engine)] == ["purge"]
    listed = json.loads(pin("audit", "list", "--action", "purge", "-o", "json", PIN_DATABASE_URL=database).out)
    assert (listed[0]["actor"], listed[0]["details"]["entries"], listed[0]["entryId"]) == ("ada", 2, None)


@pytest.fixture
def both_sides(
    database: str, keys: Keys, app_settings: MakeSettings, serve: Callable[[Litestar], str]
) -> dict[str, str]:
    """Settings of a command beside a running selections."""
    return {
        "PIN_DATABASE_URL": database,
        "PIN_SELECTIONS_URL": serve(create_app(app_settings(database))),
        "PIN_AUTH__M2M_PRIVATE_KEY": str(keys.private),
    }


def orphan(engine: Engine) -> tuple[UUID, UUID]:
    """(post, snapshot): Active, and shown by an old version alone."""
    post_id, snapshot_id, now = new_id(), new_id(), utc_now()
    change(
        engine,
        """INSERT INTO selections.snapshot (id, status, selection_id, content, created_at, updated_at)
           VALUES (:id, 'Active', :id, jsonb_build_object(
               'selectionId', CAST(:id AS uuid), 'title', 't', 'items', jsonb_build_array(), 'takenAt', now()
           ), now(), now())""",
        id=snapshot_id,
    )
    change(
        engine,
        """INSERT INTO news.post (id, tenant_id, author_id, title, status, version, created_at, updated_at)
           VALUES (:id, :id, :id, 't', 'Published', 2, :now, :now)""",
        id=post_id,
        now=now,
    )
    for version in (1, 2):
        change(
            engine,
            "INSERT INTO news.post_version (post_id, version, created_by, created_at) VALUES (:id, :v, :id, :now)",
            id=post_id,
            v=version,
            now=now,
        )
    change(
        engine,
        """INSERT INTO news.post_block (post_id, version, position, kind, snapshot_id)
           VALUES (:id, 1, 0, 'SelectionEmbed', :snapshot)""",
        id=post_id,
        snapshot=snapshot_id,
    )
    return post_id, snapshot_id


@pytest.mark.req("D15", "D17", "J29")
def test_both_sides_are_compared_and_an_orphan_is_mended(pin: Pin, engine: Engine, both_sides: dict[str, str]) -> None:
    assert pin("reconcile", **both_sides).code == 0
    post_id, snapshot_id = orphan(engine)

    found = pin("reconcile", "-o", "json", **both_sides)
    dry = pin("reconcile", "--fix", *WHY, "--dry-run", "-o", "json", **both_sides)

    assert found.code == dry.code == 1
    assert found.err == "1 snapshots, 0 shown by live posts, 1 findings\n"
    (finding,) = json.loads(found.out)
    assert (finding["kind"], finding["snapshotId"], finding["postId"]) == ("Orphaned", str(snapshot_id), str(post_id))
    assert json.loads(dry.out) == [finding]
    assert query(engine, "SELECT FROM news.snapshot_detach_outbox") == []
    assert pin("reconcile", "--fix", **both_sides).code == 2
    shown = pin("post", "show", str(post_id), "-o", "json", **both_sides)
    assert (shown.code, json.loads(shown.out)[0]["agrees"]) == (1, False)

    fixed = pin("reconcile", "--fix", *WHY, "-o", "json", **both_sides)

    assert (fixed.code, json.loads(fixed.out)[0]["repair"]) == (0, "Staged")
    assert audits(engine) == [("reconcile", "ada", "mended")]
    assert pin("reconcile", **both_sides).code == 0
    shown = pin("snapshot", "show", str(snapshot_id), "-o", "json", **both_sides)
    assert (shown.code, json.loads(shown.out)["status"]) == (0, "Active")
    assert pin("post", "show", str(new_id()), **both_sides).code == 1


@pytest.mark.req("J29", "D15")
def test_selections_away_is_a_line_and_no_guess(pin: Pin, database: str, keys: Keys) -> None:
    away = {
        "PIN_DATABASE_URL": database,
        "PIN_SELECTIONS_URL": "http://127.0.0.1:9",
        "PIN_AUTH__M2M_PRIVATE_KEY": str(keys.private),
    }
    ended = pin("reconcile", **away)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "pin: selections at http://127.0.0.1:9 gives no answer: NETWORK (see pin doctor)\n"


@pytest.mark.req("J29")
def test_the_doctor_tries_everything_and_names_the_mend(
    pin: Pin, engine: Engine, both_sides: dict[str, str], tmp_path: Path
) -> None:
    change(
        engine,
        """INSERT INTO news.snapshot_detach_run (id, runner, started_at, ended_at, result)
           VALUES (:id, 'r', :now, :now, 'Completed')""",
        id=new_id(),
        now=utc_now(),
    )

    def states(**settings: str) -> tuple[int, dict[str, tuple[str, str | None]]]:
        ended = pin("doctor", "-o", "json", **settings)
        return ended.code, {one["name"]: (one["state"], one["mend"]) for one in json.loads(ended.out)}

    code, found = states(**both_sides)
    assert code == 1
    assert found.pop("workers") == ("Failed", "start one: pin worker")
    assert {state for state, _ in found.values()} == {"Ok"}
    assert set(found) == {"settings", "database", "schema", "sessions", "clock", "credential", "selections", "job"}

    _, found = states(**both_sides | {"PIN_SELECTIONS_URL": "http://127.0.0.1:9"})
    assert found["selections"] == ("Failed", "start selections, or mend PIN_SELECTIONS_URL")
    _, found = states(**both_sides | {"PIN_AUTH__ISSUER": "elsewhere"})
    assert "public key" in str(found["selections"][1])
    _, found = states(**both_sides | {"PIN_AUTH__M2M_PRIVATE_KEY": str(tmp_path / "none")})
    assert (found["credential"][0], found["selections"][0]) == ("Failed", "NotTried")
    code, found = states(**both_sides | {"PIN_DATABASE_URL": "postgresql://pin:secret@127.0.0.1:9/pin"})
    assert (code, found["database"][0], found["job"][0]) == (1, "Failed", "NotTried")
    table = pin("doctor", **both_sides)
    assert "-> start one: pin worker" in table.out
