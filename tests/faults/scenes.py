"""What a path starts from, put into the database of its scene; and the notes that a database takes of every change."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import Engine

from actors.detach import hand_over
from pin.clock import new_id, utc_now
from pin.config.settings import Settings
from pin.job.delivery import Batch, policy_of
from tests.claiming import claim_due
from tests.job.scene import USER, active_snapshots, change, stage
from tests.waiting import eventually

Facts = dict[str, Any]

_NOTES = """
    CREATE SCHEMA faults;
    CREATE TABLE faults.entry (
        id bigint GENERATED ALWAYS AS IDENTITY, xid bigint NOT NULL, op text NOT NULL, entry_id uuid NOT NULL,
        is_guard boolean NOT NULL, old_status text, new_status text, old_attempts integer, new_attempts integer,
        old_version bigint, new_version bigint
    );
    CREATE TABLE faults.message (xid bigint NOT NULL, entry_id uuid NOT NULL, version bigint NOT NULL);
    CREATE TABLE faults.event (xid bigint NOT NULL, entry_id uuid NOT NULL);
    CREATE TABLE faults.alert (event_id uuid NOT NULL);

    CREATE FUNCTION faults.note_entry() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO faults.entry (xid, op, entry_id, is_guard, old_status, new_status, old_attempts, new_attempts,
            old_version, new_version)
        VALUES (pg_current_xact_id()::text::bigint, TG_OP, COALESCE(NEW.id, OLD.id),
            COALESCE(NEW.is_guard, OLD.is_guard),
            OLD.status, NEW.status, OLD.attempts, NEW.attempts, OLD.version, NEW.version);
        RETURN NULL;
    END $$;
    CREATE TRIGGER faults AFTER INSERT OR UPDATE OR DELETE ON news.snapshot_detach_outbox
        FOR EACH ROW EXECUTE FUNCTION faults.note_entry();

    CREATE FUNCTION faults.note_message() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO faults.message
        SELECT pg_current_xact_id()::text::bigint, (named ->> 0)::uuid, (named ->> 1)::bigint
        FROM jsonb_array_elements(NEW.message -> 'args' -> 1) AS named;
        RETURN NULL;
    END $$;
    CREATE TRIGGER faults AFTER INSERT ON dramatiq.queue
        FOR EACH ROW WHEN (NEW.queue_name = 'snapshot-detach') EXECUTE FUNCTION faults.note_message();

    CREATE FUNCTION faults.note_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO faults.event VALUES (pg_current_xact_id()::text::bigint, NEW.entry_id);
        RETURN NULL;
    END $$;
    CREATE TRIGGER faults_event AFTER INSERT ON news.snapshot_detach_quarantined_event
        FOR EACH ROW EXECUTE FUNCTION faults.note_event();

    CREATE FUNCTION faults.note_alert() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO faults.alert VALUES (NEW.id);
        RETURN NULL;
    END $$;
    CREATE TRIGGER faults AFTER UPDATE OF alerted_at ON news.snapshot_detach_quarantined_event
        FOR EACH ROW EXECUTE FUNCTION faults.note_alert();
"""

# A point starts from rows put back, which takes a tenth of the time of a database cloned.
_KEEP = """
    CREATE SCHEMA scene;
    DO $$ DECLARE kept record; BEGIN
        FOR kept IN SELECT schemaname AS s, tablename AS t FROM pg_tables
            WHERE schemaname IN ('news', 'selections', 'dramatiq', 'faults')
        LOOP
            EXECUTE format('CREATE TABLE scene.%I AS TABLE %I.%I', kept.s || '.' || kept.t, kept.s, kept.t);
        END LOOP;
    END $$;
"""
_RESTORE = """
    SET LOCAL session_replication_role = replica;
    DO $$ DECLARE kept record; BEGIN
        FOR kept IN SELECT schemaname AS s, tablename AS t FROM pg_tables
            WHERE schemaname IN ('news', 'selections', 'dramatiq', 'faults')
        LOOP
            EXECUTE format('DELETE FROM %I.%I', kept.s, kept.t);
            EXECUTE format('INSERT INTO %I.%I OVERRIDING SYSTEM VALUE TABLE scene.%I',
                kept.s, kept.t, kept.s || '.' || kept.t);
        END LOOP;
    END $$;
"""


def take_notes(connection: psycopg.Connection[Any]) -> None:
    """From now on the database itself notes what happens to entries, messages and alerts, and in which transaction."""
    connection.execute(_NOTES.encode())


def keep(connection: psycopg.Connection[Any]) -> None:
    """What the database holds now is what `restore` puts back."""
    connection.execute(_KEEP.encode())


def restore(connection: psycopg.Connection[Any]) -> None:
    """Put every table back as it was kept; nobody else may be connected."""
    others = """SELECT pid, application_name, query FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""
    eventually(lambda: connection.execute(others).fetchall() == [], within=30, every=0.002)
    with connection.transaction():
        connection.execute(_RESTORE.encode())


def post_scene(engine: Engine, _: Settings) -> Facts:
    """A Published post that shows two snapshots, and a selection to take another of."""
    kept, replaced = active_snapshots(engine, 2)
    facts = {
        "post": str(new_id()),
        "author": str(new_id()),
        "tenant": str(new_id()),
        "selection": str(new_id()),
        "kept": str(kept),
        "replaced": str(replaced),
    }
    for statement in (
        """INSERT INTO selections.selection (id, tenant_id, owner_id, title, items, created_at, updated_at)
           VALUES (:selection, :tenant, :author, 'Best', '["a"]', now(), now())""",
        """INSERT INTO news.post (id, tenant_id, author_id, title, status, version, created_at, updated_at)
           VALUES (:post, :tenant, :author, 'News', 'Published', 1, now(), now())""",
        "INSERT INTO news.post_version (post_id, version, created_by, created_at) VALUES (:post, 1, :author, now())",
        """INSERT INTO news.post_block (post_id, version, position, kind, snapshot_id)
           VALUES (:post, 1, 0, 'SelectionEmbed', :kept), (:post, 1, 1, 'SelectionEmbed', :replaced)""",
    ):
        change(engine, statement, **facts)
    return facts


def tick_scene(engine: Engine, _: Settings) -> Facts:
    """Two entries due, one whose outcome was lost, one whose attempts are spent, a quarantine that told nobody."""
    plain_1, plain_2, lost, spent, silent = _due(engine, active_snapshots(engine, 5))
    _become(engine, [lost], attempts=1, version=1, outcome_due=True)
    _become(engine, [spent], attempts=13, version=30, outcome_due=True)
    _quarantine(engine, [silent], alerted=False)
    return {"due": [str(plain_1), str(plain_2)]}


def batch_scene(engine: Engine, settings: Settings) -> Facts:
    """A message of five: a success, a guard and an intent of unknown ids, two that fail, one at its last try."""
    good, failing, last = active_snapshots(engine, 3)
    _due(engine, [good, failing])
    (spent,) = _due(engine, [last])
    _become(engine, [spent], attempts=settings.retry.max_attempts - 1, version=22, outcome_due=False)
    _due(engine, [new_id()])
    _due(engine, [new_id()], is_guard=True)
    with engine.begin() as connection:
        now = utc_now()
        taken = claim_due(connection, now=now, size=20, policy=policy_of(settings.retry))
        hand_over(connection, Batch(new_id(), taken.claimed))
    return {"failing": [str(failing), str(last)]}


def requeue_scene(engine: Engine, _: Settings) -> Facts:
    """Two quarantined entries, one that is Pending."""
    first, second, pending = _due(engine, active_snapshots(engine, 3))
    _quarantine(engine, [first, second], alerted=True)
    return {"requeue": [str(first), str(second), str(pending), str(new_id())], "quarantined": [str(first), str(second)]}


def detach_scene(engine: Engine, _: Settings) -> Facts:
    """An intent for an Active snapshot, and a guard whose snapshot was never made."""
    (known,) = active_snapshots(engine, 1)
    unknown = new_id()
    _due(engine, [known])
    _due(engine, [unknown], is_guard=True)
    return {"known": str(known), "unknown": str(unknown), "user": str(USER)}


SCENES: dict[str, Callable[[Engine, Settings], Facts]] = {
    "set-blocks": post_scene,
    "set-blocks, late create": post_scene,
    "delete-post": post_scene,
    "tick": tick_scene,
    "batch": batch_scene,
    "requeue": requeue_scene,
    "detach endpoint": detach_scene,
}


def _due(engine: Engine, snapshots: Sequence[UUID], *, is_guard: bool = False) -> list[UUID]:
    now = utc_now() - timedelta(hours=1)
    return stage(engine, snapshots, now=now, is_guard=is_guard)


def _become(engine: Engine, ids: Sequence[UUID], *, attempts: int, version: int, outcome_due: bool) -> None:
    change(
        engine,
        """UPDATE news.snapshot_detach_outbox SET attempts = :attempts, version = :version, outcome_due = :outcome_due
           WHERE id = ANY(CAST(:ids AS uuid[]))""",
        ids=list(ids),
        attempts=attempts,
        version=version,
        outcome_due=outcome_due,
    )
    _as_staged(engine)


def _quarantine(engine: Engine, ids: Sequence[UUID], *, alerted: bool) -> None:
    change(
        engine,
        """UPDATE news.snapshot_detach_outbox
           SET status = 'Quarantined', attempts = 12, version = 24, last_error = 'HTTP 503'
           WHERE id = ANY(CAST(:ids AS uuid[]))""",
        ids=list(ids),
    )
    change(
        engine,
        """INSERT INTO news.snapshot_detach_quarantined_event
               (id, entry_id, snapshot_id, post_id, reason, attempts, occurred_at, alerted_at)
           SELECT gen_random_uuid(), id, snapshot_id, post_id, reason, attempts, now() - interval '1 day',
                  CASE WHEN :alerted THEN now() END
           FROM news.snapshot_detach_outbox WHERE id = ANY(CAST(:ids AS uuid[]))""",
        ids=list(ids),
        alerted=alerted,
    )
    _as_staged(engine)


def _as_staged(engine: Engine) -> None:
    """What the scene has done to entries is not the product's doing: they count as staged like that."""
    change(engine, "DELETE FROM faults.entry WHERE op <> 'INSERT'")
    change(
        engine,
        """UPDATE faults.entry SET new_status = o.status, new_attempts = o.attempts, new_version = o.version
           FROM news.snapshot_detach_outbox o WHERE o.id = entry_id""",
    )
