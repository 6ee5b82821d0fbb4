"""Selections: selections, their immutable snapshots, and the facts about them (D5–D9, G12, G13)."""

from alembic import op

revision = "0002"
down_revision = "0001"

STATEMENTS = (
    "CREATE SCHEMA selections",
    """
    CREATE TABLE selections.selection (
        id uuid PRIMARY KEY,
        tenant_id uuid NOT NULL,
        owner_id uuid NOT NULL,
        title varchar(200) NOT NULL,
        items jsonb NOT NULL CHECK (jsonb_typeof(items) = 'array'),
        revision bigint NOT NULL DEFAULT 1 CHECK (revision > 0),
        created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL
    )
    """,
    # A Tombstone is the promise that this id will never be a snapshot (G13). It shares the primary key with the
    # snapshots, so that a create and a tombstone cannot both win.
    """
    CREATE TABLE selections.snapshot (
        id uuid PRIMARY KEY,
        status varchar(16) NOT NULL CHECK (status IN ('Active', 'Detached', 'Tombstone')),
        selection_id uuid,
        content jsonb,
        requested_by_user_id uuid,
        detached_at timestamptz,
        detach_reason varchar(16) CHECK (detach_reason IN ('BlockReplaced', 'PostDeleted')),
        version bigint NOT NULL DEFAULT 0,
        created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL,
        CONSTRAINT ck_snapshot_content CHECK ((status = 'Tombstone') = (content IS NULL AND selection_id IS NULL)),
        CONSTRAINT ck_snapshot_detached CHECK (
            (status = 'Detached') = (detached_at IS NOT NULL) AND (status = 'Detached') = (detach_reason IS NOT NULL)
        )
    )
    """,
    """
    CREATE FUNCTION selections.keep_snapshot() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP IN ('DELETE', 'TRUNCATE') THEN
            RAISE EXCEPTION 'a snapshot is never deleted (INV-SNP-006)' USING ERRCODE = 'restrict_violation';
        END IF;
        IF NEW.id <> OLD.id OR NEW.content IS DISTINCT FROM OLD.content
           OR NEW.selection_id IS DISTINCT FROM OLD.selection_id OR NEW.created_at <> OLD.created_at THEN
            RAISE EXCEPTION 'the content of a snapshot never changes (INV-SEL-001)'
                USING ERRCODE = 'restrict_violation';
        END IF;
        IF OLD.status <> 'Active' THEN
            RAISE EXCEPTION 'a snapshot is detached once, and a refused id stays refused (INV-SNP-005)'
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER snapshot_is_kept BEFORE UPDATE OR DELETE ON selections.snapshot
    FOR EACH ROW EXECUTE FUNCTION selections.keep_snapshot()
    """,
    """
    CREATE TRIGGER snapshots_are_kept BEFORE TRUNCATE ON selections.snapshot
    FOR EACH STATEMENT EXECUTE FUNCTION selections.keep_snapshot()
    """,
    # One fact a snapshot, whatever was repeated: the primary key says so.
    """
    CREATE TABLE selections.snapshot_detached_event (
        snapshot_id uuid PRIMARY KEY REFERENCES selections.snapshot (id),
        event_id uuid NOT NULL UNIQUE,
        reason varchar(16) NOT NULL,
        requested_by_user_id uuid NOT NULL,
        occurred_at timestamptz NOT NULL
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
