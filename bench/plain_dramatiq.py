"""The other yardstick: plain dramatiq-pg, its stock broker and consumer, one message a call.

Also the module that `dramatiq bench.plain_dramatiq` loads: configured by BENCH_* in the environment, on import, as
dramatiq's own examples are.
"""

import os
import threading

import dramatiq
import httpx
from dramatiq.middleware import Callbacks, Retries, ShutdownNotifications, TimeLimit
from dramatiq_pg import PostgresBroker

from bench.work import REASON, USER
from pin.rules.contract import DETACH_PATH

POOL_ABOVE_THREADS = 4
"""Connections beside those of the worker's threads; with fewer its messages stay consumed for ever."""

_local = threading.local()


def _client() -> httpx.Client:
    """A client a thread, which is the fastest way to use a synchronous one."""
    if not hasattr(_local, "client"):
        headers = {"authorization": f"Bearer {os.environ['BENCH_TOKEN']}"}
        _local.client = httpx.Client(base_url=os.environ["BENCH_ENDPOINT"], timeout=5.0, headers=headers)
    client: httpx.Client = _local.client
    return client


def detach(snapshot_id: str) -> None:
    """One call. Raises httpx.HTTPError when it fails: dramatiq then retries."""
    body = {"reason": REASON, "requestedByUserId": str(USER)}
    _client().post(DETACH_PATH.replace("{id}", snapshot_id), json=body).raise_for_status()


if "BENCH_DATABASE" in os.environ:
    _connections = int(os.environ["BENCH_THREADS"]) + POOL_ABOVE_THREADS
    broker = PostgresBroker(
        url=f"{os.environ['BENCH_DATABASE']}?minconn=1&maxconn={_connections}",
        results=False,
        middleware=[
            TimeLimit(),  # type: ignore[no-untyped-call]
            ShutdownNotifications(),  # type: ignore[no-untyped-call]
            Callbacks(),
            Retries(max_retries=8),  # type: ignore[no-untyped-call]
        ],
    )
    dramatiq.set_broker(broker)
    dramatiq.actor(queue_name="detach")(detach)
