"""Which sinks were told of a quarantine, so that an alert that reached one and not the other is not repeated (J15)."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # Without a rewrite: the default is a constant. `alerted_at` stays the moment at which all sinks had been told.
    op.execute("ALTER TABLE news.snapshot_detach_quarantined_event ADD COLUMN told varchar(16)[] NOT NULL DEFAULT '{}'")
