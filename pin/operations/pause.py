"""Pause and resume the job: while it is paused, the runner claims nothing; what workers hold already is delivered."""

from datetime import datetime

from sqlalchemy import Connection, Engine

from db.errors import transact
from db.runner import pause as store
from db.runner.pause import Pause
from pin.operations import audit


def read(engine: Engine) -> Pause | None:
    """The pause in force, None when there is none."""
    with engine.connect() as connection:
        return store.read(connection)


def pause(engine: Engine, *, actor: str, reason: str, now: datetime) -> tuple[Pause, bool]:
    """Pause the job; answers the pause in force and whether this call made it: an earlier one stays as it is.

    Once it has answered nothing more is claimed: it waits for a claim under way, two seconds at most. Raises ValueError
    without actor or reason.
    """
    audit.need(actor, reason)
    made, standing = transact(engine, lambda connection: _pause(connection, actor=actor, reason=reason, now=now))
    with engine.connect() as connection:
        store.await_claims(connection)
    # Resumed in between: whoever did that knows, and may be asked.
    return made or standing or Pause(actor, reason, now), made is not None


def _pause(connection: Connection, *, actor: str, reason: str, now: datetime) -> tuple[Pause | None, Pause | None]:
    made = store.begin(connection, actor=actor, reason=reason, now=now)
    if made is not None:
        audit.record(connection, actor=actor, action="pause", reason=reason, now=now, details={})
    return made, None if made is not None else store.read(connection)


def resume(engine: Engine, *, actor: str, reason: str, now: datetime) -> Pause | None:
    """Resume the job; answers the pause that has ended, None when it was not paused. Raises ValueError."""
    audit.need(actor, reason)
    with engine.begin() as connection:
        ended = store.end(connection)
        if ended is not None:
            details = {"pausedBy": ended.actor, "pausedFor": ended.reason, "since": ended.since.isoformat()}
            audit.record(connection, actor=actor, action="resume", reason=reason, now=now, details=details)
    return ended
