"""Quarantine: list and group its entries, give one, several or all that match back to the job (J29, G21).

Re-enqueuing many goes over a plan (pin.operations.plans): a set frozen at the preview, a few first as a canary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Connection, Engine

from db.errors import transact
from db.outbox import quarantine
from db.outbox.quarantine import AuditRow, QuarantinedEntry, QuarantinedGroup
from pin.clock import new_id
from pin.operations import audit
from pin.rules.outbox import Entry, Status


class RequeueResult(StrEnum):
    """What became of one id that was to be re-enqueued."""

    REQUEUED = "Requeued"
    NOT_QUARANTINED = "NotQuarantined"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class RequeueAnswer:
    """One id's answer; `status` is the entry's state before, None for an unknown id."""

    entry_id: UUID
    result: RequeueResult
    status: str | None


def list_quarantined(engine: Engine, *, limit: int = 100) -> list[QuarantinedEntry]:
    """The quarantined entries with their last_error, longest quarantined first."""
    with engine.connect() as connection:
        return quarantine.list_quarantined(connection, limit)


def groups(engine: Engine) -> list[QuarantinedGroup]:
    """The quarantined entries by the fingerprint of their last error, which is class and code alone (J14)."""
    with engine.connect() as connection:
        return quarantine.groups(connection)


def requeue(engine: Engine, ids: Sequence[UUID], *, actor: str, reason: str, now: datetime) -> list[RequeueAnswer]:
    """Quarantined to Pending, attempts 0, due now, each with an audit row; one transaction (J29, G21).

    Answers each id once, in the order given. Acts only on what is Quarantined: anything else is answered and stays as
    it is. Raises ValueError for an empty actor or reason, or a reason over 512 characters.
    """
    audit.need(actor, reason)
    wanted = list(dict.fromkeys(ids))

    def move(connection: Connection) -> tuple[dict[UUID, tuple[Entry, str | None]], set[UUID]]:
        found = quarantine.lock_entries(connection, wanted)
        moving = [one for one in wanted if one in found and found[one][0].status == Status.QUARANTINED]
        moved = quarantine.requeue(connection, moving, now) if moving else set()
        quarantine.write_audit(
            connection,
            [
                AuditRow(
                    id=new_id(),
                    entry_id=one,
                    snapshot_id=found[one][0].snapshot_id,
                    actor=actor,
                    action="requeue",
                    reason=reason,
                    details={
                        "attempts": found[one][0].attempts,
                        "lastError": found[one][1],
                        "version": found[one][0].version,
                    },
                )
                for one in wanted
                if one in moved
            ],
            now,
        )
        return found, moved

    found, moved = transact(engine, move)
    answers: list[RequeueAnswer] = []
    for one in wanted:
        entry = found.get(one)
        if entry is None:
            answers.append(RequeueAnswer(one, RequeueResult.UNKNOWN, None))
        else:
            result = RequeueResult.REQUEUED if one in moved else RequeueResult.NOT_QUARANTINED
            answers.append(RequeueAnswer(one, result, str(entry[0].status)))
    return answers
