"""The call that each Python peer makes, and its work from the environment. Runs in the peers' own interpreter."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

DATABASE = os.environ.get("BENCH_DATABASE", "")
IN_FLIGHT = int(os.environ.get("BENCH_IN_FLIGHT", "8"))
BODY = {"reason": "BlockReplaced", "requestedByUserId": "6f1b1d0e-5a5b-4c0e-9a37-0c5a9b0a1d11"}


def ids() -> list[str]:
    """The snapshots of the run."""
    return Path(os.environ["BENCH_IDS"]).read_text().split()


@asynccontextmanager
async def detaching() -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """What makes one call; IN_FLIGHT of them at once."""
    places = asyncio.Semaphore(IN_FLIGHT)
    async with aiohttp.ClientSession(
        os.environ["BENCH_ENDPOINT"],
        headers={"authorization": f"Bearer {os.environ['BENCH_TOKEN']}"},
        connector=aiohttp.TCPConnector(limit=IN_FLIGHT),
        timeout=aiohttp.ClientTimeout(total=5),
    ) as session:

        async def detach(snapshot: str) -> None:
            async with places, session.post(f"/api/v1/internal/snapshots/{snapshot}/detach", json=BODY) as answer:
                await answer.read()
                answer.raise_for_status()

        yield detach
