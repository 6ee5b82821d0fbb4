"""What the database itself notes during a run, and what must hold of it at rest, beyond `tests.faults.invariants`.

Triggers, installed from outside, note every claim (by which session, and whether that session held the runner lock),
which entries a message names, and when a message was consumed. Nothing here asks the processes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from db.runner.lock import lock_key
from tests.faults.invariants import violations as at_rest
from tests.faults.scenes import take_notes

_FIRST, _SECOND = (half & 0xFFFFFFFF for half in lock_key())

# faults.entry has one row a change of an entry, with its transaction; here is what only a run of many processes needs.
_NOTES = f"""
    CREATE SCHEMA chaos;
    CREATE TABLE chaos.claim (
        id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL, session integer NOT NULL,
        locked boolean NOT NULL, entry_id uuid NOT NULL, version bigint NOT NULL, due timestamptz NOT NULL
    );
    CREATE TABLE chaos.named (message_id uuid NOT NULL, entry_id uuid NOT NULL, version bigint NOT NULL);
    CREATE TABLE chaos.consumed (at timestamptz NOT NULL, message_id uuid NOT NULL);
    CREATE TABLE chaos.away (kind text NOT NULL, began timestamptz NOT NULL, ended timestamptz NOT NULL);

    CREATE FUNCTION chaos.note_claims() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO chaos.claim (at, session, locked, entry_id, version, due)
        SELECT clock_timestamp(), pg_backend_pid(), EXISTS (
            SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()
              AND objsubid = 2 AND classid = {_FIRST}::bigint::oid AND objid = {_SECOND}::bigint::oid
        ), now_.id, now_.version, now_.next_attempt_at
        FROM now_ JOIN was USING (id) WHERE now_.attempts > was.attempts;
        RETURN NULL;
    END $$;
    CREATE TRIGGER chaos_claims AFTER UPDATE ON news.snapshot_detach_outbox
        REFERENCING OLD TABLE AS was NEW TABLE AS now_ FOR EACH STATEMENT EXECUTE FUNCTION chaos.note_claims();

    CREATE FUNCTION chaos.note_message() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO chaos.named SELECT NEW.message_id, (named ->> 0)::uuid, (named ->> 1)::bigint
            FROM jsonb_array_elements(NEW.message -> 'args' -> 1) AS named;
        ELSE
            INSERT INTO chaos.consumed VALUES (clock_timestamp(), NEW.message_id);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER chaos_sent AFTER INSERT ON dramatiq.queue
        FOR EACH ROW WHEN (NEW.queue_name = 'snapshot-detach') EXECUTE FUNCTION chaos.note_message();
    CREATE TRIGGER chaos_consumed AFTER UPDATE ON dramatiq.queue FOR EACH ROW
        WHEN (NEW.queue_name = 'snapshot-detach' AND NEW.deliveries > OLD.deliveries AND NEW.state = 'consumed')
        EXECUTE FUNCTION chaos.note_message();
"""

# A claim without a row of history whose entry went on to another claim, or to quarantine for a lost outcome.
_LOST = """
    SELECT c.entry_id, c.version, c.at, c.due, n.until,
        EXISTS (SELECT FROM chaos.away a WHERE a.began < n.until AND a.ended > c.at) AS worker_away,
        NOT EXISTS (
            SELECT FROM chaos.named m JOIN chaos.consumed t USING (message_id)
            WHERE m.entry_id = c.entry_id AND m.version = c.version AND t.at < c.due) AS waited
    FROM chaos.claim c
    CROSS JOIN LATERAL (
        SELECT coalesce((SELECT min(next_.at) FROM chaos.claim next_
            WHERE next_.entry_id = c.entry_id AND next_.version > c.version), 'infinity') AS until
    ) AS n
    JOIN faults.entry e ON e.entry_id = c.entry_id AND e.old_version = c.version AND e.op = 'UPDATE'
    WHERE (e.new_attempts > e.old_attempts OR e.new_status = 'Quarantined') AND NOT EXISTS (
        SELECT FROM news.snapshot_detach_attempt a WHERE a.entry_id = c.entry_id AND a.entry_version = c.version)
    ORDER BY c.at
"""

_BROKEN = {
    "I6 a claim by a session that does not hold the runner lock": """
        SELECT entry_id, version, session FROM chaos.claim WHERE NOT locked
    """,
    "fence: two failures recorded over one version": """
        SELECT entry_id, entry_version, count(*) FROM news.snapshot_detach_attempt
        WHERE outcome IN ('Retried', 'Quarantined') GROUP BY entry_id, entry_version HAVING count(*) > 1
    """,
    "I7 a quarantine has not its one event": """
        SELECT moved.entry_id, moved.times, told.times FROM (
            SELECT entry_id, count(*) AS times FROM faults.entry
            WHERE new_status = 'Quarantined' AND old_status = 'Pending' GROUP BY entry_id) AS moved
        FULL JOIN (SELECT entry_id, count(*) AS times FROM news.snapshot_detach_quarantined_event GROUP BY entry_id
            ) AS told USING (entry_id)
        WHERE moved.times IS DISTINCT FROM told.times
    """,
    "J18 a block was replaced without an intent in the same transaction": """
        SELECT v.post_id, v.version, gone.snapshot_id FROM news.post_version v
        JOIN news.post_block gone ON gone.post_id = v.post_id AND gone.version = v.version - 1
        WHERE gone.snapshot_id IS NOT NULL
          AND NOT EXISTS (SELECT FROM news.post_block kept WHERE kept.post_id = v.post_id AND kept.version = v.version
              AND kept.snapshot_id = gone.snapshot_id)
          AND NOT EXISTS (SELECT FROM news.snapshot_detach_outbox o JOIN faults.entry e ON e.entry_id = o.id
              WHERE o.snapshot_id = gone.snapshot_id AND e.op = 'INSERT' AND NOT o.is_guard
                AND e.xid = v.xmin::text::bigint)
    """,
    "J18 a post was deleted without an intent in the same transaction": """
        SELECT p.id, gone.snapshot_id FROM news.post p
        JOIN news.post_block gone ON gone.post_id = p.id AND gone.version = p.version
        WHERE p.status = 'Archived' AND gone.snapshot_id IS NOT NULL
          AND NOT EXISTS (SELECT FROM news.snapshot_detach_outbox o JOIN faults.entry e ON e.entry_id = o.id
              WHERE o.snapshot_id = gone.snapshot_id AND e.op = 'INSERT' AND NOT o.is_guard
                AND e.xid = p.xmin::text::bigint)
    """,
    "J18 an intent without its change": """
        SELECT o.id, o.snapshot_id FROM news.snapshot_detach_outbox o
        WHERE NOT o.is_guard AND EXISTS (SELECT FROM news.post p WHERE p.id = o.post_id)
          AND EXISTS (SELECT FROM news.post p JOIN news.post_block b ON b.post_id = p.id AND b.version = p.version
              WHERE p.id = o.post_id AND p.status <> 'Archived' AND b.snapshot_id = o.snapshot_id)
    """,
}

_ASKED_OTHERWISE = (
    "I4 more than one attempt lost",  # many processes are killed here: `attempts` accounts for each attempt
    "I7 a quarantine without its one event",  # an alert that is marked gives its event another transaction
)


@dataclass(frozen=True, slots=True)
class Attempts:
    """I4 in figures. `unaccounted` names the claims that nothing explains."""

    claimed: int
    answered: int
    worker_away: int
    waited: int
    overtaken: int
    """An answer to an earlier attempt, or an operator, closed the entry before this attempt's message was read."""
    unaccounted: tuple[str, ...]


def watch(connection: psycopg.Connection[Any]) -> None:
    """From now on the database notes what happens in it."""
    take_notes(connection)
    connection.execute(_NOTES.encode())


def attempts(connection: psycopg.Connection[Any], away: Iterable[tuple[str, datetime, datetime]]) -> Attempts:
    """Account for every attempt (I4). `away`: when a worker was killed, frozen or cut off, until it was back.

    A database or a scheduler that was away explains nothing: neither may cost an attempt.
    """
    for kind, began, ended in away:
        connection.execute("INSERT INTO chaos.away VALUES (%s, %s, %s)", [kind, began, ended])
    claimed = _count(connection, "SELECT count(*) FROM chaos.claim")
    answered = _count(
        connection,
        """SELECT count(*) FROM chaos.claim c WHERE EXISTS (SELECT FROM news.snapshot_detach_attempt a
           WHERE a.entry_id = c.entry_id AND a.entry_version = c.version)""",
    )
    lost = connection.execute(_LOST.encode()).fetchall()
    unexplained = tuple(
        f"I4 an attempt that nothing accounts for: entry {entry} version {version}, at {at}, due {due}, next {until}"
        for entry, version, at, due, until, worker_away, waited in lost
        if not worker_away and not waited
    )
    by_worker = sum(1 for row in lost if row[5])
    waited = len(lost) - by_worker - len(unexplained)
    return Attempts(claimed, answered, by_worker, waited, claimed - answered - len(lost), unexplained)


def broken(connection: psycopg.Connection[Any]) -> list[str]:
    """What the database breaks of I1 to I4, I6, I7 and J18, a line each."""
    found = [line for line in at_rest(connection) if not line.startswith(_ASKED_OTHERWISE)]
    for name, statement in _BROKEN.items():
        found += [f"{name}: {' '.join(map(str, row))}" for row in connection.execute(statement.encode())]
    return found


def lost_writes(connection: psycopg.Connection[Any], revisions: dict[UUID, int], deleted: Iterable[UUID]) -> list[str]:
    """Writes that were acknowledged and are not there."""
    rows = connection.execute("SELECT id, revision, status FROM news.post").fetchall()
    posts = {post_id: (revision, status) for post_id, revision, status in rows}
    found = [
        f"acknowledged and lost: post {post} at revision {revision}"
        for post, revision in revisions.items()
        if post not in posts or posts[post][0] < revision
    ]
    gone = [post for post in deleted if posts.get(post, (0, ""))[1] != "Archived"]
    return found + [f"acknowledged and lost: the deletion of post {post}" for post in gone]


def alerts(connection: psycopg.Connection[Any], lines: Sequence[str], most: int) -> list[str]:
    """Each quarantine's alert was raised in the log at least once, and at most `most` times each (I7)."""
    events = connection.execute(
        "SELECT entry_id::text, count(*) FROM news.snapshot_detach_quarantined_event GROUP BY entry_id"
    ).fetchall()
    raised = [line for line in lines if "SnapshotDetachQuarantinedEvent" in line]
    found = []
    for entry, count in events:
        times = sum(1 for line in raised if entry in line)
        if not count <= times <= count * most:
            found.append(f"I7 entry {entry} was quarantined {count} times and its alert raised {times} times")
    return found


def unfinished(connection: psycopg.Connection[Any]) -> int:
    """Pending intents, messages under way and alerts not raised: 0 at rest."""
    return _count(
        connection,
        """SELECT (SELECT count(*) FROM news.snapshot_detach_outbox WHERE status = 'Pending')
             + (SELECT count(*) FROM dramatiq.queue WHERE state IN ('queued', 'consumed'))
             + (SELECT count(*) FROM news.snapshot_detach_quarantined_event WHERE alerted_at IS NULL)""",
    )


def figures(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """How much the run has made."""
    return {
        "snapshots": _count(connection, "SELECT count(*) FROM selections.snapshot WHERE status <> 'Tombstone'"),
        "detached": _count(connection, "SELECT count(*) FROM selections.snapshot WHERE status = 'Detached'"),
        "tombstones": _count(connection, "SELECT count(*) FROM selections.snapshot WHERE status = 'Tombstone'"),
        "intents": _count(connection, "SELECT count(*) FROM news.snapshot_detach_outbox"),
        "quarantined": _count(
            connection, "SELECT count(*) FROM news.snapshot_detach_outbox WHERE status = 'Quarantined'"
        ),
        "runs": _count(connection, "SELECT count(*) FROM news.snapshot_detach_run WHERE result <> 'Skipped'"),
    }


def idle_in_transaction(connection: psycopg.Connection[Any], longer_than: float) -> list[str]:
    """Sessions of those who call selections, idle in an open transaction for so many seconds (I5)."""
    rows = connection.execute(
        """SELECT application_name, pid, left(query, 80) FROM pg_stat_activity
           WHERE state = 'idle in transaction' AND application_name IN ('pin-worker', 'pin-web')
             AND clock_timestamp() - state_change > make_interval(secs => %s)""",
        [longer_than],
    ).fetchall()
    return [f"I5 {name} (session {pid}) sits in an open transaction: {query}" for name, pid, query in rows]


def _count(connection: psycopg.Connection[Any], statement: str) -> int:
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return int(row[0])
