"""`pin quarantine`: what an operator does about entries the job has given up (J29, G21), on `pin.operations`."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

import rich_click as click

from pin.cli.faults import FAILED, USAGE, Fault, told_plainly

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from db.quarantine import QuarantinedEntry

Row = dict[str, str | int | None]


@click.group()
def quarantine() -> None:
    """List quarantined entries, and give them back to the job."""


@quarantine.command("list")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table", show_default=True)
def list_(limit: int, output: str) -> None:
    """Print the quarantined entries, longest quarantined first, with the last error of each."""
    from pin.operations import list_quarantined

    with _database() as engine:
        found = list_quarantined(engine, limit=limit + 1)
    rows = [_row(entry) for entry in found[:limit]]
    _WRITERS[output](rows)
    if not rows:
        click.echo("nothing is quarantined", err=True)
    if len(found) > limit:
        click.echo(f"there are more than these {limit}: see --limit", err=True)


@quarantine.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", required=True, metavar="TEXT", help="Why; kept in the audit.")
@click.option("--actor", metavar="NAME", help="Who; kept in the audit. Your user name unless given.")
@click.option("--yes", is_flag=True, help="Do not ask, though it is more than one.")
def requeue(ids: Sequence[str], reason: str, actor: str | None, yes: bool) -> None:
    """Give quarantined entries back to the job: Pending, attempts 0, due now.

    Prints an answer for each id; ends with 0 if every one of them was re-enqueued, with 1 if any was not. What is not
    quarantined stays as it is.
    """
    from pin.clock import utc_now
    from pin.operations import RequeueResult
    from pin.operations import requeue as move

    wanted = _ids(ids)
    if len(wanted) > 1 and not yes:
        _ask(len(wanted))
    with _database() as engine:
        try:
            answers = move(engine, wanted, actor=actor if actor is not None else _user(), reason=reason, now=utc_now())
        except ValueError as error:
            raise Fault(str(error), USAGE) from None
    for answer in answers:
        match answer.result:
            case RequeueResult.REQUEUED:
                told = "requeued"
            case RequeueResult.NOT_QUARANTINED:
                told = f"not quarantined, it is {answer.status}: unchanged"
            case RequeueResult.UNKNOWN:
                told = "unknown"
        click.echo(f"{answer.entry_id}  {told}")
    done = sum(answer.result is RequeueResult.REQUEUED for answer in answers)
    click.echo(f"{done} of {len(answers)} requeued", err=True)
    sys.exit(0 if done == len(answers) else FAILED)


@contextmanager
def _database() -> "Iterator[Engine]":
    from db.engine import make_engine
    from pin.settings import load_settings
    from pin.stack.local import database_url

    with told_plainly():
        engine = make_engine(database_url(load_settings()), pool_size=1, application_name="pin-cli")
        try:
            yield engine
        finally:
            engine.dispose()


def _ids(given: Sequence[str]) -> list[UUID]:
    """The ids, each once. Raises Fault naming every one that is none, before anything is done."""
    found: dict[UUID, None] = {}
    bad: list[str] = []
    for text in given:
        try:
            found[UUID(text)] = None
        except ValueError:
            bad.append(repr(text))
    if bad:
        raise Fault(f"no id of an entry: {', '.join(bad)}; nothing was done", USAGE)
    return list(found)


def _ask(count: int) -> None:
    if not sys.stdin.isatty():
        raise Fault(f"{count} entries and no terminal to ask on: say --yes; nothing was done", USAGE)
    if not click.confirm(f"Requeue {count} entries?", err=True):
        raise Fault("nothing was done")


def _user() -> str:
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as containers have
        return f"uid {os.getuid()}"


def _row(found: "QuarantinedEntry") -> Row:
    entry = found.entry
    return {
        "id": str(entry.id),
        "snapshotId": str(entry.snapshot_id),
        "postId": str(entry.post_id),
        "reason": str(entry.reason),
        "attempts": entry.attempts,
        "lastError": found.last_error,
        "createdAt": entry.created_at.isoformat(),
        "quarantinedAt": found.updated_at.isoformat(),
    }


def _write_table(rows: Sequence[Row]) -> None:
    """Columns as wide as they need: an id that is cut is no id. Text from outside is made inert (A22)."""
    if not rows:
        return
    table = [list(rows[0]), *([_inert(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for number, cells in enumerate(table):
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        click.secho(line, bold=number == 0)


def _inert(value: str | int | None) -> str:
    text = "-" if value is None else str(value)
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _write_json(rows: Sequence[Row]) -> None:
    click.echo(json.dumps(list(rows), indent=2))


def _write_jsonl(rows: Sequence[Row]) -> None:
    for row in rows:
        click.echo(json.dumps(row))


_WRITERS: dict[str, Callable[[Sequence[Row]], None]] = {
    "table": _write_table,
    "json": _write_json,
    "jsonl": _write_jsonl,
}
