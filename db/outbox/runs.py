"""`news.snapshot_detach_run`: one row a tick, how it ended and what came of it (J5, G3, G20)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Connection, text

from pin.rules.reading import known


class RunResult(StrEnum):
    """How a tick ended. Completed and OutOfTime are successful runs (G20)."""

    COMPLETED = "Completed"
    OUT_OF_TIME = "OutOfTime"
    HELD_BACK = "HeldBack"
    """Batches lay unconsumed until the run's end: are there workers?"""
    HALTED = "Halted"
    """An answer that is the same for every row ended the pass: fix the credential (G3)."""
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
    """What became of a run's rows; a row that was quarantined uncalled counts as well (A52)."""

    succeeded: int = 0
    retried: int = 0
    quarantined: int = 0
    not_called: int = 0
    """Given back without a call (G22)."""


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
    not_called: int = 0


_START = text("""
    INSERT INTO news.snapshot_detach_run (id, runner, started_at) VALUES (:id, :runner, :now)
""")

# What the run's rows became is added by whoever writes the rows, in the same transaction: one source for every figure,
# whenever an outcome comes and whether or not an answer to its COMMIT does (A47, A52).
_NOTE = text("""
    UPDATE news.snapshot_detach_run SET
        succeeded = succeeded + :succeeded, retried = retried + :retried, quarantined = quarantined + :quarantined,
        not_called = not_called + :not_called, halted_by = COALESCE(halted_by, :halted_by)
    WHERE id = :id
""")

_END = text("""
    UPDATE news.snapshot_detach_run SET ended_at = :now, result = :result, batches = :batches, claimed = :claimed
    WHERE id = :id
    RETURNING succeeded, retried, quarantined, not_called
""")

_LAST_RESULT = text("""
    SELECT result FROM news.snapshot_detach_run WHERE result <> 'Skipped' ORDER BY started_at DESC LIMIT 1
""")

_SKIP = text("""
    INSERT INTO news.snapshot_detach_run (id, runner, started_at, ended_at, result)
    VALUES (:id, :runner, :now, :now, 'Skipped')
""")

_COLUMNS = (
    "id, runner, started_at, ended_at, result, halted_by, batches, claimed, succeeded, retried, quarantined, not_called"
)

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


def note(connection: Connection, run_id: UUID, found: RunOutcomes, *, halted_by: str | None = None) -> None:
    """Add what became of some of the run's rows, in the transaction that writes them; the last statement of it.

    `halted_by` tells the runner that the pass is over (G3).
    """
    values = {
        "id": run_id,
        "succeeded": found.succeeded,
        "retried": found.retried,
        "quarantined": found.quarantined,
        "not_called": found.not_called,
        "halted_by": halted_by,
    }
    connection.execute(_NOTE, values)


def last_result(connection: Connection) -> RunResult | str | None:
    """How the last run ended that held the lock, whichever scheduler's it was; None for none, or one under way."""
    found = connection.execute(_LAST_RESULT).scalar()
    return known(RunResult, found) if found else None


def end(
    connection: Connection,
    *,
    run_id: UUID,
    result: RunResult,
    batches: int,
    claimed: int,
    now: datetime,
) -> RunOutcomes:
    """Write the run's end; answers what became of its rows so far. A run without a row has none."""
    row = connection.execute(
        _END,
        {
            "id": run_id,
            "now": now,
            "result": result.value,
            "batches": batches,
            "claimed": claimed,
        },
    ).one_or_none()
    return RunOutcomes(*row) if row else RunOutcomes()


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
