"""Is it all as it must be? Each check answers what is wrong, in words; nothing found is the proof."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from pin.demo.api import Api, RefusedError
from pin.demo.story import Ledger, Written
from pin.rules.contract import SNAPSHOT_PATH

T = TypeVar("T")

_SNAPSHOTS = text("""
    SELECT s.id, s.status, s.detach_reason, e.reason AS event_reason,
        (SELECT count(*) FROM selections.snapshot_detached_event n WHERE n.snapshot_id = s.id) AS events
    FROM selections.snapshot s LEFT JOIN selections.snapshot_detached_event e ON e.snapshot_id = s.id
    WHERE s.status <> 'Tombstone'
""")

# Said once more without the ledger, from the two contexts' own tables.
_ASTRAY = text("""
    SELECT s.id, s.status, shown.id IS NOT NULL AS is_shown FROM selections.snapshot s LEFT JOIN (
        SELECT DISTINCT b.snapshot_id AS id FROM news.post p
        JOIN news.post_block b ON b.post_id = p.id AND b.version = p.version
        WHERE p.status <> 'Archived' AND b.snapshot_id IS NOT NULL
    ) shown ON shown.id = s.id
    WHERE s.status <> 'Tombstone' AND (s.status = 'Active') <> (shown.id IS NOT NULL)
""")

_PENDING = text("SELECT count(*) FROM news.snapshot_detach_outbox WHERE status = 'Pending'")

_QUARANTINED = text("""
    SELECT o.snapshot_id, o.last_error, e.last_error AS event_error, e.alerted_at
    FROM news.snapshot_detach_outbox o
    LEFT JOIN news.snapshot_detach_quarantined_event e ON e.entry_id = o.id
    WHERE o.status = 'Quarantined'
""")

_LAG = text("""
    SELECT coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM updated_at - created_at)), 0)
    FROM news.snapshot_detach_outbox WHERE status = 'Done'
""")

_RETRIED = text("SELECT count(*) FROM news.snapshot_detach_attempt WHERE run_id IS NOT NULL AND outcome = 'Retried'")

_ALERTED = text("""
    SELECT count(*) > 0 AND count(*) = count(alerted_at) FROM news.snapshot_detach_quarantined_event
""")

_DETACHED = text("SELECT count(*) FROM selections.snapshot WHERE status = 'Detached'")


@dataclass(frozen=True, slots=True)
class Figures:
    """The last line's figures. `lag_p99` is in seconds, from staging to Done."""

    detached: int
    quarantined: int
    pending: int
    lag_p99: float

    def __str__(self) -> str:
        return (
            f"detached={self.detached} quarantined={self.quarantined} pending={self.pending} lag_p99={self.lag_p99:.2f}"
        )


def figures(connection: Connection) -> Figures:
    """As the database has them now."""
    return Figures(
        detached=connection.execute(_DETACHED).scalar_one(),
        quarantined=len(connection.execute(_QUARANTINED).all()),
        pending=pending(connection),
        lag_p99=float(connection.execute(_LAG).scalar_one()),
    )


def pending(connection: Connection) -> int:
    """The backlog: intents that wait, guards included."""
    return int(connection.execute(_PENDING).scalar_one())


def retried(connection: Connection) -> int:
    """Attempts of the job that failed and left their intent Pending."""
    return int(connection.execute(_RETRIED).scalar_one())


def alerted(connection: Connection) -> bool:
    """There are quarantine events, and the alert of each is raised."""
    return bool(connection.execute(_ALERTED).scalar_one())


def read(engine: Engine, look: Callable[[Connection], T]) -> T:
    """One look, on a connection of its own."""
    with engine.connect() as connection:
        return look(connection)


def wrong_snapshots(connection: Connection, ledger: Ledger) -> Iterator[str]:
    """Shown and Active, or not shown, Detached with the deed's reason, and one event (J21, D6, D7, D17)."""
    found = {row.id: row for row in connection.execute(_SNAPSHOTS)}
    for snapshot, reason in ledger.snapshots.items():
        row = found.pop(snapshot, None)
        if row is None:
            yield f"snapshot {snapshot} is missing"
        elif reason is None and (row.status, row.events) != ("Active", 0):
            yield f"snapshot {snapshot} is shown, and is {row.status} with {row.events} events"
        elif reason is not None:
            expected = ("Detached", reason.value, reason.value, 1)
            actual = (row.status, row.detach_reason, row.event_reason, row.events)
            if actual != expected:
                yield f"snapshot {snapshot} is {actual}, not {expected}"
    for snapshot, row in found.items():
        if row.status == "Active":
            yield f"snapshot {snapshot} is Active, and nobody asked for it"
    for row in connection.execute(_ASTRAY):
        yield f"snapshot {row.id} is {row.status}, and {'a' if row.is_shown else 'no'} block of a live post shows it"


def wrong_quarantine(connection: Connection, bad: UUID) -> Iterator[str]:
    """The impossible intent, and nothing else, is quarantined, with its event and its alert raised (J15, G3)."""
    rows = connection.execute(_QUARANTINED).all()
    if [row.snapshot_id for row in rows] != [bad]:
        yield f"quarantined are {[str(row.snapshot_id) for row in rows]}, not the impossible intent alone"
    for row in rows:
        if row.event_error != row.last_error or row.alerted_at is None:
            yield f"the quarantine of {row.snapshot_id} has no event with an alert"
    if left := pending(connection):
        yield f"{left} intents are Pending"


def wrong_posts(news: Api, post: Written) -> Iterator[str]:
    """The post and its first version show what they must; old content outlives the detach (J22, INV-SNP-006)."""
    yield from _wrong_content(news, f"/api/v1/posts/{post.id}/versions/1", post.shown[0])
    yield from _wrong_content(news, f"/api/v1/posts/{post.id}", post.shown[-1])


def wrong_answer(selections: Api, ledger: Ledger, snapshot: UUID) -> Iterator[str]:
    """Selections itself says the same over HTTP, content included."""
    reason = ledger.snapshots[snapshot]
    try:
        said = selections.call("GET", SNAPSHOT_PATH.format(id=snapshot)).body
    except RefusedError as error:
        yield str(error)
        return
    expected = ("Active", None) if reason is None else ("Detached", reason.value)
    if (said["status"], said.get("detachReason")) != expected or not said["content"]["title"]:
        yield f"GET of snapshot {snapshot} says {said}"


def _wrong_content(news: Api, path: str, expected: dict[UUID, str]) -> Iterator[str]:
    try:
        blocks = news.call("GET", path).body["blocks"]
    except RefusedError as error:
        yield str(error)
        return
    shown = {UUID(block["snapshotId"]): block["content"] for block in blocks if "snapshotId" in block}
    titles = {snapshot: content["title"] if content else None for snapshot, content in shown.items()}
    if titles != expected:
        yield f"GET {path} shows {titles}, not {expected}"
