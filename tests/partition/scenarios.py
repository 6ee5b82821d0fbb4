"""What is cut, and what must happen then. A scenario returns what it has seen, in words, or raises AssertionError."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import TypeAlias

from pin.access.signing import mint
from pin.clock import utc_now
from pin.config.sections import AuthOptions
from pin.rules.contract import NEWS_CLIENT
from pin.stack.local import KEY_ID
from tests.chaos.breaking import CLOCK_SHIFT, sabotage
from tests.chaos.stack import INTERVAL, LOCK_TTL, WINDOW
from tests.partition.site import DATABASE, NEWS, SCHEDULERS, SELECTIONS, WORKERS, Site
from tests.waiting import eventually

_MEASURING = 1.0  # seconds, of looking and of starting a run, on a busy machine
_LINK_WITHIN = 40.0  # seconds until a process has noticed that its link is there again
_HOUR = 3600

_HOLDER = """
    SELECT host(a.client_addr) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
    WHERE a.application_name = 'pin-runner-lock' AND l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
"""
_FRESH_HOLDER = f"{_HOLDER} AND clock_timestamp() - a.backend_start < interval '1 second'"
"""One whose run has more than a second to go: it does not end while its plug is pulled."""
_CONSUMED = "SELECT count(*) FROM chaos.consumed"
_SINCE = "SELECT count(*) FROM news.snapshot_detach_attempt WHERE run_id IS NOT NULL AND id > %s"
_UNANSWERED = f"{_SINCE} AND error IN ('TIMEOUT', 'NETWORK')"
_SUCCEEDED = f"{_SINCE} AND outcome = 'Succeeded'"
_AHEAD = """
    SELECT count(*) FROM news.snapshot_detach_run WHERE started_at > now() + interval '50 minutes' AND claimed > 0
"""
_BEHIND = "SELECT count(*) FROM news.snapshot_detach_attempt WHERE recorded_at < now() - interval '50 minutes'"


def lock_holder_unplugged(site: Site) -> str:
    """The scheduler that holds the runner lock loses its network; no FIN gets out."""
    with ExitStack() as stack:
        for worker in WORKERS:  # a batch that nobody takes keeps the holder waiting, the lock in its hands
            stack.enter_context(site.frozen(worker))
        _pile_up(site, 5)
        eventually(lambda: site.ask("SELECT count(*) FROM dramatiq.queue WHERE state = 'queued'"), within=20)
        holder = site.network.host_of(eventually(lambda: site.ask(_FRESH_HOLDER), within=20))
        cut_at = time.monotonic()
        with site.unplugged(holder):
            other = site.network.address(next(name for name in SCHEDULERS if name != holder))
            limit = LOCK_TTL + INTERVAL + _MEASURING
            eventually(lambda: site.ask(_HOLDER) == other, within=limit + 20)
            took = time.monotonic() - cut_at
            assert took <= limit, f"the other scheduler had the lock only after {took:.1f} s"
            stack.close()
            _rest(site)
    claims = site.ask("SELECT count(*) FROM chaos.claim WHERE NOT locked")
    assert claims == 0, f"{claims} claims without the lock"
    lost = "SELECT count(*) FROM news.snapshot_detach_run WHERE result = 'LockLost'"
    eventually(lambda: site.ask(lost), within=_LINK_WITHIN)
    limits = f"LockTtl + interval: {LOCK_TTL + INTERVAL:.0f} s"
    return f"{holder} cut off; the other took over after {took:.1f} s ({limits})"


def worker_cut_from_selections(site: Site) -> str:
    """One worker's calls get no answer; the other goes on."""
    worker, other = WORKERS
    with site.cut(worker, SELECTIONS):
        before = site.ask("SELECT coalesce(max(id), 0) FROM news.snapshot_detach_attempt")
        with site.frozen(other):  # or it takes every batch before the one that is cut off has a look
            _pile_up(site, 10)
            eventually(lambda: site.ask(_UNANSWERED, before), within=WINDOW)
        eventually(lambda: site.ask(_SUCCEEDED, before), within=WINDOW)
        failures = site.ask(_UNANSWERED, before)
    _rest(site)
    return f"{failures} calls of {worker} got no answer; all of it was done by a later attempt"


def worker_cut_from_database_in_mid_batch(site: Site) -> str:
    """A worker has its batch on the wire when the database is cut off: its outcomes reach nobody."""
    worker, other = WORKERS
    with ExitStack() as stack:
        stack.enter_context(site.without(worker))
        posts = [_post(site) for _ in range(3)]
        with site.frozen(other), site.frozen(SELECTIONS):
            seen = site.ask(_CONSUMED)
            _delete(site, posts)
            eventually(lambda: site.ask(_CONSUMED) > seen, within=20, every=0.005)
            stack.enter_context(site.cut(worker, DATABASE))
        taken = site.ask(_CONSUMED)
        eventually(lambda: site.ask(_CONSUMED) > taken, within=20)  # by the other, once the lease has run out
        _rest(site)
    with site.frozen(other):
        taken = site.ask(_CONSUMED)
        _pile_up(site, 1)
        eventually(lambda: site.ask(_CONSUMED) > taken, within=_LINK_WITHIN)
    _rest(site)
    return f"{worker} cut off with its calls on the wire; {other} did its work, and {worker} works again since"


def news_cut_from_selections(site: Site) -> str:
    """The authors' own service does not reach selections: what needs no new snapshot goes on (J32)."""
    ledger = site.writers.ledger
    with site.cut(NEWS, SELECTIONS):
        began = {name: ledger.ok[name] for name in ("replace by text", "delete")}
        eventually(lambda: all(ledger.ok[name] > count for name, count in began.items()), within=60)
        done = sum(ledger.ok[name] - count for name, count in began.items())
    _rest(site)
    return f"{done} blocks and posts were dropped meanwhile, and their snapshots detached by the job"


def clocks_an_hour_apart(site: Site) -> str:
    """One scheduler an hour ahead, one worker an hour behind; that one's token is from a file: it could sign none."""
    ahead, behind = SCHEDULERS[1], WORKERS[1]
    token = site.home / "token"
    token.write_text(_token_of_news(site))
    shifted = {
        ahead: {CLOCK_SHIFT: str(_HOUR)},
        behind: {CLOCK_SHIFT: str(-_HOUR), "PIN_AUTH__M2M_TOKEN_FILE": str(token)},
    }
    with site.without(behind):
        for name, extra in shifted.items():
            spec = site.specs[name]
            site.fleet.replace(replace(spec, environment={**spec.environment, **sabotage(), **extra}))
        site.fleet.await_ready()
    before = site.ask("SELECT count(*) FROM chaos.claim")
    _pile_up(site, 5)
    eventually(lambda: site.ask(_AHEAD) and site.ask(_BEHIND), within=WINDOW)
    _rest(site)
    claims = site.ask("SELECT count(*) FROM chaos.claim") - before
    with site.without(behind):
        for name in shifted:
            site.fleet.replace(site.specs[name])
        site.fleet.await_ready()
    return f"{claims} claims by schedulers an hour apart, attempts recorded by workers an hour apart"


Scenario: TypeAlias = Callable[[Site], str]
SCENARIOS: tuple[Scenario, ...] = (
    lock_holder_unplugged,
    worker_cut_from_selections,
    worker_cut_from_database_in_mid_batch,
    news_cut_from_selections,
    clocks_an_hour_apart,
)


def _pile_up(site: Site, posts: int) -> None:
    """So many posts are deleted while news cannot carry it out itself: each leaves two intents to the job."""
    made = [_post(site) for _ in range(posts)]
    with site.cut(NEWS, SELECTIONS):
        _delete(site, made)


def _delete(site: Site, posts: Sequence[str]) -> None:
    """All at once."""
    with ThreadPoolExecutor(len(posts)) as authors:
        list(authors.map(lambda post: site.news.call("DELETE", f"/api/v1/posts/{post}"), posts))


def _post(site: Site) -> str:
    """A Published post with two embeds. The writers' faults do not count here: nothing is cut."""
    blocks = [site.writers.embed(), site.writers.embed()]
    made = site.news.call("POST", "/api/v1/posts", {"title": "to be deleted", "blocks": blocks})
    site.news.call("POST", f"/api/v1/posts/{made.body['id']}/publish", etag=made.etag)
    return str(made.body["id"])


def _rest(site: Site) -> None:
    """What was Pending is done within the backoff window, writes going on."""
    waiting = "SELECT array_agg(id) FROM news.snapshot_detach_outbox WHERE status = 'Pending'"
    ids = site.ask(waiting) or []
    left = "SELECT count(*) FROM news.snapshot_detach_outbox WHERE status = 'Pending' AND id = ANY(%s)"
    eventually(lambda: site.ask(left, ids) == 0, within=WINDOW + 5, every=0.1)


def _token_of_news(site: Site) -> str:
    auth = AuthOptions()
    return mint(
        site.keys.private.read_bytes(),
        kid=KEY_ID,
        issuer=auth.issuer,
        audience=auth.audience,
        lifetime=timedelta(hours=1),
        now=utc_now(),
        client=NEWS_CLIENT,
    )
