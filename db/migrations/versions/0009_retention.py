"""How far the pruning has come through each table, so that no run begins at the start again.

Old code runs on this schema: it prunes nothing.
"""

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE news.snapshot_detach_retention (
            kind varchar(16) PRIMARY KEY,
            place uuid NOT NULL,
            moved_at timestamptz NOT NULL
        )
    """)
