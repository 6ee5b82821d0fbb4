"""Rows as the job and the operators leave them, put there by hand."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from pin.clock import new_id

_ENTRY = text("""
    INSERT INTO news.snapshot_detach_outbox
        (id, snapshot_id, post_id, reason, requested_by_user_id, attempts, next_attempt_at, status, last_error, version,
         outcome_due, created_at, updated_at)
    VALUES (:id, :snapshot_id, :post_id, :reason, :user, :attempts, :due, :status, :error, :version, :outcome_due,
        :created, :updated)
""")

_ATTEMPT = text("""
    INSERT INTO news.snapshot_detach_attempt
        (entry_id, entry_version, attempt, run_id, outcome, error, http_status, duration_ms, worker, trace_id,
         recorded_at)
    VALUES (:entry, :version, :attempt, :run, :outcome, :error, :http_status, 37, 'worker-1:4711', :trace, :at)
""")

_RUN = text("""
    INSERT INTO news.snapshot_detach_run
        (id, runner, started_at, ended_at, result, batches, claimed, succeeded, retried, quarantined)
    VALUES (:id, 'host-a:812', :started, :ended, :result, :batches, :claimed, :succeeded, :retried, :quarantined)
""")


def entry(connection: Connection, now: datetime, **changed: Any) -> UUID:
    """An entry, Pending and due unless told; `age` is a timedelta. Answers its id."""
    age = changed.pop("age", timedelta(minutes=1))
    row = {
        "id": new_id(),
        "snapshot_id": new_id(),
        "post_id": new_id(),
        "reason": "BlockReplaced",
        "user": new_id(),
        "attempts": 1,
        "due": now,
        "status": "Pending",
        "error": None,
        "version": 1,
        "outcome_due": False,
        "created": now - age,
        "updated": now - age / 2,
    } | changed
    connection.execute(_ENTRY, row)
    return UUID(str(row["id"]))


def entries(connection: Connection, now: datetime, count: int, **changed: Any) -> list[UUID]:
    """So many entries, each a second older than the one before."""
    age = changed.pop("age", timedelta(minutes=1))
    return [entry(connection, now, age=age + timedelta(seconds=number), **changed) for number in range(count)]


def attempts(connection: Connection, entry_id: UUID, outcomes: Sequence[tuple[str, str | None, datetime]]) -> None:
    """The entry's history: (outcome, error, when) of each attempt."""
    for number, (outcome, error, at) in enumerate(outcomes, start=1):
        status = 200 if outcome == "Succeeded" else 503
        connection.execute(
            _ATTEMPT,
            {
                "entry": entry_id,
                "version": number,
                "attempt": number,
                "run": None,
                "outcome": outcome,
                "error": error,
                "http_status": status,
                "trace": "0af7651916cd43dd8448eb211c80319c",
                "at": at,
            },
        )


def run(connection: Connection, started: datetime, *, result: str = "Completed", claimed: int = 0) -> UUID:
    """A tick of 2 seconds."""
    run_id = new_id()
    connection.execute(
        _RUN,
        {
            "id": run_id,
            "started": started,
            "ended": started if result == "Skipped" else started + timedelta(seconds=2),
            "result": result,
            "batches": 1 if claimed else 0,
            "claimed": claimed,
            "succeeded": claimed,
            "retried": 0,
            "quarantined": 0,
        },
    )
    return run_id
