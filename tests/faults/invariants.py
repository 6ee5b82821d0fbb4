"""The invariants of a system at rest, asked of the database by SQL. Each statement answers what breaks one.

I1  no snapshot is Active that no block of a live post shows, unless its intent is Quarantined; none shown is Detached
I2  every intent is Done or Quarantined, and Done means done
I3  one event a Detached snapshot and none for another; the first reason stays
I4  an attempt is counted if and only if its message was handed over in the same transaction; a process that was ended
    costs an entry one attempt at most
I5  no transaction is open while a call is on the wire (asked while the process is held, `open_transactions`)
I7  every quarantine has its event, and its alert was raised once

and the fence: a version only rises, Done is final, a failure is written only over the version that was called (J16).
"""

from typing import Any

import psycopg

_SHOWN = """
    SELECT block.snapshot_id FROM news.post
    JOIN news.post_block AS block ON block.post_id = post.id AND block.version = post.version
    WHERE post.status <> 'Archived' AND block.snapshot_id IS NOT NULL
"""
_STAGED = (
    "(SELECT max(id) FROM faults.entry s WHERE s.entry_id = o.id AND (op = 'INSERT' OR new_attempts < old_attempts))"
)

_BROKEN = {
    "I1 Active, not shown, and nobody will detach it": f"""
        SELECT id FROM selections.snapshot s WHERE status = 'Active' AND id NOT IN ({_SHOWN}) AND NOT EXISTS (
            SELECT FROM news.snapshot_detach_outbox o WHERE o.snapshot_id = s.id AND o.status = 'Quarantined')
    """,
    "I1 shown, and not Active": f"""
        SELECT shown.snapshot_id, s.status FROM ({_SHOWN}) AS shown
        LEFT JOIN selections.snapshot s ON s.id = shown.snapshot_id WHERE s.status IS DISTINCT FROM 'Active'
    """,
    "I2 still Pending at rest": """
        SELECT id, attempts, is_guard FROM news.snapshot_detach_outbox WHERE status NOT IN ('Done', 'Quarantined')
    """,
    "I2 Done, and its snapshot is neither Detached nor refused for ever": """
        SELECT o.id, s.status FROM news.snapshot_detach_outbox o LEFT JOIN selections.snapshot s ON s.id = o.snapshot_id
        WHERE o.status = 'Done' AND (s.status IS NULL OR s.status NOT IN ('Detached', 'Tombstone')
            OR (s.status = 'Tombstone' AND NOT o.is_guard))
    """,
    "I3 Detached without its one event of the first reason": """
        SELECT s.id, s.detach_reason, e.reason FROM selections.snapshot s
        FULL JOIN selections.snapshot_detached_event e ON e.snapshot_id = s.id
        WHERE (s.status = 'Detached' OR e.snapshot_id IS NOT NULL)
          AND (s.status, s.detach_reason) IS DISTINCT FROM ('Detached', e.reason)
    """,
    "I3 detached for another reason than the first": """
        SELECT s.id, s.detach_reason, o.reason FROM selections.snapshot s
        JOIN news.snapshot_detach_outbox o ON o.snapshot_id = s.id
        WHERE s.status = 'Detached' AND s.detach_reason <> o.reason
    """,
    "I4 an attempt counted without its message": """
        SELECT c.entry_id, c.new_version FROM faults.entry c
        WHERE op = 'UPDATE' AND new_attempts > old_attempts AND (new_attempts > old_attempts + 1 OR NOT EXISTS (
            SELECT FROM faults.message m
            WHERE m.xid = c.xid AND m.entry_id = c.entry_id AND m.version = c.new_version))
    """,
    "I4 a message without its attempt": """
        SELECT m.entry_id, m.version FROM faults.message m WHERE NOT EXISTS (
            SELECT FROM faults.entry c WHERE c.xid = m.xid AND c.entry_id = m.entry_id AND c.new_version = m.version
              AND c.new_attempts = c.old_attempts + 1)
    """,
    "I4 attempts are not the messages handed over since": f"""
        SELECT o.id, o.attempts FROM news.snapshot_detach_outbox o
        JOIN faults.entry began ON began.id = {_STAGED}
        WHERE o.attempts - began.new_attempts <> (
            SELECT count(*) FROM faults.message m WHERE m.entry_id = o.id AND m.version > began.new_version)
    """,
    "I4 more than one attempt lost": """
        SELECT m.entry_id, count(*) FROM faults.message m WHERE NOT EXISTS (
            SELECT FROM news.snapshot_detach_attempt a WHERE a.entry_id = m.entry_id AND a.entry_version = m.version)
        GROUP BY m.entry_id HAVING count(*) > 1
    """,
    "I7 Quarantined, and not told once": """
        SELECT o.id FROM news.snapshot_detach_outbox o WHERE o.status = 'Quarantined' AND NOT EXISTS (
            SELECT FROM news.snapshot_detach_quarantined_event e WHERE e.entry_id = o.id AND e.alerted_at IS NOT NULL)
    """,
    "I7 a quarantine without its one event": """
        SELECT moved.entry_id FROM faults.entry moved
        WHERE moved.new_status = 'Quarantined' AND moved.old_status <> 'Quarantined' AND 1 <> (
            SELECT count(*) FROM faults.event e WHERE e.entry_id = moved.entry_id AND e.xid = moved.xid)
    """,
    "I7 told twice": "SELECT event_id FROM faults.alert GROUP BY event_id HAVING count(*) > 1",
    "fence: Done was left, or a version did not rise by one": """
        SELECT entry_id, old_status, new_status, old_version, new_version FROM faults.entry
        WHERE op = 'UPDATE' AND (old_status = 'Done' OR new_version <> old_version + 1)
    """,
    "fence: removed, and no untouched guard": """
        SELECT entry_id, old_status, old_version FROM faults.entry
        WHERE op = 'DELETE' AND NOT (is_guard AND old_status = 'Pending' AND old_version = 0)
    """,
    "fence: a failure written over another version": """
        SELECT a.entry_id, a.entry_version, e.old_version FROM news.snapshot_detach_attempt a
        JOIN faults.entry e ON e.xid = a.xmin::text::bigint AND e.entry_id = a.entry_id
        WHERE a.outcome IN ('Retried', 'Quarantined') AND e.old_version <> a.entry_version
    """,
    "an operator's change without its one audit row": """
        SELECT e.entry_id FROM faults.entry e WHERE e.old_status = 'Quarantined' AND 1 <> (
            SELECT count(*) FROM news.snapshot_detach_audit a
            WHERE a.entry_id = e.entry_id AND a.xmin::text::bigint = e.xid)
    """,
    "an audit row of what did not happen": """
        SELECT a.entry_id FROM news.snapshot_detach_audit a WHERE NOT EXISTS (
            SELECT FROM faults.entry e WHERE e.entry_id = a.entry_id AND e.xid = a.xmin::text::bigint)
    """,
}


def violations(connection: psycopg.Connection[Any]) -> list[str]:
    """What the database breaks, one line each; empty when all holds."""
    found: list[str] = []
    for name, statement in _BROKEN.items():
        found += [f"{name}: {' '.join(map(str, row))}" for row in connection.execute(statement.encode())]
    return found


def open_transactions(connection: psycopg.Connection[Any]) -> int:
    """How many sessions of the product stand in a transaction (I5); a lone statement of another thread is none."""
    row = connection.execute("""
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name NOT LIKE 'pin-faults%'
          AND state LIKE 'idle in transaction%'
    """).fetchone()
    assert row is not None
    count: int = row[0]
    return count
