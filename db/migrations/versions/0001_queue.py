"""The broker's queue: dramatiq-pg's table, with the count of deliveries and the index that our consumer claims by (G6).

The table is the one that dramatiq-pg 0.12 creates (a test compares them); `mtime` differs in its default alone: the
library's is a local time taken for UTC, which on a server of another time zone would shift every lease.
"""

from alembic import op

revision = "0001"
down_revision = None

STATEMENTS = (
    "CREATE SCHEMA dramatiq",
    "CREATE TYPE dramatiq.state AS ENUM ('queued', 'consumed', 'rejected', 'done')",
    """
    CREATE TABLE dramatiq.queue (
        message_id uuid PRIMARY KEY,
        queue_name text NOT NULL DEFAULT 'default',
        state dramatiq.state,
        mtime timestamptz DEFAULT now(),
        message jsonb,
        result jsonb,
        result_ttl timestamptz,
        deliveries integer NOT NULL DEFAULT 0
    )
    """,
    "CREATE INDEX ix_queue_finished ON dramatiq.queue (state, mtime)",
    """
    CREATE INDEX ix_queue_waiting ON dramatiq.queue (queue_name, mtime)
    WHERE state IN ('queued', 'consumed')
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
