"""`news.snapshot_detach_requeue`: a frozen set of quarantined entries, and how far its re-enqueue has come.

(none)      freeze   -> Previewed   the set is fixed: these entries at these versions
Previewed   start    -> Completed   all of it at once
Previewed   start    -> Canary      its first few; the rest waits for what becomes of them
Canary      advance  -> Canary      none of the few was delivered, for they had changed meanwhile: some more go ahead
Canary      advance  -> Completed   the few are over and one of them was delivered: the rest was re-enqueued
Canary      advance  -> Stopped     one of the few failed again, or an operator said so: the rest stays
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Connection, text

from pin.rules.reading import known


class PlanState(StrEnum):
    """Where a plan stands."""

    PREVIEWED = "Previewed"
    CANARY = "Canary"
    COMPLETED = "Completed"
    STOPPED = "Stopped"


@dataclass(frozen=True, slots=True)
class Frozen:
    """One entry of a frozen set, and the version it was seen at: what has changed since is left alone."""

    entry_id: UUID
    version: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan. `canary` is how many of the first go ahead, 0 for none; `said` is why it stopped."""

    id: UUID
    state: PlanState | str
    filter: str
    entries: tuple[Frozen, ...]
    canary: int
    requeued: int
    actor: str
    reason: str | None
    said: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Standing:
    """What became of a plan's canary: how many are Done, how many failed again (and with what), how many wait.

    `delivered` counts those that are Done by a call since the requeue: what is Done otherwise proves nothing (A45).
    """

    done: int
    delivered: int
    failed: int
    waiting: int
    error: str | None


_COLUMNS = (
    "id, state, filter, entry_ids, versions, canary, requeued, actor, reason, said, created_at, started_at, ended_at"
)

_FREEZE = text("""
    SELECT id, version FROM news.snapshot_detach_outbox
    WHERE status = 'Quarantined'
      AND (NOT :by_error OR last_error IS NOT DISTINCT FROM CAST(:error AS text))
      AND (NOT :by_id OR id = ANY(CAST(:ids AS uuid[])))
    ORDER BY updated_at, id LIMIT :limit
""")

_KEEP = text("""
    INSERT INTO news.snapshot_detach_requeue (id, state, filter, entry_ids, versions, actor, created_at)
    VALUES (:id, 'Previewed', :filter, CAST(:ids AS uuid[]), CAST(:versions AS bigint[]), :actor, :now)
""")

_READ = text(f"SELECT {_COLUMNS} FROM news.snapshot_detach_requeue WHERE id = :id")
_LOCK = text(f"{_READ.text} FOR UPDATE")
_LIST = text(f"SELECT {_COLUMNS} FROM news.snapshot_detach_requeue ORDER BY created_at DESC, id DESC LIMIT :limit")
_WAITING = text(f"""
    SELECT {_COLUMNS} FROM news.snapshot_detach_requeue WHERE state = 'Canary' ORDER BY id FOR UPDATE SKIP LOCKED
""")

_MOVE = text("""
    UPDATE news.snapshot_detach_requeue SET
        state = :state, canary = :canary, requeued = requeued + :requeued, actor = :actor, reason = :reason,
        said = :said, started_at = coalesce(started_at, :now), ended_at = CASE WHEN :over THEN :now END
    WHERE id = :id
""")

# An attempt made for a version above the frozen one was made after the re-enqueue.
_STANDING = text("""
    SELECT
        count(*) FILTER (WHERE o.status = 'Done') AS done,
        count(*) FILTER (WHERE o.status = 'Done' AND EXISTS (
            SELECT FROM news.snapshot_detach_attempt s
            WHERE s.entry_id = c.entry_id AND s.entry_version > c.version AND s.outcome = 'Succeeded'
        )) AS delivered,
        count(*) FILTER (WHERE o.status <> 'Done' AND (o.status = 'Quarantined' OR f.outcome IS NOT NULL)) AS failed,
        count(*) FILTER (WHERE o.status = 'Pending' AND f.outcome IS NULL) AS waiting,
        min(coalesce(f.error, o.last_error)) FILTER (WHERE o.status = 'Quarantined' OR f.outcome IS NOT NULL) AS error
    FROM unnest(CAST(:ids AS uuid[]), CAST(:versions AS bigint[])) AS c (entry_id, version)
    JOIN news.snapshot_detach_outbox o ON o.id = c.entry_id
    LEFT JOIN LATERAL (
        SELECT outcome, error FROM news.snapshot_detach_attempt a
        WHERE a.entry_id = c.entry_id AND a.entry_version > c.version AND a.outcome IN ('Retried', 'Quarantined')
        ORDER BY a.id LIMIT 1
    ) f ON true
""")


def freeze(
    connection: Connection, *, ids: Sequence[UUID] | None, error: str | None, by_error: bool, limit: int
) -> list[Frozen]:
    """The quarantined entries that the filter finds now, longest quarantined first. `error` None means: none kept."""
    values = {
        "ids": list(ids or []),
        "by_id": ids is not None,
        "error": error,
        "by_error": by_error,
        "limit": limit,
    }
    return [Frozen(row.id, row.version) for row in connection.execute(_FREEZE, values)]


def keep(
    connection: Connection, *, plan_id: UUID, frozen: Sequence[Frozen], filter_: str, actor: str, now: datetime
) -> None:
    """Keep a set as a plan, Previewed: nothing of it has moved."""
    connection.execute(
        _KEEP,
        {
            "id": plan_id,
            "filter": filter_[:512],
            "ids": [one.entry_id for one in frozen],
            "versions": [one.version for one in frozen],
            "actor": actor[:128],
            "now": now,
        },
    )


def read(connection: Connection, plan_id: UUID, *, lock: bool = False) -> Plan | None:
    """The plan, None where there is no such one; nobody else moves a locked one until the transaction ends."""
    row = connection.execute(_LOCK if lock else _READ, {"id": plan_id}).one_or_none()
    return _plan(tuple(row)) if row else None


def newest(connection: Connection, limit: int) -> list[Plan]:
    """The plans, newest first."""
    return [_plan(tuple(row)) for row in connection.execute(_LIST, {"limit": limit})]


def standing(connection: Connection, frozen: Sequence[Frozen]) -> Standing:
    """What became of these entries since they were re-enqueued."""
    values = {"ids": [one.entry_id for one in frozen], "versions": [one.version for one in frozen]}
    return Standing(*connection.execute(_STANDING, values).one())


def waiting(connection: Connection) -> list[Plan]:
    """The plans whose canary is out, locked; those that another transaction holds are passed over."""
    return [_plan(tuple(row)) for row in connection.execute(_WAITING).all()]


def move(
    connection: Connection,
    plan_id: UUID,
    state: PlanState,
    *,
    canary: int,
    requeued: int,
    actor: str,
    reason: str,
    said: str | None,
    now: datetime,
) -> None:
    """Write where a plan stands now; `requeued` more of it have moved."""
    connection.execute(
        _MOVE,
        {
            "id": plan_id,
            "state": state.value,
            "canary": canary,
            "requeued": requeued,
            "actor": actor[:128],
            "reason": reason,
            "said": said,
            "now": now,
            "over": state is not PlanState.CANARY,
        },
    )


def _plan(row: tuple[object, ...]) -> Plan:
    id_, state, filter_, ids, versions, *rest = row
    entries = tuple(Frozen(*pair) for pair in zip(ids, versions, strict=True))  # type: ignore[call-overload]
    return Plan(id_, known(PlanState, state), filter_, entries, *rest)  # type: ignore[arg-type]
