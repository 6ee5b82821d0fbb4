"""`news.snapshot_detach_run`: one row a tick, how it ended and what came of it (J5, G3, G20)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Connection, text


class RunResult(StrEnum):
    """How a tick ended. Completed and OutOfTime are successful runs (G20)."""

    COMPLETED = "Completed"
    OUT_OF_TIME = "OutOfTime"
    HELD_BACK = "HeldBack"
    """Batches lay unconsumed until the run's end: are there workers?"""
    HALTED = "Halted"
    """An answer that is the same for every row ended the pass: mend the credential (G3)."""
    STOPPED = "Stopped"
    LOCK_LOST = "LockLost"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    """Another runner held the lock (J2)."""
    PAUSED = "Paused"
    """An operator has paused the job: nothing was claimed, or nothing more."""


SUCCESSFUL = (RunResult.COMPLETED, RunResult.OUT_OF_TIME)
"""Held the lock, was not held back to its end, ended by itself (G20)."""


@dataclass(frozen=True, slots=True)
class RunOutcomes:
    """What the attempts of one run came to, counted from the history."""

    succeeded: int
    retried: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class RunRow:
    """One tick as its row tells it. Without `ended_at` it is under way, or its process died."""

    id: UUID
    runner: str
    started_at: datetime
    ended_at: datetime | None
    result: str | None
    halted_by: str | None
    batches: int
    claimed: int
    succeeded: int
    retried: int
    quarantined: int


_START = text("""
    INSERT INTO news.snapshot_detach_run (id, runner, started_at) VALUES (:id, :runner, :now)
""")

_HALT = text("UPDATE news.snapshot_detach_run SET halted_by = :error WHERE id = :id AND halted_by IS NULL")

_OUTCOMES = text("""
    SELECT
        count(*) FILTER (WHERE outcome = 'Succeeded') AS succeeded,
        count(*) FILTER (WHERE outcome = 'Retried') AS retried,
        count(*) FILTER (WHERE outcome = 'Quarantined') AS quarantined
    FROM news.snapshot_detach_attempt WHERE run_id = :id
""")

_END = text("""
    UPDATE news.snapshot_detach_run SET
        ended_at = :now, result = :result, batches = :batches, claimed = :claimed, succeeded = :succeeded,
        retried = :retried, quarantined = :quarantined
    WHERE id = :id
""")

_SKIP = text("""
    INSERT INTO news.snapshot_detach_run (id, runner, started_at, ended_at, result)
    VALUES (:id, :runner, :now, :now, 'Skipped')
""")

_COLUMNS = "id, runner, started_at, ended_at, result, halted_by, batches, claimed, succeeded, retried, quarantined"

_LIST = text(f"""
    SELECT {_COLUMNS} FROM news.snapshot_detach_run
    WHERE (started_at, id) < (:before, CAST(:before_id AS uuid)) AND (:skipped OR result IS DISTINCT FROM 'Skipped')
    ORDER BY started_at DESC, id DESC LIMIT :limit
""")

_ONE = text(f"SELECT {_COLUMNS} FROM news.snapshot_detach_run WHERE id = :id")

_LAST_SUCCESS = text("""
    SELECT ended_at FROM news.snapshot_detach_run WHERE result IN ('Completed', 'OutOfTime')
    ORDER BY started_at DESC LIMIT 1
""")

_FOREVER = datetime(9999, 1, 1, tzinfo=UTC)


def start(connection: Connection, *, run_id: UUID, runner: str, now: datetime) -> None:
    """The run has begun. A row that stays without `ended_at` is a run whose process died."""
    connection.execute(_START, {"id": run_id, "runner": runner[:128], "now": now})


def halt(connection: Connection, run_id: UUID, error: str) -> None:
    """A worker tells the runner that the pass is over (G3)."""
    connection.execute(_HALT, {"id": run_id, "error": error})


def outcomes(connection: Connection, run_id: UUID) -> RunOutcomes:
    """What is recorded so far of the run's attempts."""
    row = connection.execute(_OUTCOMES, {"id": run_id}).one()
    return RunOutcomes(row.succeeded, row.retried, row.quarantined)


def end(
    connection: Connection,
    *,
    run_id: UUID,
    result: RunResult,
    batches: int,
    claimed: int,
    found: RunOutcomes,
    now: datetime,
) -> None:
    """Write the run's summary."""
    connection.execute(
        _END,
        {
            "id": run_id,
            "now": now,
            "result": result.value,
            "batches": batches,
            "claimed": claimed,
            "succeeded": found.succeeded,
            "retried": found.retried,
            "quarantined": found.quarantined,
        },
    )


def skip(connection: Connection, *, run_id: UUID, runner: str, now: datetime) -> None:
    """A tick that met the lock held elsewhere (J2)."""
    connection.execute(_SKIP, {"id": run_id, "runner": runner[:128], "now": now})


def history(
    connection: Connection, *, limit: int, before: tuple[datetime, UUID] | None = None, skipped: bool = True
) -> list[RunRow]:
    """The ticks, newest first; `before` is the (started_at, id) that the answer must lie before."""
    moment, run_id = before or (_FOREVER, UUID(int=0))
    values = {"limit": limit, "before": moment, "before_id": run_id, "skipped": skipped}
    return [RunRow(*row) for row in connection.execute(_LIST, values)]


def one(connection: Connection, run_id: UUID) -> RunRow | None:
    """One tick, None where there is no such one."""
    row = connection.execute(_ONE, {"id": run_id}).one_or_none()
    return RunRow(*row) if row else None


def last_success(connection: Connection) -> datetime | None:
    """When the last successful run ended, whichever scheduler's it was (G20); None when there was none yet."""
    found: datetime | None = connection.execute(_LAST_SUCCESS).scalar()
    return found
