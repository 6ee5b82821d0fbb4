"""The runner lock: who holds it, and how to take it from a holder that hangs (J29, G5)."""

from datetime import datetime

from sqlalchemy import Engine

from db.runner import lock_holder
from db.runner.lock_holder import LockHolder
from pin.operations import audit


def show(engine: Engine) -> LockHolder | None:
    """Who holds the lock now, None when it is free."""
    with engine.connect() as connection:
        return lock_holder.holder(connection)


def release(engine: Engine, *, pid: int, actor: str, reason: str, now: datetime) -> LockHolder | None:
    """End the session `pid`, if it holds the lock still; answers whose it was, None when it holds it no more.

    A live runner notices before its next claim and stops; nothing is lost (A13). Raises ValueError without actor or
    reason, sqlalchemy.exc.ProgrammingError when the database's role may not end that session.
    """
    audit.need(actor, reason)
    with engine.begin() as connection:
        holder = lock_holder.holder(connection)
        if holder is None or holder.pid != pid or not lock_holder.end_holder(connection, pid):
            return None
        details = {"pid": pid, "application": holder.application, "host": holder.host, "runner": holder.runner}
        audit.record(connection, actor=actor, action="release-lock", reason=reason, now=now, details=details)
    return holder
