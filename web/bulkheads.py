"""Bulkheads: each kind of request has threads of its own, so that none has to wait for another kind (A63, A64).

Handlers are synchronous and run in threads. A write may wait for selections for as long as its deadline allows, and a
sign-in costs a core for tens of milliseconds. Neither may hold up a reader or a probe, whatever their number. So each
handler runs in a lane. A lane has a fixed number of threads and a fixed number of places to wait; a request that finds
both taken is answered 503 with Retry-After at once.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from litestar.types import ASGIApp, Receive, Scope, Send

from pin.config.sections import WebOptions
from pin.rules.contract import ErrorCode
from pin.telemetry import metrics
from web.problems import ProblemError

P = ParamSpec("P")
R = TypeVar("R")

RETRY_AFTER = 1
"""Seconds that a request which met a full lane is asked to wait."""


class Lane(StrEnum):
    """What a handler's requests have in common: what they wait for."""

    PROBES = "probes"
    """Health and metrics: the database, for a moment."""
    READS = "reads"
    """The APIs' reads: the database; contents of snapshots within a bound of their own."""
    CHANGES = "changes"
    """Changes that wait for the database alone, detach among them."""
    WRITES = "writes"
    """News' writes: they wait for selections."""
    CONTENTS = "contents"
    """Readers who wait for selections to give what a snapshot showed."""
    CONSOLE = "console"
    """The console's pages and actions."""
    SIGN_INS = "sign-ins"
    """Passwords: a core and 32 MiB each."""


metrics.declare(metrics.LANE_REFUSALS, list(Lane))


class LaneFullError(ProblemError):
    """503 UNAVAILABLE with Retry-After: as many requests of this kind are under way as the process takes."""

    is_counted = True

    def __init__(self) -> None:
        super().__init__(
            503,
            ErrorCode.UNAVAILABLE,
            "Service unavailable",
            "Too many requests of this kind are under way; retry in a moment.",
            headers={"Retry-After": str(RETRY_AFTER)},
        )


@dataclass(frozen=True, slots=True)
class Width:
    """How many requests of a lane run at once, and how many more may wait for their turn."""

    threads: int
    waiting: int


def widths_of(options: WebOptions) -> Mapping[Lane, Width]:
    """The widths that the settings describe. Writes above their ceiling do not wait: they are refused at once."""
    return {
        Lane.PROBES: Width(4, 64),
        Lane.READS: Width(options.read_threads, 1000),
        Lane.CHANGES: Width(options.read_threads, 1000),
        Lane.WRITES: Width(options.max_writes, 0),
        Lane.CONTENTS: Width(32, 32),
        Lane.CONSOLE: Width(8, 64),
        Lane.SIGN_INS: Width(8, 0),
    }


class Bulkheads:
    """The lanes of one app."""

    def __init__(self, widths: Mapping[Lane, Width]) -> None:
        self._widths = dict(widths)
        self._limiters = {lane: CapacityLimiter(width.threads) for lane, width in widths.items()}

    async def run(self, lane: Lane, work: Callable[[], R]) -> R:
        """Run `work` in a thread of `lane`. Raises LaneFullError at once when the lane and its queue are full."""
        limiter = self._limiters[lane]
        if limiter.available_tokens <= 0 and limiter.statistics().tasks_waiting >= self._widths[lane].waiting:
            metrics.LANE_REFUSALS.labels(lane).inc()
            raise LaneFullError
        return await to_thread.run_sync(work, limiter=limiter)

    def middleware(self, app: ASGIApp) -> ASGIApp:
        """ASGI middleware: the app's handlers run in these lanes."""

        async def with_lanes(scope: Scope, receive: Receive, send: Send) -> None:
            _CURRENT.set(self)
            await app(scope, receive, send)

        return with_lanes


_CURRENT: ContextVar[Bulkheads] = ContextVar("bulkheads")


async def run_in(lane: Lane, work: Callable[[], R]) -> R:
    """Run `work` in a lane of the app that serves this request. Raises LaneFullError."""
    return await _CURRENT.get().run(lane, work)


def in_lane(lane: Lane) -> Callable[[Callable[P, R]], Callable[P, Awaitable[R]]]:
    """Make a synchronous handler run in `lane`. The lane is entered once the body is read and the caller is known."""

    def decorate(handler: Callable[P, R]) -> Callable[P, Awaitable[R]]:
        @wraps(handler)
        async def run(*args: P.args, **kwargs: P.kwargs) -> R:
            return await run_in(lane, partial(handler, *args, **kwargs))

        return run

    return decorate
