"""The demo from first to last: real processes, one outage, the backlog, the drain, the proof."""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import NoReturn
from uuid import UUID

from sqlalchemy import Engine

from db.connect import make_engine
from db.embedded.server import EmbeddedServerError
from db.outbox.intents import Intent, stage
from pin.access.signing import mint
from pin.clock import new_id, utc_now
from pin.config.sections import AuthOptions
from pin.demo import checks
from pin.demo.api import Api, RefusedError
from pin.demo.progress import Narrator
from pin.demo.story import Story, side_by_side
from pin.rules.contract import NEWS_CLIENT, Reason
from pin.stack.journal import Journal
from pin.stack.local import KEY_ID, local_keys
from pin.stack.plan import StackOptions
from pin.stack.ports import free_ports
from pin.stack.supervisor import Stack, StackError

POSTS = 120
SELECTIONS = 12

TIMINGS = {
    "PIN_RETRY__POLLING_INTERVAL": "1s",
    "PIN_RETRY__BATCH_SIZE": "50",
    "PIN_RETRY__MAX_RUN_DURATION": "5s",
    "PIN_RETRY__LOCK_TTL": "8s",
    "PIN_RETRY__MAX_ATTEMPTS": "100",
    "PIN_RETRY__BACKOFF_BASE": "2s",
    "PIN_RETRY__BACKOFF_CAP": "4s",
    "PIN_RETRY__DETACH_CALL_TIMEOUT": "500ms",
    "PIN_QUEUE__LEASE": "1500ms",
    "PIN_QUEUE__POLL": "300ms",
    "PIN_WORKER__THREADS": "2",
    "PIN_WORKER__CONCURRENCY": "50",
    "PIN_WORKER__TIME_LIMIT": "1s",
    "PIN_WORKER__SHUTDOWN_TIMEOUT": "3s",
}
"""All that sets the demo apart from production."""

_WITHIN = 100.0  # seconds, for the whole story
_LOOK_EVERY = 0.1


class DemoError(Exception):
    """Something is not as it must be. The message says what, a line each."""


def main() -> int:
    """Run the demo; answers its exit code, after the last line is printed and everything is stopped."""
    narrator = Narrator()
    home = Path(tempfile.mkdtemp(prefix="pin-demo-"))
    home.chmod(0o711)  # root's PostgreSQL runs as another user, who must reach its data
    log = home / "demo.log"
    try:
        with _signals_as_exits(), log.open("w", encoding="utf-8") as lines:
            result = _tell(narrator, home, Journal(lines))
    except (DemoError, RefusedError, StackError, EmbeddedServerError) as error:
        kept = _keep(log)
        sys.stderr.write(f"demo failed: {error}\nwhat the processes said: {kept}\n")
        return 1
    finally:
        shutil.rmtree(home, ignore_errors=True)
    sys.stdout.write(f"demo ok: {result}\n")
    return 0


def _tell(narrator: Narrator, home: Path, journal: Journal) -> checks.Figures:
    deadline = time.monotonic() + _WITHIN
    with Stack(_options(home), journal) as stack:
        with narrator.step("PostgreSQL, migrations, 2 web processes, 2 workers, 2 schedulers are up"):
            stack.start()
        narrator.say(f"  news on {stack.options.news_url}, selections on {stack.options.selections_url}")
        engine = make_engine(stack.database_url, pool_size=2, application_name="pin-demo")
        try:
            figures = _act(narrator, stack, engine, deadline)
        finally:
            engine.dispose()
        with narrator.step("everything is stopped in order"):
            stack.stop()
    return figures


def _options(home: Path) -> StackOptions:
    news_port, selections_port = free_ports("127.0.0.1", 2)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIN_")}
    return StackOptions(
        state_dir=home,
        environment=environment | TIMINGS,
        news_port=news_port,
        selections_port=selections_port,
        workers=2,
        schedulers=2,
        cwd=home,  # no `.env` of the checkout's
    )


def _act(narrator: Narrator, stack: Stack, engine: Engine, deadline: float) -> checks.Figures:
    user, tenant = new_id(), new_id()
    author = _token(stack, user_id=user, tenant_id=tenant)
    story = Story(Api(stack.options.news_url, author), Api(stack.options.selections_url, author))
    ledger = story.ledger

    story.make_selections(SELECTIONS)
    with narrator.step(f"{POSTS} posts are written and published", POSTS) as note:
        side_by_side(story.make_post, range(POSTS), note)
    story.edit_selections()
    ledger.posts.sort(key=lambda post: post.id)
    embedding = [post for post in ledger.posts if post.embeds]
    with narrator.step("embeds give way to new embeds, posts are unpublished", 22) as note:
        side_by_side(story.embed_anew, embedding[:15], note)
        side_by_side(story.unpublish, embedding[78:85], lambda done: note(15 + done))

    stack.stop_child("selections")
    narrator.say("  selections is down")
    dropped, deleted = embedding[5:50], embedding[40:80]
    with narrator.step("blocks are replaced and posts deleted all the same", len(dropped) + len(deleted)) as note:
        side_by_side(story.drop_embed, dropped, note)
        side_by_side(story.delete, deleted, lambda done: note(len(dropped) + done))
    impossible = _stage_impossible(engine, UUID(ledger.posts[0].id), user)
    narrator.say(f"  one intent that can never succeed: snapshot {impossible} does not exist")
    backlog = checks.read(engine, checks.pending)
    narrator.say(f"  the backlog: {backlog} intents are Pending")
    if backlog < len(dropped):
        raise DemoError(f"the backlog is {backlog}: the outage left too little behind")
    with narrator.step("the job tries, and is refused"):
        _until(lambda: checks.read(engine, checks.retried) > 0, deadline, "no attempt of the job is on record")

    stack.start_child("selections")
    narrator.say("  selections is up again")
    with narrator.step("the backlog drains", backlog) as note:

        def drained() -> bool:
            left = checks.read(engine, checks.pending)
            note(max(0, backlog - left))
            return left == 0

        _until(drained, deadline, "the backlog does not drain")
    with narrator.step("the quarantine's alert is raised"):
        _until(lambda: checks.read(engine, checks.alerted), deadline, "the alert of the quarantine is not raised")
    return _prove(narrator, stack, engine, story, impossible)


def _prove(narrator: Narrator, stack: Stack, engine: Engine, story: Story, impossible: UUID) -> checks.Figures:
    ledger, wrong = story.ledger, list[str]()
    news_itself = Api(stack.options.selections_url, _token(stack, client=NEWS_CLIENT))
    with engine.connect() as connection:
        wrong += checks.wrong_snapshots(connection, ledger)
        wrong += checks.wrong_quarantine(connection, impossible)
        figures = checks.figures(connection)
    with narrator.step("posts and their first versions show what they must", len(ledger.posts)) as note:
        side_by_side(lambda post: wrong.extend(checks.wrong_posts(story.news, post)), ledger.posts, note)
    with narrator.step("selections says the same", len(ledger.snapshots)) as note:
        side_by_side(lambda one: wrong.extend(checks.wrong_answer(news_itself, ledger, one)), ledger.snapshots, note)
    if wrong:
        raise DemoError("\n".join(wrong[:20] + ([f"and {len(wrong) - 20} more"] if len(wrong) > 20 else [])))  # noqa: PLR2004 - a screenful
    return figures


def _stage_impossible(engine: Engine, post_id: UUID, user: UUID) -> UUID:
    """An intent for a snapshot that never was: selections answers 404 with its code, which no retry mends (G3)."""
    now = utc_now()
    intent = Intent(new_id(), new_id(), post_id, Reason.POST_DELETED, user, due_at=now)
    with engine.begin() as connection:
        stage(connection, [intent], now)
    return intent.snapshot_id


def _token(
    stack: Stack, *, client: str | None = None, user_id: UUID | None = None, tenant_id: UUID | None = None
) -> str:
    auth = AuthOptions()
    return mint(
        local_keys(stack.options.state_dir).private.read_bytes(),
        kid=KEY_ID,
        issuer=auth.issuer,
        audience=auth.audience,
        lifetime=timedelta(minutes=10),
        now=utc_now(),
        client=client,
        user_id=user_id,
        tenant_id=tenant_id,
    )


def _until(holds: Callable[[], bool], deadline: float, otherwise: str) -> None:
    """Look until it holds. Raises DemoError with `otherwise` when the demo's time is up."""
    while not holds():
        if time.monotonic() > deadline:
            raise DemoError(otherwise)
        time.sleep(_LOOK_EVERY)


@contextmanager
def _signals_as_exits() -> Iterator[None]:
    """Ctrl-C and SIGTERM unwind the demo, which stops everything on its way; a second one does not disturb that."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, signal.SIG_IGN)
        sys.stderr.write("stopping\n")
        sys.exit(128 + number)

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, leave)
    yield


def _keep(log: Path) -> Path:
    """The log, moved out of the folder that is thrown away."""
    descriptor, kept = tempfile.mkstemp(prefix="pin-demo-", suffix=".log")
    os.close(descriptor)
    shutil.copyfile(log, kept)
    return Path(kept)
