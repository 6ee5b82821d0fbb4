"""`python -m bench.clients`: bare HTTP clients beside our own `detach_all`, no database; calls/s and processor time.

Each round starts a process a client, so that none inherits another's threads. `--endpoint URL` measures against another
endpoint than bench/endpoint.py, which at 0 ms may be what binds.
"""

import argparse
import asyncio
import resource
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import aiohttp
import httpx
import uvloop
from pyreqwest.client import ClientBuilder

from bench.__main__ import endpoint_process
from bench.work import REASON, USER, snapshot_ids
from pin.outgoing.detach import DetachCall
from pin.outgoing.selections import SelectionsClient
from pin.rules.contract import DETACH_PATH
from pin.rules.outbox import Verdict

BATCH = 100
THREADS = 2
"""Batches that a worker process works on at once, its default."""
_TOKEN = "x" * 700
_HEADERS = {
    "authorization": f"Bearer {_TOKEN}",
    "content-type": "application/json",
    "accept-encoding": "identity",
}
_BODY = f'{{"reason":"{REASON}","requestedByUserId":"{USER}"}}'.encode()

Lane = Callable[[str], Awaitable[None]]


def _detach_all(url: str, ids: Sequence[str], in_flight: int) -> None:
    calls = [DetachCall(each, REASON, USER) for each in snapshot_ids(len(ids))]
    batches = iter([calls[at : at + BATCH] for at in range(0, len(calls), BATCH)])
    tokens = SimpleNamespace(token=lambda: _TOKEN, at_hand=lambda: _TOKEN, refresh=lambda: None)
    client = SelectionsClient(url, tokens, concurrency=in_flight // THREADS)

    def work() -> None:
        for batch in batches:
            replies = client.detach_all(
                batch, call_timeout=timedelta(seconds=5), deadline=time.monotonic() + 30, stopping=lambda: False
            )
            assert all(reply is not None and reply.verdict is Verdict.DETACHED for reply in replies)  # noqa: S101

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.close()


async def _pyreqwest(url: str, run: Callable[[Lane], Awaitable[None]]) -> None:
    limit = timedelta(seconds=5)
    async with ClientBuilder().no_proxy().default_headers(_HEADERS).build() as client:

        async def call(path: str) -> None:
            answer = await client.post(url + path).body_bytes(_BODY).timeout(limit).build().send()
            assert answer.status == 200  # noqa: S101
            bytes(await answer.bytes())

        await run(call)


async def _aiohttp(url: str, run: Callable[[Lane], Awaitable[None]]) -> None:
    limits = aiohttp.ClientTimeout(total=5)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=_HEADERS, timeout=limits) as session:

        async def call(path: str) -> None:
            async with session.post(url + path, data=_BODY) as answer:
                assert answer.status == 200  # noqa: S101
                await answer.read()

        await run(call)


async def _httpx(url: str, run: Callable[[Lane], Awaitable[None]]) -> None:
    async with httpx.AsyncClient(base_url=url, headers=_HEADERS, timeout=5, trust_env=False) as client:

        async def call(path: str) -> None:
            answer = await client.post(path, content=_BODY)
            assert answer.status_code == 200  # noqa: S101

        await run(call)


_BARE = {"pyreqwest": _pyreqwest, "aiohttp": _aiohttp, "httpx": _httpx}
CLIENTS = (*_BARE, "detach_all")


def measure(client: str, url: str, count: int, in_flight: int) -> str:
    """Make the calls in this process; `calls/s` and processor seconds a 1,000 calls, a blank between."""
    ids = [str(each) for each in snapshot_ids(count)]
    used, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    if client == "detach_all":
        _detach_all(url, ids, in_flight)
    else:
        waiting = iter([DETACH_PATH.replace("{id}", each) for each in ids])

        async def run(call: Lane) -> None:
            async def lane() -> None:
                for path in waiting:
                    await call(path)

            await asyncio.gather(*(lane() for _ in range(in_flight)))

        uvloop.run(_BARE[client](url, run))
    seconds, then = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = then.ru_utime + then.ru_stime - used.ru_utime - used.ru_stime
    return f"{count / seconds:.0f} {cpu * 1000 / count:.4f}"


def main(arguments: Sequence[str]) -> int:
    """Measure each client in turn, round after round, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("-n", type=int, default=5_000, help="calls a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delays", default="0,20", help="milliseconds the endpoint takes, comma separated")
    parser.add_argument("--in-flight", type=int, default=200)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--endpoint", help="another endpoint's base URL; its delay is its own")
    parser.add_argument("--one", help="this client alone, in this process, for a profiler: needs --endpoint")
    given = parser.parse_args(arguments)
    if given.one:
        print(measure(given.one, given.endpoint, given.n, given.in_flight))
        return 0
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    serving: AbstractContextManager[Any] = nullcontext() if given.endpoint else endpoint_process()
    with serving as control:
        for _ in range(given.rounds):
            for delay in given.delays.split(","):
                for client in given.clients.split(","):
                    if control is not None:
                        control.reset(int(delay))
                    found[delay, client].append(_in_a_process(client, given.endpoint or control.url, given))
    for (delay, client), figures in found.items():
        rate, cpu = (median(figure[column] for figure in figures) for column in (0, 1))
        print(f"{delay:>3} ms  {client:12}  {rate:7,.0f} calls/s  {cpu:.3f} CPU s/1,000")
    return 0


def _in_a_process(client: str, url: str, given: argparse.Namespace) -> tuple[float, float]:
    command = [sys.executable, "-m", "bench.clients", "--one", client, "--endpoint", url]
    command += ["-n", str(given.n), "--in-flight", str(given.in_flight)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    rate, cpu = map(float, done.stdout.split())
    return rate, cpu


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
