"""What each side says about one post or one snapshot, and whether they agree (D15)."""

from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from uuid import UUID

from sqlalchemy import Engine

from db.views import entries
from db.views import reconcile as store
from db.views.entries import StoredEntry
from db.views.reconcile import PostFacts, Showing
from pin.outgoing.selections import SelectionsClient, SelectionsUnavailable
from pin.rules.contract import Snapshot, SnapshotStatus
from pin.rules.outbox import Status

CALLS = timedelta(seconds=5)
ENTRIES = 200


@dataclass(frozen=True, slots=True)
class SnapshotSides:
    """One snapshot. `there` is None where selections has no such one or did not answer (`is_known` tells which).

    `agrees` is None where selections did not answer; `says` is one sentence.
    """

    snapshot_id: UUID
    shown_by: tuple[Showing, ...]
    entries: tuple[StoredEntry, ...]
    there: Snapshot | None
    is_known: bool
    agrees: bool | None
    says: str


@dataclass(frozen=True, slots=True)
class PostSides:
    """One post: what it shows or has shown, newest version first, each snapshot with what selections says of it."""

    post_id: UUID
    post: PostFacts
    snapshots: tuple[SnapshotSides, ...]
    agrees: bool | None


def show_snapshot(engine: Engine, client: SelectionsClient, snapshot_id: UUID) -> SnapshotSides:
    """Both sides' word on a snapshot; also for an id that neither knows."""
    return _sides(engine, client, [snapshot_id])[0]


def show_post(engine: Engine, client: SelectionsClient, post_id: UUID) -> PostSides | None:
    """Both sides' word on a post's snapshots, those of its intents as well; None for an unknown post without any."""
    with engine.connect() as connection:
        post = store.post_facts(connection, post_id)
        blocks = store.post_snapshots(connection, post_id)
        intents = entries.of_post(connection, post_id, ENTRIES)
    if post is None and not intents:
        return None
    ordered = [block.snapshot_id for block in reversed(blocks)] + [one.entry.snapshot_id for one in intents]
    sides = _sides(engine, client, list(dict.fromkeys(ordered)))
    words = {side.agrees for side in sides}
    agrees = False if False in words else None if None in words else True
    return PostSides(post_id, post or PostFacts("NeverWritten", 0, ""), tuple(sides), agrees)


def _sides(engine: Engine, client: SelectionsClient, ids: list[UUID]) -> list[SnapshotSides]:
    # Selections first: what changes meanwhile has its intent already.
    there: dict[UUID, Snapshot | None] = {}
    try:
        there = client.find_snapshots(ids, deadline=monotonic() + CALLS.total_seconds())
    except SelectionsUnavailable as away:
        trouble = str(away)
    else:
        trouble = ""
    found: list[SnapshotSides] = []
    with engine.connect() as connection:
        for snapshot_id in ids:
            shown_by = store.showing(connection, snapshot_id)
            intents = entries.of_snapshot(connection, snapshot_id, ENTRIES)
            shown = any(one.is_current and one.status != "Archived" for one in shown_by)
            is_known, snapshot = snapshot_id in there, there.get(snapshot_id)
            if is_known:
                agrees, says = agree(snapshot, shown=shown, intents=intents)
            else:
                agrees, says = None, f"selections did not answer: {trouble}"
            sides = SnapshotSides(snapshot_id, tuple(shown_by), tuple(intents), snapshot, is_known, agrees, says)
            found.append(sides)
    return found


def agree(snapshot: Snapshot | None, *, shown: bool, intents: list[StoredEntry]) -> tuple[bool, str]:
    """Whether the two sides agree, and a sentence on it. What is on its way to agree, agrees."""
    active = next((one for one in intents if one.entry.status != Status.DONE), None)
    state = "does not exist" if snapshot is None else f"is {snapshot.status}"
    if shown:
        if snapshot is not None and snapshot.status == SnapshotStatus.ACTIVE:
            return True, "A live post shows it and it is Active."
        return False, f"A live post shows it, but in selections it {state}."
    if snapshot is None or snapshot.status == SnapshotStatus.DETACHED:
        return True, f"No live post shows it and in selections it {state}."
    if active is None:
        return False, "No live post shows it, it is Active, and no intent is under way: an orphan (pin reconcile)."
    if active.entry.status == Status.QUARANTINED:
        return False, f"No live post shows it, it is Active, and its intent is Quarantined: {active.last_error}."
    return True, "No live post shows it and it is Active still; its intent is under way."
