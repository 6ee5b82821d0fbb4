"""The schema keeps the invariants itself: what the documents name is there, and what must not happen is refused."""

from typing import Any

import psycopg
import pytest
from dramatiq_pg.schema import generate_init_sql
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from db import migrate
from pin.clock import new_id
from tests.job.scene import active_snapshots, change, query, stage

COLUMNS = """
    SELECT column_name, data_type, character_maximum_length, is_nullable, column_default
    FROM information_schema.columns WHERE table_schema = :schema AND table_name = :table
"""


def columns(engine: Engine, schema: str, table: str) -> dict[str, Any]:
    return {r.column_name: r for r in query(engine, COLUMNS, schema=schema, table=table)}


@pytest.mark.req("J8", "G1", "G6", "G7", "G13")
def test_the_outbox_has_the_documents_columns(engine: Engine) -> None:
    found = columns(engine, "news", "snapshot_detach_outbox")
    expected = {
        "id": ("uuid", None, "NO", None),
        "snapshot_id": ("uuid", None, "NO", None),
        "post_id": ("uuid", None, "NO", None),
        "reason": ("character varying", 16, "NO", None),
        "requested_by_user_id": ("uuid", None, "NO", None),
        "attempts": ("integer", None, "NO", "0"),
        "next_attempt_at": ("timestamp with time zone", None, "NO", None),
        "status": ("character varying", 16, "NO", "'Pending'::character varying"),
        "last_error": ("character varying", 512, "YES", None),
        "version": ("bigint", None, "NO", "0"),
        "outcome_due": ("boolean", None, "NO", "false"),
        "is_guard": ("boolean", None, "NO", "false"),
        "created_at": ("timestamp with time zone", None, "NO", None),
        "updated_at": ("timestamp with time zone", None, "NO", None),
        "claimed_from": ("timestamp with time zone", None, "YES", None),
    }
    assert {
        name: (c.data_type, c.character_maximum_length, c.is_nullable, c.column_default) for name, c in found.items()
    } == expected


@pytest.mark.req("J8")
def test_the_outbox_has_the_documents_indexes_and_no_foreign_key(engine: Engine) -> None:
    rows = query(engine, "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'snapshot_detach_outbox'")
    indexes = {r.indexname: r.indexdef for r in rows}
    assert indexes["ux_sdo_snapshot"].startswith("CREATE UNIQUE INDEX")
    assert "(snapshot_id) WHERE ((status)::text <> 'Done'::text)" in indexes["ux_sdo_snapshot"]
    assert indexes["ix_sdo_due"].endswith("(status, next_attempt_at, id)")
    assert indexes["ix_sdo_post"].endswith("(post_id)")
    foreign = "SELECT FROM pg_constraint WHERE contype = 'f' AND conrelid = 'news.snapshot_detach_outbox'::regclass"
    assert query(engine, foreign) == []


@pytest.mark.req("J9", "J8")
@pytest.mark.parametrize(
    "assignment", ["status = 'Lost'", "reason = 'Whim'", "attempts = -1", "status = 'Done', last_error = 'HTTP 503'"]
)
def test_the_outbox_refuses_values_outside_the_contract(engine: Engine, assignment: str) -> None:
    stage(engine, [new_id()])
    with pytest.raises(IntegrityError):
        change(engine, f"UPDATE news.snapshot_detach_outbox SET {assignment}")


@pytest.mark.req("J20", "J8")
def test_a_quarantined_row_counts_as_active_and_a_done_one_does_not(engine: Engine) -> None:
    snapshot = new_id()
    stage(engine, [snapshot])
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Quarantined'")
    stage(engine, [snapshot])
    assert len(query(engine, "SELECT FROM news.snapshot_detach_outbox")) == 1
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Done'")
    stage(engine, [snapshot])
    assert len(query(engine, "SELECT FROM news.snapshot_detach_outbox")) == 2


@pytest.mark.req("D9")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM selections.snapshot",
        "TRUNCATE selections.snapshot CASCADE",
        "UPDATE selections.snapshot SET content = '{}'",
        "UPDATE selections.snapshot SET selection_id = gen_random_uuid()",
        "UPDATE selections.snapshot SET id = gen_random_uuid()",
        "UPDATE selections.snapshot SET status = 'Tombstone', content = NULL, selection_id = NULL",
    ],
)
def test_the_database_refuses_to_delete_or_alter_a_snapshot(engine: Engine, statement: str) -> None:
    active_snapshots(engine)
    before = query(engine, "SELECT * FROM selections.snapshot")
    with pytest.raises(DBAPIError):
        change(engine, statement)
    assert query(engine, "SELECT * FROM selections.snapshot") == before


@pytest.mark.req("D7", "D9")
def test_the_database_refuses_a_second_detach(engine: Engine) -> None:
    active_snapshots(engine)
    detach = "UPDATE selections.snapshot SET status = 'Detached', detached_at = now(), detach_reason = :reason"
    change(engine, detach, reason="BlockReplaced")
    with pytest.raises(DBAPIError):
        change(engine, detach, reason="PostDeleted")
    with pytest.raises(DBAPIError):
        change(engine, "UPDATE selections.snapshot SET status = 'Active', detached_at = NULL, detach_reason = NULL")


@pytest.mark.req("C3")
def test_the_queue_is_the_librarys_table_with_our_additions(database: str, engine: Engine) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ALTER SCHEMA dramatiq RENAME TO ours")
        connection.execute(generate_init_sql().encode())
    ours, theirs = columns(engine, "ours", "queue"), columns(engine, "dramatiq", "queue")
    assert set(ours) - set(theirs) == {"deliveries"}
    shape = {name: (c.data_type, c.is_nullable) for name, c in theirs.items()}
    assert {name: (ours[name].data_type, ours[name].is_nullable) for name in theirs} == shape
    assert (ours["mtime"].column_default, "UTC" in theirs["mtime"].column_default) == ("now()", True)
    labels = (
        "SELECT array_agg(enumlabel::text ORDER BY enumsortorder) AS labels FROM pg_enum"
        " WHERE enumtypid = CAST(:t AS regtype)"
    )
    assert query(engine, labels, t="ours.state") == query(engine, labels, t="dramatiq.state")


@pytest.mark.req("C1", "C2")
def test_migrating_twice_changes_nothing_and_head_is_reached(database: str, engine: Engine) -> None:
    assert migrate.upgrade(database) == (migrate.head(), migrate.head())
    with engine.connect() as connection:
        assert migrate.current(connection) == migrate.head()


@pytest.mark.req("C1")
def test_a_migration_that_cannot_get_its_lock_gives_up_and_leaves_nothing_half_done(
    database: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(engine, "UPDATE schema_version SET version_num = '0002'")
    change(engine, "DROP SCHEMA news CASCADE")
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "100ms")
    with engine.connect() as holder:
        holder.execute(text("LOCK TABLE schema_version IN ACCESS EXCLUSIVE MODE"))
        with pytest.raises(DBAPIError):
            migrate.upgrade(database)
        holder.rollback()
    assert query(engine, "SELECT FROM information_schema.schemata WHERE schema_name = 'news'") == []
    assert migrate.upgrade(database)[1] == migrate.head()
