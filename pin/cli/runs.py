"""`pin runs` and `pin run --once`: the job's ticks, and one tick now."""

import signal
import sys
import threading
from typing import Any
from uuid import UUID

import rich_click as click

from pin.cli.changing import refused_in_words
from pin.cli.faults import FAILED, Fault, told_plainly
from pin.cli.opening import database, ids_of, settings_here
from pin.cli.output import emit, emit_one, output_option, plain, row_of


@click.group()
def runs() -> None:
    """List the job's ticks, and see what came of one."""


@runs.command("list")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
@click.option("--after", metavar="KEY", help="The next page, by the key that the last one gave.")
@click.option("--no-skipped", is_flag=True, help="Without ticks that met the lock held elsewhere.")
@output_option
def list_(limit: int, after: str | None, no_skipped: bool, output: str) -> None:
    """Print the ticks, newest first. One without an end is under way, or its process died."""
    from pin.operations.runs import list_runs

    with database() as engine, refused_in_words():
        page = list_runs(engine, skipped=not no_skipped, after=after, limit=limit)
    emit([row_of(one) for one in page.runs], output)
    if page.next:
        click.echo(f"more: --after {page.next}", err=True)


@runs.command()
@click.argument("run_id", metavar="ID")
@output_option
def show(run_id: str, output: str) -> None:
    """Print one tick and its last attempts."""
    from pin.operations.runs import show_run

    (wanted,) = ids_of([run_id], "a run")
    with database() as engine:
        found = show_run(engine, wanted)
    if found is None:
        raise Fault("there is no such run")
    if output == "table":
        emit_one(row_of(found.run), output)
        click.echo()
        emit([row_of(one) for one in found.attempts], output)
    else:
        emit_one(row_of(found.run) | {"attempts": plain(found.attempts)}, output)


@click.command()
@click.option("--once", is_flag=True, help="Needed: this is one tick, not the scheduler.")
@output_option
def run(once: bool, output: str) -> None:
    """Make one tick of the job now, with the scheduler's own lock: skipped while another runs.

    Workers make the calls, as ever. Ends with 0 when the run was successful, with 1 otherwise.
    """
    if not once:
        raise click.UsageError("Say --once for one tick now; the scheduler is `pin scheduler`.")
    summary = _tick()
    emit_one(summary, output)
    sys.exit(0 if summary["result"] in {"Completed", "OutOfTime"} else FAILED)


def _tick() -> dict[str, Any]:
    from db.runner.lock import PoolerError, refuse_transaction_pooler
    from pin.telemetry.logs import configure_logging

    with told_plainly():
        settings = settings_here()
        configure_logging(log_format="console", level=settings.log.level, process="scheduler")
        try:
            refuse_transaction_pooler(settings.database_url)
        except PoolerError as error:
            raise Fault(str(error)) from None
        from pin.job import tick
        from scheduler import make_job

        stopping = threading.Event()
        before = {
            number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)
        }
        job = make_job(settings)
        try:
            done = tick.run(job, stopping)
        finally:
            job.engine.dispose()
            for number, handler in before.items():
                signal.signal(number, handler)
    outcomes = done.outcomes
    run_id: UUID = done.run_id
    return {
        "id": run_id,
        "result": done.result.value,
        "claimed": done.claimed,
        "succeeded": outcomes.succeeded,
        "retried": outcomes.retried,
        "quarantined": outcomes.quarantined,
        "notCalled": outcomes.not_called,
    }
