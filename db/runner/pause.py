"""`news.snapshot_detach_pause`: while its one row is there, the runner claims nothing."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from db.errors import Meaning, meaning_of
from db.runner.lock import lock_key

CLAIM_LOCK = lock_key("Pin:lock:claim:news-snapshot-detach")
"""Held in common by each claim's transaction, so that who pauses the job can wait for the claims under way (A50)."""

_PATIENCE_MS = 2_000


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused the job, why, and since when."""

    actor: str
    reason: str
    since: datetime


_READ = text("SELECT actor, reason, since FROM news.snapshot_detach_pause")

_PAUSE = text("""
    INSERT INTO news.snapshot_detach_pause (actor, reason, since) VALUES (:actor, :reason, :now)
    ON CONFLICT (id) DO NOTHING
    RETURNING actor, reason, since
""")

_KEY = {"first": CLAIM_LOCK[0], "second": CLAIM_LOCK[1]}
_SHARE = text("SELECT pg_advisory_xact_lock_shared(:first, :second)")
_EXCLUDE = text("SELECT pg_advisory_xact_lock(:first, :second)")
_LIMIT = text("SELECT set_config('lock_timeout', :milliseconds, true)")

_RESUME = text("DELETE FROM news.snapshot_detach_pause RETURNING actor, reason, since")


def read(connection: Connection) -> Pause | None:
    """The pause in force, None when the job is not paused."""
    row = connection.execute(_READ).one_or_none()
    return Pause(*row) if row else None


def begin(connection: Connection, *, actor: str, reason: str, now: datetime) -> Pause | None:
    """Pause the job. None when it is paused already: that pause stays as it is."""
    row = connection.execute(_PAUSE, {"actor": actor[:128], "reason": reason, "now": now}).one_or_none()
    return Pause(*row) if row else None


def share_claims(connection: Connection) -> None:
    """Say that a claim is under way until this transaction ends. Call it before the claim's own statement."""
    connection.execute(_SHARE, _KEY)


def await_claims(connection: Connection) -> bool:
    """Wait until every claim that began before now has ended; False when one did not within two seconds.

    With the pause committed before, no claim commits after this has answered True. In a transaction of its own.
    """
    connection.execute(_LIMIT, {"milliseconds": str(_PATIENCE_MS)})
    try:
        connection.execute(_EXCLUDE, _KEY)
    except DBAPIError as error:
        if meaning_of(error) is not Meaning.BUSY:
            raise
        return False
    return True


def end(connection: Connection) -> Pause | None:
    """Resume the job; answers the pause that was in force, None when there was none."""
    row = connection.execute(_RESUME).one_or_none()
    return Pause(*row) if row else None
