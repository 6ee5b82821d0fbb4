"""`pin post`, `pin snapshot`, `pin audit`, `pin system`: what both sides say, who did what, and what runs here."""

import sys
from typing import TYPE_CHECKING, Any

import rich_click as click

from pin.cli.changing import refused_in_words
from pin.cli.faults import FAILED, Fault, told_plainly
from pin.cli.opening import database, ids_of, selections, settings_here
from pin.cli.output import emit, emit_one, output_option, plain, row_of

if TYPE_CHECKING:
    from pin.operations.subject import SnapshotSides


@click.group()
def post() -> None:
    """See a post's snapshots on both sides."""


@post.command("show")
@click.argument("post_id", metavar="ID")
@output_option
def show_post(post_id: str, output: str) -> None:
    """Print what news and selections say of each snapshot of a post; ends with 1 unless they agree."""
    from pin.operations.subject import show_post as read

    (wanted,) = ids_of([post_id], "a post")
    with told_plainly():
        settings = settings_here()
    with database(settings) as engine, selections(settings) as client:
        found = read(engine, client, wanted)
    if found is None:
        raise Fault("there is no such post")
    emit([_sides(one) for one in found.snapshots], output)
    click.echo(f"the post is {found.post.status}, version {found.post.version}; {_word(found.agrees)}", err=True)
    sys.exit(0 if found.agrees else FAILED)


@click.group()
def snapshot() -> None:
    """See a snapshot on both sides."""


@snapshot.command("show")
@click.argument("snapshot_id", metavar="ID")
@output_option
def show_snapshot(snapshot_id: str, output: str) -> None:
    """Print what news and selections say of a snapshot; ends with 1 unless they agree."""
    from pin.operations.subject import show_snapshot as read

    (wanted,) = ids_of([snapshot_id], "a snapshot")
    with told_plainly():
        settings = settings_here()
    with database(settings) as engine, selections(settings) as client:
        found = read(engine, client, wanted)
    emit_one(_sides(found), output)
    sys.exit(0 if found.agrees else FAILED)


@click.group()
def audit() -> None:
    """See who did what to which entries, and why."""


@audit.command("list")
@click.option("--action", metavar="NAME", help="Only this action, such as requeue or pause.")
@click.option("--actor", metavar="NAME", help="Only what this one did.")
@click.option("--entry", metavar="ID", help="Only what was done to this entry.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
@click.option("--after", metavar="KEY", help="The next page, by the key that the last one gave.")
@output_option
def list_audit(
    action: str | None, actor: str | None, entry: str | None, limit: int, after: str | None, output: str
) -> None:
    """Print the audit, newest first."""
    from pin.operations.audit import list_audit as read

    wanted = ids_of([entry])[0] if entry else None
    with database() as engine, refused_in_words():
        page = read(engine, action=action, actor=actor, entry_id=wanted, after=after, limit=limit)
    emit([row_of(one) for one in page.rows], output)
    if page.next:
        click.echo(f"more: --after {page.next}", err=True)


@click.command()
@output_option
def system(output: str) -> None:
    """Print versions, schema, sessions, table sizes and the oldest transaction; settings are `pin config show`."""
    from pin.operations.system import read_system

    with told_plainly():
        settings = settings_here()
    with database(settings) as engine:
        found = read_system(engine, settings)
    record: dict[str, Any] = {name: value for name, value in row_of(found).items() if name != "settings"}
    if output != "table":
        emit_one(record | {"settings": dict(found.settings)}, output)
        return
    emit_one({"schema": found.schema, "schemaKnown": found.schema_known} | found.versions, output)
    for rows in (found.sessions, found.tables, [found.oldest_transaction] if found.oldest_transaction else []):
        click.echo()
        emit([row_of(one) for one in rows], output)


def _sides(found: "SnapshotSides") -> dict[str, Any]:
    there = found.there
    current = next((one for one in found.shown_by if one.is_current and one.status != "Archived"), None)
    return {
        "snapshotId": found.snapshot_id,
        "agrees": found.agrees,
        "status": there.status if there else None,
        "detachedAt": there.detached_at if there else None,
        "detachReason": str(there.detach_reason) if there and there.detach_reason else None,
        "shownByPost": current.post_id if current else None,
        "entries": [{"id": str(one.entry.id), "status": plain(one.entry.status)} for one in found.entries],
        "says": found.says,
    }


def _word(agrees: bool | None) -> str:
    return {True: "both sides agree", False: "the two sides disagree", None: "selections did not answer"}[agrees]
