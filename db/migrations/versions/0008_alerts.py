"""One row an event and a sink: each alert has its own tries, backoff and outcome (G27).

Old code runs on this schema unchanged: it goes by `told` and `alerted_at`, and its purge takes the rows along. What it
writes without rows gets them from the next tick.
"""

from alembic import op

revision = "0008"
down_revision = "0007"

STATEMENTS = (
    """
    CREATE TABLE news.snapshot_detach_alert (
        event_id uuid NOT NULL REFERENCES news.snapshot_detach_quarantined_event (id) ON DELETE CASCADE,
        sink varchar(16) NOT NULL,
        state varchar(16) NOT NULL DEFAULT 'Untold',
        tries integer NOT NULL DEFAULT 0,
        next_try_at timestamptz NOT NULL,
        handed_over boolean NOT NULL DEFAULT false,
        last_error varchar(64),
        created_at timestamptz NOT NULL,
        ended_at timestamptz,
        PRIMARY KEY (event_id, sink),
        CONSTRAINT ck_sdal_state CHECK (state IN ('Untold', 'Told', 'GivenUp')),
        CONSTRAINT ck_sdal_tries CHECK (tries >= 0),
        CONSTRAINT ck_sdal_ended CHECK ((state = 'Untold') = (ended_at IS NULL))
    )
    """,
    "CREATE INDEX ix_sdal_untold ON news.snapshot_detach_alert (sink, next_try_at) WHERE state = 'Untold'",
    # Who was told stays told. The log comes again, once: telling it makes the rows of the sinks that are configured.
    """
    INSERT INTO news.snapshot_detach_alert (event_id, sink, state, next_try_at, created_at, ended_at)
    SELECT e.id, a.sink, a.state, e.occurred_at, e.occurred_at, CASE WHEN a.state = 'Told' THEN e.occurred_at END
    FROM news.snapshot_detach_quarantined_event e CROSS JOIN LATERAL (
        SELECT 'log' AS sink, 'Untold' AS state UNION ALL SELECT t, 'Told' FROM unnest(e.told) AS t WHERE t <> 'log'
    ) AS a
    WHERE e.alerted_at IS NULL
    ON CONFLICT DO NOTHING
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
