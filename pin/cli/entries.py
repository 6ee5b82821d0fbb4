"""`pin entries`: search the entries, and see one's life."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import rich_click as click

from pin.cli.changing import refused_in_words
from pin.cli.faults import Fault, told_plainly
from pin.cli.opening import database, ids_of, settings_here
from pin.cli.output import emit, emit_one, inert, output_option, plain, row_of, shown_time

if TYPE_CHECKING:
    from db.views.entries import StoredEntry
    from pin.operations.entries import EntryLife


@click.group()
def entries() -> None:
    """Search the entries of the outbox, and see how one came to where it is."""


@entries.command("list")
@click.argument("query", nargs=-1, metavar="[TOKEN]...")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
@click.option("--after", metavar="KEY", help="The next page, by the key that the last one gave.")
@output_option
def list_(query: Sequence[str], limit: int, after: str | None, output: str) -> None:
    """Print the entries that the search line finds, newest first.

    Tokens: state:Pending post:ID snapshot:ID id:ID error:TEXT reason:PostDeleted age:>5m kind:guard; an ID by itself is
    looked for as entry, snapshot and post.
    """
    from pin.clock import utc_now
    from pin.operations.entries import COUNT_UP_TO, search

    with database() as engine, refused_in_words():
        page = search(engine, " ".join(_quoted(one) for one in query), now=utc_now(), after=after, limit=limit)
    emit([entry_row(one) for one in page.entries], output)
    counts = ", ".join(
        f"{COUNT_UP_TO}+ {state}" if count > COUNT_UP_TO else f"{count} {state}" for state, count in page.counts.items()
    )
    click.echo(counts, err=True)
    if page.next:
        click.echo(f"more: --after {page.next}", err=True)


@entries.command()
@click.argument("entry_id", metavar="ID")
@output_option
def show(entry_id: str, output: str) -> None:
    """Print one entry, its life as a timeline, and what comes next."""
    from pin.clock import utc_now
    from pin.operations.entries import show as read

    (wanted,) = ids_of([entry_id])
    with told_plainly():
        settings = settings_here()
    with database(settings) as engine:
        life = read(engine, wanted, now=utc_now(), retry=settings.retry)
    if life is None:
        raise Fault("there is no such entry")
    _print(life, output)


def entry_row(stored: "StoredEntry") -> dict[str, Any]:
    """An entry as commands print it."""
    entry = stored.entry
    return {
        "id": entry.id,
        "snapshotId": entry.snapshot_id,
        "postId": entry.post_id,
        "reason": str(entry.reason),
        "status": str(entry.status),
        "attempts": entry.attempts,
        "isGuard": entry.is_guard,
        "lastError": stored.last_error,
        "createdAt": entry.created_at,
        "nextAttemptAt": entry.next_attempt_at,
        "updatedAt": stored.updated_at,
    }


def _print(life: "EntryLife", output: str) -> None:
    if output != "table":
        timeline = [_moment(row_of(moment)) for moment in life.timeline]
        emit_one(entry_row(life.stored) | {"timeline": timeline, "next": plain(life.next)}, output)
        return
    emit_one(entry_row(life.stored), output)
    click.echo()
    for moment in life.timeline:
        attempt = moment.attempt
        at = shown_time(moment.at) if moment.at else "?".ljust(20)
        where = ""
        if attempt is not None:
            run = f", run {attempt.run_id}" if attempt.run_id else ""
            trace = f", trace {attempt.trace_id}" if attempt.trace_id else ""
            where = f"  [{attempt.worker}{run}{trace}]"
        click.echo(f"{at}  {moment.kind.value.ljust(11)}  {inert(moment.says + where)}")
    click.echo()
    when = f" ({shown_time(life.next.at)})" if life.next.at else ""
    click.echo(f"next: {inert(life.next.says)}{when}")


def _moment(row: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in row.items() if value is not None}


def _quoted(token: str) -> str:
    """A token of the shell's with a space in it, as the search line writes it."""
    name, colon, value = token.partition(":")
    return f'{name}:"{value}"' if colon and " " in value and '"' not in value else token
