"""`pin status`: one sentence on how the job stands, and what it rests on (J29)."""

import sys
import threading
from typing import TYPE_CHECKING, Any

import rich_click as click

from pin.cli.faults import FAILED, Fault
from pin.cli.opening import database, settings_here
from pin.cli.output import emit_one, inert, output_option, plain, shown_time

if TYPE_CHECKING:
    from pin.config.settings import Settings
    from pin.operations.status import Status


@click.command()
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option("--interval", default=5.0, show_default=True, type=click.FloatRange(0.2, 3600), help="Seconds between.")
@output_option
def status(watch: bool, interval: float, output: str) -> None:
    """Say how the job stands, since when, and what to do.

    Ends with 0 when it delivers or drains, with 1 when it is stuck, held back, paused, or has no runner.
    """
    if watch:
        _watch(interval, output)
        return
    found = _read()
    _print(found, output)
    sys.exit(0 if found.verdict.kind.is_well else FAILED)


def _watch(interval: float, output: str) -> None:
    pause = threading.Event()
    try:
        while True:
            try:
                found = _read()
            except Fault as fault:
                click.echo(f"pin: {fault}", err=True)
            else:
                if output == "table":
                    click.clear()  # does nothing where stdout is no terminal
                _print(found, "jsonl" if output == "json" else output)
            pause.wait(interval)
    except KeyboardInterrupt:
        sys.exit(0)


def _read(settings: "Settings | None" = None) -> "Status":
    from pin.cli.faults import told_plainly
    from pin.clock import utc_now
    from pin.operations.status import read_status

    with told_plainly():
        used = settings or settings_here()
    with database(used) as engine:
        return read_status(engine, now=utc_now(), retry=used.retry, queue=used.queue)


def _print(found: "Status", output: str) -> None:
    if output != "table":
        record: dict[str, Any] = plain(found)
        emit_one(record, output)
        return
    from pin.operations.verdict import span

    verdict = found.verdict
    click.secho(inert(verdict.says), bold=True, fg=None if verdict.kind.is_well else "red")
    if verdict.advice:
        click.echo(inert(verdict.advice))
    if verdict.runbook:
        click.echo(f"runbook: docs/runbooks/{verdict.runbook}.md")
    lock, batches = found.lock, found.batches
    late = " (late)" if found.next_tick and found.next_tick < found.at and lock is None else ""
    answers = ", ".join(f"{answer.count} x {answer.error or 'success'}" for answer in found.answers)
    runs = ", ".join(f"{run.result or 'under way'}" for run in found.last_runs[:5])
    lines = {
        "pending": f"{found.pending} ({found.due} due, {found.overdue} older than {span(found.age_limit)})",
        "oldest": span(found.oldest_age) if found.pending else "-",
        "quarantined": str(found.quarantined),
        "delivered": f"{found.delivered_last_minute} in the last minute",
        "lock": f"{lock.runner or lock.application}, pid {lock.pid} on {lock.host}, {lock.held_seconds:.0f} s"
        if lock
        else "free",
        "next tick": f"{shown_time(found.next_tick)}{late}" if found.next_tick else "-",
        "last success": shown_time(found.last_success) if found.last_success else "-",
        "last runs": runs or "-",
        "batches": f"{batches.queued} queued, {batches.in_flight} in flight, {batches.expired} expired,"
        f" {batches.rejected} rejected",
        "answers": answers or "-",
    }
    click.echo()
    for name, text in lines.items():
        click.echo(f"{name.ljust(13)} {inert(text)}")
