"""News: posts, their versions and blocks, and the outbox of detach intents with its history (J8, J9, G1, G6, G7)."""

from alembic import op

revision = "0003"
down_revision = "0002"

STATEMENTS = (
    "CREATE SCHEMA news",
    """
    CREATE TABLE news.post (
        id uuid PRIMARY KEY,
        tenant_id uuid NOT NULL,
        author_id uuid NOT NULL,
        title varchar(200) NOT NULL,
        status varchar(16) NOT NULL CHECK (status IN ('Draft', 'Published', 'Unpublished', 'Archived')),
        version integer NOT NULL CHECK (version > 0),
        revision bigint NOT NULL DEFAULT 1 CHECK (revision > 0),
        created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL
    )
    """,
    "CREATE INDEX ix_post_tenant ON news.post (tenant_id, id)",
    """
    CREATE TABLE news.post_version (
        post_id uuid NOT NULL REFERENCES news.post (id),
        version integer NOT NULL,
        created_by uuid NOT NULL,
        created_at timestamptz NOT NULL,
        PRIMARY KEY (post_id, version)
    )
    """,
    """
    CREATE TABLE news.post_block (
        post_id uuid NOT NULL,
        version integer NOT NULL,
        position integer NOT NULL,
        kind varchar(16) NOT NULL CHECK (kind IN ('Text', 'SelectionEmbed')),
        body text,
        snapshot_id uuid,
        PRIMARY KEY (post_id, version, position),
        FOREIGN KEY (post_id, version) REFERENCES news.post_version (post_id, version),
        CHECK ((kind = 'Text') = (body IS NOT NULL)),
        CHECK ((kind = 'SelectionEmbed') = (snapshot_id IS NOT NULL))
    )
    """,
    "CREATE INDEX ix_post_block_snapshot ON news.post_block (snapshot_id) WHERE snapshot_id IS NOT NULL",
    """
    CREATE TABLE news.snapshot_detach_outbox (
        id uuid PRIMARY KEY,
        snapshot_id uuid NOT NULL,
        post_id uuid NOT NULL,
        reason varchar(16) NOT NULL,
        requested_by_user_id uuid NOT NULL,
        attempts integer NOT NULL DEFAULT 0,
        next_attempt_at timestamptz NOT NULL,
        status varchar(16) NOT NULL DEFAULT 'Pending',
        last_error varchar(512),
        version bigint NOT NULL DEFAULT 0,
        outcome_due boolean NOT NULL DEFAULT false,
        is_guard boolean NOT NULL DEFAULT false,
        created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL,
        CONSTRAINT ck_sdo_reason CHECK (reason IN ('BlockReplaced', 'PostDeleted')),
        CONSTRAINT ck_sdo_status CHECK (status IN ('Pending', 'Done', 'Quarantined')),
        CONSTRAINT ck_sdo_attempts CHECK (attempts >= 0),
        CONSTRAINT ck_sdo_done CHECK (status <> 'Done' OR last_error IS NULL),
        CONSTRAINT ck_sdo_outcome_due CHECK (status = 'Pending' OR NOT outcome_due)
    ) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05)
    """,
    "CREATE UNIQUE INDEX ux_sdo_snapshot ON news.snapshot_detach_outbox (snapshot_id) WHERE status <> 'Done'",
    "CREATE INDEX ix_sdo_due ON news.snapshot_detach_outbox (status, next_attempt_at)",
    "CREATE INDEX ix_sdo_post ON news.snapshot_detach_outbox (post_id)",
    # Every answer to a call, late ones as well. No foreign key: a purge takes both, in its own order.
    """
    CREATE TABLE news.snapshot_detach_attempt (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        entry_id uuid NOT NULL,
        entry_version bigint NOT NULL,
        attempt integer NOT NULL,
        run_id uuid,
        outcome varchar(16) NOT NULL,
        error varchar(512),
        http_status smallint,
        duration_ms integer NOT NULL,
        worker varchar(128) NOT NULL,
        trace_id varchar(32),
        recorded_at timestamptz NOT NULL,
        CONSTRAINT ck_sda_outcome CHECK (outcome IN ('Succeeded', 'Retried', 'Quarantined', 'Late'))
    )
    """,
    "CREATE INDEX ix_sda_entry ON news.snapshot_detach_attempt (entry_id, id)",
    "CREATE INDEX ix_sda_run ON news.snapshot_detach_attempt (run_id) WHERE run_id IS NOT NULL",
    """
    CREATE TABLE news.snapshot_detach_run (
        id uuid PRIMARY KEY,
        runner varchar(128) NOT NULL,
        started_at timestamptz NOT NULL,
        ended_at timestamptz,
        result varchar(16),
        halted_by varchar(512),
        batches integer NOT NULL DEFAULT 0,
        claimed integer NOT NULL DEFAULT 0,
        succeeded integer NOT NULL DEFAULT 0,
        retried integer NOT NULL DEFAULT 0,
        quarantined integer NOT NULL DEFAULT 0,
        CONSTRAINT ck_sdr_result CHECK (
            result IN ('Completed', 'OutOfTime', 'HeldBack', 'Halted', 'Stopped', 'LockLost', 'Failed', 'Skipped')
        )
    )
    """,
    "CREATE INDEX ix_sdr_started ON news.snapshot_detach_run (started_at DESC)",
    # SnapshotDetachQuarantinedEvent (J15), one a move to Quarantined; alerted_at is set by whoever raised the alert.
    """
    CREATE TABLE news.snapshot_detach_quarantined_event (
        id uuid PRIMARY KEY,
        entry_id uuid NOT NULL,
        snapshot_id uuid NOT NULL,
        post_id uuid NOT NULL,
        reason varchar(16) NOT NULL,
        attempts integer NOT NULL,
        last_error varchar(512),
        occurred_at timestamptz NOT NULL,
        alerted_at timestamptz
    )
    """,
    "CREATE INDEX ix_sdq_entry ON news.snapshot_detach_quarantined_event (entry_id)",
    "CREATE INDEX ix_sdq_silent ON news.snapshot_detach_quarantined_event (occurred_at) WHERE alerted_at IS NULL",
    """
    CREATE TABLE news.snapshot_detach_audit (
        id uuid PRIMARY KEY,
        entry_id uuid NOT NULL,
        snapshot_id uuid NOT NULL,
        actor varchar(128) NOT NULL,
        action varchar(32) NOT NULL,
        reason varchar(512) NOT NULL,
        details jsonb NOT NULL DEFAULT '{}',
        occurred_at timestamptz NOT NULL
    )
    """,
    "CREATE INDEX ix_sdaudit_entry ON news.snapshot_detach_audit (entry_id)",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
