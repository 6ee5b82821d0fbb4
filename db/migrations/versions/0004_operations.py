"""What operators need: a pause, requeue plans with a canary, audit rows of no one entry, what the lists read by."""

from alembic import op

revision = "0004"
down_revision = "0003"

STATEMENTS = (
    # One row at most: the job is paused while it is there.
    """
    CREATE TABLE news.snapshot_detach_pause (
        id smallint PRIMARY KEY DEFAULT 1 CHECK (id = 1),
        actor varchar(128) NOT NULL,
        reason varchar(512) NOT NULL,
        since timestamptz NOT NULL
    )
    """,
    # Code that writes 'Paused' comes after this migration (J9).
    "ALTER TABLE news.snapshot_detach_run DROP CONSTRAINT ck_sdr_result",
    """
    ALTER TABLE news.snapshot_detach_run ADD CONSTRAINT ck_sdr_result CHECK (
        result IN (
            'Completed', 'OutOfTime', 'HeldBack', 'Halted', 'Stopped', 'LockLost', 'Failed', 'Skipped', 'Paused'
        )
    )
    """,
    "ALTER TABLE news.snapshot_detach_audit ALTER COLUMN entry_id DROP NOT NULL",
    "ALTER TABLE news.snapshot_detach_audit ALTER COLUMN snapshot_id DROP NOT NULL",
    "CREATE INDEX ix_sdaudit_occurred ON news.snapshot_detach_audit (occurred_at, id)",
    # A frozen set of quarantined entries, each with the version it was seen at, and how far its re-enqueue has come.
    """
    CREATE TABLE news.snapshot_detach_requeue (
        id uuid PRIMARY KEY,
        state varchar(16) NOT NULL,
        filter varchar(512) NOT NULL,
        entry_ids uuid[] NOT NULL,
        versions bigint[] NOT NULL,
        canary integer NOT NULL DEFAULT 0 CHECK (canary >= 0),
        requeued integer NOT NULL DEFAULT 0,
        actor varchar(128) NOT NULL,
        reason varchar(512),
        said varchar(512),
        created_at timestamptz NOT NULL,
        started_at timestamptz,
        ended_at timestamptz,
        CONSTRAINT ck_sdq_state CHECK (state IN ('Previewed', 'Canary', 'Completed', 'Stopped')),
        CONSTRAINT ck_sdq_started CHECK ((state = 'Previewed') = (started_at IS NULL)),
        CONSTRAINT ck_sdq_reason CHECK (state = 'Previewed' OR reason IS NOT NULL),
        CHECK (cardinality(entry_ids) = cardinality(versions))
    )
    """,
    "CREATE INDEX ix_sdq_canary ON news.snapshot_detach_requeue (id) WHERE state = 'Canary'",
    "CREATE INDEX ix_sdo_created ON news.snapshot_detach_outbox (created_at, id)",
    # With ux_sdo_snapshot it finds every entry of a snapshot, and only the last change of a row has to write it.
    "CREATE INDEX ix_sdo_snapshot_done ON news.snapshot_detach_outbox (snapshot_id) WHERE status = 'Done'",
    "CREATE INDEX ix_sda_recorded ON news.snapshot_detach_attempt (recorded_at)",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
