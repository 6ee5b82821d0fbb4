"""The audit: who did what, to which entry, and why. A change writes it in its own transaction."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine

from db.outbox import quarantine
from db.outbox.quarantine import AuditRow
from db.views import entries
from db.views.entries import AuditEntry, Condition
from pin.clock import new_id
from pin.operations import paging

MAX_REASON_LENGTH = 512

ACTIONS = (
    "requeue",
    "late-success",
    "pause",
    "resume",
    "release-lock",
    "stop-requeue",
    "purge",
    "reconcile",
    "retry-alert",
    "give-up-alert",
)
"""Every action that the audit may name; docs/cli.md says what each is."""


@dataclass(frozen=True, slots=True)
class AuditPage:
    """One page of the audit, newest first; `next` is the key of the page after it."""

    rows: tuple[AuditEntry, ...]
    next: str | None


def need(actor: str, reason: str) -> None:
    """Raise ValueError for an empty actor or reason, or a reason over 512 characters: the audit keeps both."""
    if not actor.strip() or not reason.strip():
        raise ValueError("an actor and a reason are needed: they are what the audit keeps")
    if len(reason) > MAX_REASON_LENGTH:
        raise ValueError(f"the reason is longer than {MAX_REASON_LENGTH} characters")
    if "\0" in actor or "\0" in reason:
        raise ValueError("an actor or a reason cannot hold U+0000")


def record(
    connection: Connection,
    *,
    actor: str,
    action: str,
    reason: str,
    now: datetime,
    details: Mapping[str, Any],
    entry_id: UUID | None = None,
    snapshot_id: UUID | None = None,
) -> None:
    """Keep one row, in the transaction of the change."""
    row = AuditRow(new_id(), entry_id, snapshot_id, actor, action, reason, details)
    quarantine.write_audit(connection, [row], now)


def list_audit(
    engine: Engine,
    *,
    action: str | None = None,
    actor: str | None = None,
    entry_id: UUID | None = None,
    after: str | None = None,
    limit: int = 50,
) -> AuditPage:
    """The audit, newest first, narrowed by what is given. Raises paging.PageKeyError for a foreign `after`."""
    given = {"action": action, "actor": actor, "entry_id": entry_id}
    narrowed = [Condition(f"{name} = :{name}", {name: value}) for name, value in given.items() if value is not None]
    with engine.connect() as connection:
        found = entries.audit_page(connection, narrowed, after=paging.read(after), limit=limit + 1)
    shown = found[:limit]
    key = paging.written(shown[-1].occurred_at, shown[-1].id) if len(found) > limit else None
    return AuditPage(tuple(shown), key)
