"""Two sides compared, and an orphan mended by an ordinary intent."""

from collections.abc import Callable
from threading import Thread
from uuid import UUID

import pytest
from sqlalchemy import text

from pin.clock import new_id, utc_now
from pin.operations import audit, reconcile, subject
from pin.operations.reconcile import Finding, FindingKind, Repair
from pin.outgoing.selections import SelectionsClient, SelectionsUnavailable
from pin.rules.contract import SnapshotStatus
from tests.job.scene import stage
from tests.news.world import World, embed, keep, words
from tests.waiting import eventually


def found(world: World, client: SelectionsClient, page: int = 2) -> dict[UUID, Finding]:
    compared = list(reconcile.compare(world.engine, client, page=page))
    return {finding.snapshot_id: finding for one in compared for finding in one.findings}


def active(world: World) -> UUID:
    """An Active snapshot that no block shows and no intent names."""
    snapshot_id = new_id()
    world.execute(
        """INSERT INTO selections.snapshot (id, status, selection_id, content, created_at, updated_at)
           VALUES (:id, 'Active', :id, jsonb_build_object(
               'selectionId', CAST(:id AS uuid), 'title', 't', 'items', jsonb_build_array(), 'takenAt', now()
           ), now(), now())""",
        id=snapshot_id,
    )
    return snapshot_id


def orphan(world: World, post_id: str) -> UUID:
    """An Active snapshot that an old version of the post shows, whose intent is lost."""
    snapshot_id = active(world)
    world.execute(
        """INSERT INTO news.post_block (post_id, version, position, kind, snapshot_id)
           VALUES (:post, 1, 99, 'SelectionEmbed', :id)""",
        post=post_id,
        id=snapshot_id,
    )
    return snapshot_id


def mend(world: World, findings: list[Finding]) -> list[Finding]:
    return reconcile.repair(world.engine, findings, actor="ada", reason="drift", now=utc_now())


@pytest.mark.req("D15", "D17")
@pytest.mark.parametrize(
    ("status", "shown", "active", "kind"),
    [
        (SnapshotStatus.ACTIVE, True, False, None),
        (SnapshotStatus.DETACHED, True, False, FindingKind.WRONGLY_DETACHED),
        (None, True, False, FindingKind.MISSING),
        (SnapshotStatus.ACTIVE, False, False, FindingKind.ORPHANED),
        (SnapshotStatus.ACTIVE, False, True, None),
        (SnapshotStatus.DETACHED, False, False, None),
        (None, False, False, None),
    ],
)
def test_what_is_wrong(status: SnapshotStatus | None, shown: bool, active: bool, kind: FindingKind | None) -> None:
    assert reconcile.judge(status, shown=shown, active=active) is kind


@pytest.mark.req("D15", "D17", "G14")
def test_ordinary_life_leaves_nothing_to_report(world: World, client: SelectionsClient) -> None:
    selection = world.selection()
    post = world.post(embed(selection), embed(selection), words("w"))
    world.set(post, keep(post.snapshots[0]), embed(selection))
    world.delete(world.post(embed(selection)))
    stage(world.engine, [active(world)])  # its intent is under way
    compared = list(reconcile.compare(world.engine, client, page=2))
    assert [finding for one in compared for finding in one.findings] == []
    assert (sum(one.snapshots for one in compared), sum(one.shown for one in compared)) == (5, 2)
    assert len(compared) == 3


@pytest.mark.req("D15", "D17", "G15")
def test_each_kind_is_found_and_only_orphans_are_mended(world: World, client: SelectionsClient) -> None:
    selection = world.selection()
    first = world.post(embed(selection), embed(selection))
    post = world.set(first, keep(first.snapshots[0]), keep(first.snapshots[1]))
    wrong, missing = UUID(post.snapshots[0]), new_id()
    world.execute(
        """UPDATE selections.snapshot SET status = 'Detached', detached_at = now(), detach_reason = 'PostDeleted'
           WHERE id = :id""",
        id=wrong,
    )
    world.execute(
        """INSERT INTO news.post_block (post_id, version, position, kind, snapshot_id)
           VALUES (:post, 2, 98, 'SelectionEmbed', :id)""",
        post=post.id,
        id=missing,
    )
    stray, foreign = orphan(world, post.id), active(world)

    findings = found(world, client)

    assert {id_: one.kind for id_, one in findings.items()} == {
        wrong: FindingKind.WRONGLY_DETACHED,
        missing: FindingKind.MISSING,
        stray: FindingKind.ORPHANED,
        foreign: FindingKind.ORPHANED,
    }
    assert {findings[one].post_id for one in (wrong, missing, stray)} == {UUID(post.id)}
    assert world.intents() == []

    mended = {one.snapshot_id: one.repair for one in mend(world, list(findings.values()))}

    assert mended == {wrong: None, missing: None, stray: Repair.STAGED, foreign: Repair.NO_POST}
    (intent,) = world.intents()
    assert (intent.snapshot_id, intent.post_id, intent.reason) == (stray, UUID(post.id), "BlockReplaced")
    assert intent.requested_by_user_id == world.author
    (kept,) = audit.list_audit(world.engine).rows
    assert (kept.action, kept.entry_id, kept.snapshot_id) == ("reconcile", intent.id, stray)
    assert stray not in found(world, client)
    assert [one.repair for one in mend(world, [findings[stray]])] == [Repair.UNDER_WAY]


@pytest.mark.req("D17", "G14", "G15")
def test_a_repair_waits_for_the_posts_row_and_finds_what_is_shown_by_then(
    world: World, client: SelectionsClient
) -> None:
    post = world.post(words("w"))
    stray = orphan(world, world.set(post, words("v")).id)
    finding = found(world, client)[stray]
    answers: list[Finding] = []
    with world.engine.begin() as connection:
        connection.execute(text("SELECT FROM news.post WHERE id = :id FOR UPDATE"), {"id": post.id})
        mending = Thread(target=lambda: answers.extend(mend(world, [finding])))
        mending.start()
        waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        eventually(lambda: world.rows(waiting))
        connection.execute(text("UPDATE news.post_block SET version = 2 WHERE snapshot_id = :id"), {"id": stray})
    mending.join(20)
    assert [one.repair for one in answers] == [Repair.SHOWN_MEANWHILE]
    assert world.intents() == []


@pytest.mark.req("D15")
def test_selections_away_is_said_not_guessed_at(world: World, client_of: Callable[[str], SelectionsClient]) -> None:
    away = client_of("http://127.0.0.1:9")
    with pytest.raises(SelectionsUnavailable, match="NETWORK"):
        list(reconcile.compare(world.engine, away))
    sides = subject.show_snapshot(world.engine, away, new_id())
    assert (sides.agrees, sides.is_known) == (None, False)
    assert "did not answer: NETWORK" in sides.says


@pytest.mark.req("D15")
def test_both_sides_word_on_a_post_and_its_snapshots(world: World, client: SelectionsClient) -> None:
    selection = world.selection()
    first = world.post(embed(selection), embed(selection))
    post = world.set(first, keep(first.snapshots[0]))

    sides = subject.show_post(world.engine, client, UUID(post.id))

    assert sides is not None
    assert (sides.agrees, sides.post.status, sides.post.version) == (True, "Published", 2)
    kept, gone = sorted(sides.snapshots, key=lambda one: bool(one.entries))
    assert str(kept.snapshot_id) == first.snapshots[0]
    assert kept.says == "A live post shows it and it is Active."
    assert gone.there is not None
    assert gone.there.status == SnapshotStatus.DETACHED
    assert [stored.entry.status for stored in gone.entries] == ["Done"]

    stray = orphan(world, post.id)
    sides = subject.show_post(world.engine, client, UUID(post.id))
    assert sides is not None
    assert sides.agrees is False
    assert "an orphan" in next(one.says for one in sides.snapshots if one.snapshot_id == stray)
    assert subject.show_post(world.engine, client, new_id()) is None
    unknown = subject.show_snapshot(world.engine, client, new_id())
    assert (unknown.agrees, unknown.is_known, unknown.there) == (True, True, None)
