"""Delete what is over: Done entries with their history and events, some at a time."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, slots=True)
class Purged:
    """How many rows went, or would go."""

    entries: int
    attempts: int
    events: int
    untold: int = 0
    """Entries that stay, old enough though they are: a sink has not been told of their quarantine (G27)."""


_COUNT = text("""
    WITH done AS (
        SELECT id FROM news.snapshot_detach_outbox WHERE status = 'Done' AND updated_at < :before
    ), untold AS (
        SELECT DISTINCT entry_id FROM news.snapshot_detach_quarantined_event
        WHERE alerted_at IS NULL AND entry_id IN (SELECT id FROM done)
    ), old AS (
        SELECT id FROM done WHERE id NOT IN (SELECT entry_id FROM untold)
    )
    SELECT
        (SELECT count(*) FROM old) AS entries,
        (SELECT count(*) FROM news.snapshot_detach_attempt WHERE entry_id IN (SELECT id FROM old)) AS attempts,
        (SELECT count(*) FROM news.snapshot_detach_quarantined_event WHERE entry_id IN (SELECT id FROM old)) AS events,
        (SELECT count(*) FROM untold) AS untold
""")

# Rows that somebody holds are passed over: a late reply may be about to be recorded. So are those whose quarantine a
# sink has not been told of; the events' alerts go with them.
_PURGE = text("""
    WITH old AS MATERIALIZED (
        SELECT id FROM news.snapshot_detach_outbox o WHERE status = 'Done' AND updated_at < :before AND NOT EXISTS (
            SELECT FROM news.snapshot_detach_quarantined_event e WHERE e.entry_id = o.id AND e.alerted_at IS NULL
        )
        ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
    ), attempts AS (
        DELETE FROM news.snapshot_detach_attempt WHERE entry_id = ANY(ARRAY(SELECT id FROM old)) RETURNING 1
    ), events AS (
        DELETE FROM news.snapshot_detach_quarantined_event WHERE entry_id = ANY(ARRAY(SELECT id FROM old)) RETURNING 1
    ), entries AS (
        DELETE FROM news.snapshot_detach_outbox WHERE id = ANY(ARRAY(SELECT id FROM old)) RETURNING 1
    )
    SELECT (SELECT count(*) FROM entries), (SELECT count(*) FROM attempts), (SELECT count(*) FROM events)
""")


def count(connection: Connection, before: datetime) -> Purged:
    """What a purge of all entries that were Done before that moment would delete."""
    return Purged(*connection.execute(_COUNT, {"before": before}).one())


def purge(connection: Connection, before: datetime, limit: int) -> Purged:
    """Delete up to `limit` entries that were Done before that moment, with their history and events; one statement."""
    return Purged(*connection.execute(_PURGE, {"before": before, "limit": limit}).one())
