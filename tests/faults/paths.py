"""The paths that are walked to their every border, each with the production's own parts, in a process of its own."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from db.connect import make_engine
from pin.clock import utc_now
from pin.config.sections import QueueOptions, SnapshotDetachRetryOptions
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.news.blocks import KeptEmbed, NewEmbed, Wanted
from pin.news.desk import Author, Desk
from pin.news.errors import NewsError
from pin.news.status import delete_post
from pin.news.writing import set_blocks
from pin.operations import requeue
from pin.outgoing.selections import SelectionsUnavailable
from scheduler import make_job
from tests.faults.hook import Borders
from tests.faults.orders import Order
from tests.job.scene import working
from tests.serving import Keys, serving, settings_for
from tests.waiting import eventually
from web.app import create_app
from web.deps import build_deps
from web.news.routes import desk_of


@dataclass(frozen=True)
class Walk:
    """What a path is given. `finish` is set when it shall end what it serves; `ready` tells where it serves."""

    order: Order
    borders: Borders
    finish: threading.Event
    ready: Callable[[str], None]

    @property
    def facts(self) -> dict[str, Any]:
        return self.order.facts

    def settings(self, **changed: Any) -> Settings:
        """The process's settings."""
        return settings_of(Keys(*self.order.keys), self.order.database, self.order.selections_url, **changed)

    def author(self) -> Author:
        """The author of the scene's post."""
        return Author(UUID(self.facts["author"]), UUID(self.facts["tenant"]))


def settings_of(keys: Keys, database: str, selections_url: str, **changed: Any) -> Settings:
    """Settings of every process here: the document's schedule, and waits short enough to try hundreds of points."""
    given: dict[str, Any] = {
        "selections_url": selections_url,
        "retry": SnapshotDetachRetryOptions(
            max_run_duration=timedelta(seconds=20), lock_ttl=timedelta(seconds=30), batch_size=20
        ),
        "queue": QueueOptions(poll=timedelta(milliseconds=100)),
    }
    return settings_for(keys, database, **(given | changed))


def walk_set_blocks(walk: Walk) -> str:
    """One block kept, one replaced by an embed of a new snapshot."""

    def change(desk: Desk) -> None:
        kept, new = UUID(walk.facts["kept"]), UUID(walk.facts["selection"])
        wanted: list[Wanted] = [KeptEmbed(kept), NewEmbed(new)]
        set_blocks(desk, walk.author(), UUID(walk.facts["post"]), wanted, None)

    return _with_desk(walk, change)


def walk_delete_post(walk: Walk) -> str:
    """A post that shows two snapshots."""
    return _with_desk(walk, lambda desk: delete_post(desk, walk.author(), UUID(walk.facts["post"]), None))


def walk_tick(walk: Walk) -> str:
    """One tick of the scheduler's process; a worker elsewhere takes what it hands over."""
    job = make_job(walk.settings())
    summary = retry_job.run(job, threading.Event())
    job.engine.dispose()
    return summary.result.value


def walk_batch(walk: Walk) -> str:
    """A worker takes the batch that lies in the queue, and the alert that comes of it, and stops."""

    def done() -> bool:
        with walk.borders.unwatched():
            left = look.execute("SELECT count(*) FROM dramatiq.queue WHERE state IN ('queued', 'consumed')").fetchone()
        return left == (0,)

    patient = walk.settings(queue=QueueOptions(poll=timedelta(seconds=5)))  # idle looks are no borders of this path
    with (
        psycopg.connect(walk.order.database, autocommit=True, application_name="pin-faults-path") as look,
        working(patient),
    ):
        eventually(done, within=60)
    return "consumed"


def walk_requeue(walk: Walk) -> str:
    """An operator's requeue of two quarantined entries, one that is Pending and one that never was."""
    engine = make_engine(walk.order.database, application_name="pin-cli")
    ids = [UUID(one) for one in walk.facts["requeue"]]
    answers = requeue(engine, ids, actor="ann", reason="the cause is gone", now=utc_now())
    engine.dispose()
    return " ".join(answer.result.value for answer in answers)


def walk_detach(walk: Walk) -> str:
    """The selections API, called by the harness."""
    with serving(create_app(walk.settings(contexts=("selections",)))) as url:
        walk.ready(url)
        walk.finish.wait()
    return "served"


def _with_desk(walk: Walk, change: Callable[[Desk], None]) -> str:
    deps = build_deps(walk.settings(contexts=("news",)))
    try:
        change(desk_of(deps))
    except (NewsError, SelectionsUnavailable) as refused:
        return f"refused: {type(refused).__name__}"
    finally:
        deps.close()
    return "changed"


PATHS: dict[str, Callable[[Walk], str]] = {
    "set-blocks": walk_set_blocks,
    "set-blocks, late create": walk_set_blocks,
    "delete-post": walk_delete_post,
    "tick": walk_tick,
    "batch": walk_batch,
    "requeue": walk_requeue,
    "detach endpoint": walk_detach,
}
