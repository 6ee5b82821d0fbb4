"""Fewer bytes a delivery: indexes that no query needs go, and new versions of a row stay on its page.

Old code runs on this schema unchanged: it names no index. While it is still there, its list of entries and its last
answers read more than they need to.
"""

from alembic import op

revision = "0006"
down_revision = "0005"

STATEMENTS = (
    # Lists read by the primary key: ids of version 7 are in the order of time. What asks for a span of time has the
    # summary, which costs nothing a row.
    "DROP INDEX news.ix_sdo_created",
    """
    CREATE INDEX ix_sdo_created_span ON news.snapshot_detach_outbox USING brin (created_at)
    WITH (pages_per_range = 32, autosummarize = on)
    """,
    # A row is written twice after it was staged, by the claim and by the outcome. With room on its own page, the log
    # holds what changed and not the row.
    "ALTER TABLE news.snapshot_detach_outbox SET (fillfactor = 45)",
    "ALTER INDEX news.snapshot_detach_outbox_pkey SET (fillfactor = 45)",
    # History is written once, in the order of time, and is read by entry, by run and by time.
    "CREATE INDEX ix_sda_of_entry ON news.snapshot_detach_attempt (entry_id)",
    """
    CREATE INDEX ix_sda_span ON news.snapshot_detach_attempt USING brin (id, recorded_at, run_id uuid_minmax_multi_ops)
    WITH (pages_per_range = 16, autosummarize = on)
    """,
    "DROP INDEX news.ix_sda_entry",
    "DROP INDEX news.ix_sda_recorded",
    "DROP INDEX news.ix_sda_run",
    "ALTER TABLE news.snapshot_detach_attempt DROP CONSTRAINT snapshot_detach_attempt_pkey",
    """
    ALTER TABLE news.snapshot_detach_attempt SET (
        autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
