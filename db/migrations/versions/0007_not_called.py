"""Not called is an outcome, the due order is total, and a run's figures stand in its row (G22, G24, A52).

Old code runs on this schema: it claims without `claimed_from`, so that what it claimed is given back to the moment it
was next due, and it writes none of the new words.
"""

from alembic import op

revision = "0007"
down_revision = "0006"

STATEMENTS = (
    # When the entry was due before its last claim: what was not called goes back to its place (G22).
    "ALTER TABLE news.snapshot_detach_outbox ADD COLUMN claimed_from timestamptz",
    "ALTER TABLE news.snapshot_detach_attempt DROP CONSTRAINT ck_sda_outcome",
    """
    ALTER TABLE news.snapshot_detach_attempt ADD CONSTRAINT ck_sda_outcome CHECK (
        outcome IN ('Succeeded', 'Retried', 'Quarantined', 'Late', 'NotCalled')
    ) NOT VALID
    """,
    "ALTER TABLE news.snapshot_detach_attempt VALIDATE CONSTRAINT ck_sda_outcome",
    "ALTER TABLE news.snapshot_detach_run ADD COLUMN not_called integer NOT NULL DEFAULT 0",
    # The claim goes through the due order once a run, by a cursor; with the id the order has no ties.
    "CREATE INDEX ix_sdo_due_next ON news.snapshot_detach_outbox (status, next_attempt_at, id)",
    "DROP INDEX news.ix_sdo_due",
    "ALTER INDEX news.ix_sdo_due_next RENAME TO ix_sdo_due",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
