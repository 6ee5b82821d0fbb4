"""`news.snapshot_detach_pause`: while its one row is there, the runner claims nothing."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


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

_RESUME = text("DELETE FROM news.snapshot_detach_pause RETURNING actor, reason, since")


def read(connection: Connection) -> Pause | None:
    """The pause in force, None when the job is not paused."""
    row = connection.execute(_READ).one_or_none()
    return Pause(*row) if row else None


def begin(connection: Connection, *, actor: str, reason: str, now: datetime) -> Pause | None:
    """Pause the job. None when it is paused already: that pause stays as it is."""
    row = connection.execute(_PAUSE, {"actor": actor[:128], "reason": reason, "now": now}).one_or_none()
    return Pause(*row) if row else None


def end(connection: Connection) -> Pause | None:
    """Resume the job; answers the pause that was in force, None when there was none."""
    row = connection.execute(_RESUME).one_or_none()
    return Pause(*row) if row else None
