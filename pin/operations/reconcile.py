"""Compare what live posts show with what selections says of the snapshots; mend orphans by ordinary intents (D15, D17).

    Missing         a live post shows a snapshot that selections does not have
    WronglyDetached a live post shows a snapshot that is Detached
    Orphaned        a snapshot is Active, no live post shows it, and no intent is under way

What is under way looks wrong for a moment, so each finding is looked at twice: news and selections are asked once more,
and only what both say again is reported.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from time import monotonic
from uuid import UUID

from sqlalchemy import Engine

from db.outbox import intents
from db.outbox.intents import Intent
from db.views import reconcile as store
from pin.clock import new_id
from pin.operations import audit
from pin.outgoing.selections import SelectionsClient
from pin.rules.contract import Reason, SnapshotStatus

PAGE = 500
CALLS = timedelta(seconds=30)
"""How long one page's calls to selections may take together."""


class FindingKind(StrEnum):
    """What is wrong with a snapshot."""

    MISSING = "Missing"
    WRONGLY_DETACHED = "WronglyDetached"
    ORPHANED = "Orphaned"


class Repair(StrEnum):
    """What was done about an orphan."""

    STAGED = "Staged"
    """An intent was staged: the job detaches it."""
    SHOWN_MEANWHILE = "ShownMeanwhile"
    """Under the post's lock a live post shows it: nothing was done."""
    UNDER_WAY = "UnderWay"
    """It has an active intent by now."""
    NO_POST = "NoPost"
    """News knows no post of it, so that there is no row to hold and nobody in whose name to ask."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One snapshot on which the two sides disagree. `repair` is None where nothing was tried."""

    kind: FindingKind
    snapshot_id: UUID
    post_id: UUID | None
    detached_at: datetime | None = None
    repair: Repair | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """One page's result: how many snapshots selections has there, how many live posts show, and what is wrong."""

    snapshots: int
    shown: int
    findings: tuple[Finding, ...]


def compare(engine: Engine, client: SelectionsClient, *, page: int = PAGE) -> Iterator[Compared]:
    """Page through all snapshots, both sides in the order of ids, and report what disagrees; changes nothing.

    Raises pin.outgoing.selections.SelectionsUnavailable: what was yielded until then holds.
    """
    after: UUID | None = None
    while True:
        listed = client.list_snapshots(after=after, limit=page, deadline=_deadline())
        upto = listed.next
        by_id = {one.snapshot_id: one for one in listed.snapshots}
        showing, lower = 0, after
        suspects: dict[UUID, UUID | None] = {}
        shown_ids: set[UUID] = set()
        while True:
            with engine.connect() as connection:
                shown = store.shown(connection, after=lower, upto=upto, limit=page)
            showing += len(shown)
            for one in shown:
                shown_ids.add(one.snapshot_id)
                found = by_id.get(one.snapshot_id)
                if found is None or found.status == SnapshotStatus.DETACHED:
                    suspects[one.snapshot_id] = one.post_id
            if len(shown) < page:
                break
            lower = shown[-1].snapshot_id
        active = [one.snapshot_id for one in listed.snapshots if one.status == SnapshotStatus.ACTIVE]
        unshown = [one for one in active if one not in shown_ids]
        if unshown:
            with engine.connect() as connection:
                for snapshot_id, facts in store.known(connection, unshown).items():
                    if facts.active is None:
                        suspects[snapshot_id] = facts.post_id
        findings = tuple(_looked_at_again(engine, client, suspects)) if suspects else ()
        yield Compared(len(listed.snapshots), showing, findings)
        if upto is None:
            return
        after = upto


def _looked_at_again(engine: Engine, client: SelectionsClient, suspects: dict[UUID, UUID | None]) -> Iterator[Finding]:
    """Selections, then news once more: what was shown before and is shown now was shown throughout (G14)."""
    there = client.find_snapshots(suspects, deadline=_deadline())
    with engine.connect() as connection:
        known = store.known(connection, list(suspects))
        for snapshot_id in sorted(suspects):
            snapshot, facts = there[snapshot_id], known[snapshot_id]
            shown = store.is_shown(connection, snapshot_id)
            if kind := judge(snapshot.status if snapshot else None, shown=shown, active=facts.active is not None):
                detached_at = snapshot.detached_at if snapshot else None
                yield Finding(kind, snapshot_id, facts.post_id or suspects[snapshot_id], detached_at)


def judge(status: str | None, *, shown: bool, active: bool) -> FindingKind | None:
    """What is wrong with a snapshot, None for nothing. `status` None: selections has no such one.

    `shown`: by a live post's current version; `active`: an intent that is not Done exists.
    """
    if shown:
        if status is None:
            return FindingKind.MISSING
        return FindingKind.WRONGLY_DETACHED if status == SnapshotStatus.DETACHED else None
    return FindingKind.ORPHANED if status == SnapshotStatus.ACTIVE and not active else None


def repair(engine: Engine, findings: Sequence[Finding], *, actor: str, reason: str, now: datetime) -> list[Finding]:
    """Stage an intent for each orphan, one transaction each, under its post's lock; answers the findings with `repair`.

    The transaction holds the post's row and finds there again that no live post shows the snapshot (G14, G15). The
    other kinds cannot be mended by a detach and come back as they were. Raises ValueError without actor or reason.
    """
    audit.need(actor, reason)
    return [
        Finding(
            one.kind,
            one.snapshot_id,
            one.post_id,
            one.detached_at,
            _mend(engine, one, actor, reason, now) if one.kind is FindingKind.ORPHANED else None,
        )
        for one in findings
    ]


def _mend(engine: Engine, finding: Finding, actor: str, reason: str, now: datetime) -> Repair:
    if finding.post_id is None:
        return Repair.NO_POST
    with engine.begin() as connection:
        owner = store.lock_owner(connection, finding.post_id)
        if owner is None:
            return Repair.NO_POST
        if store.is_shown(connection, finding.snapshot_id):
            return Repair.SHOWN_MEANWHILE
        why = Reason.POST_DELETED if owner.status == "Archived" else Reason.BLOCK_REPLACED
        intent = Intent(new_id(), finding.snapshot_id, finding.post_id, why, owner.author_id, due_at=now)
        if not intents.stage(connection, [intent], now):
            return Repair.UNDER_WAY
        audit.record(
            connection,
            actor=actor,
            action="reconcile",
            reason=reason,
            now=now,
            details={"postId": str(finding.post_id), "intentReason": why.value},
            entry_id=intent.id,
            snapshot_id=finding.snapshot_id,
        )
    return Repair.STAGED


def _deadline() -> float:
    return monotonic() + CALLS.total_seconds()
