"""The yardstick: a loop over one httpx.AsyncClient, no database. `python -m bench.client_loop URL IDS TOKEN IN_FLIGHT`.

IDS and TOKEN are files. What a careful programmer writes in a quarter of an hour, with the number of calls in flight
that is best for it.
"""

import asyncio
import sys
from pathlib import Path

import httpx

from bench.work import REASON, USER
from pin.rules.contract import DETACH_PATH


async def call_all(url: str, ids: list[str], token: str, in_flight: int) -> None:
    """Make the calls. Raises httpx.HTTPError at the first that fails."""
    limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
    headers = {"authorization": f"Bearer {token}"}
    waiting = iter(ids)
    async with httpx.AsyncClient(base_url=url, timeout=5.0, limits=limits, headers=headers) as client:

        async def lane() -> None:
            for snapshot_id in waiting:
                body = {"reason": REASON, "requestedByUserId": str(USER)}
                answer = await client.post(DETACH_PATH.replace("{id}", snapshot_id), json=body)
                answer.raise_for_status()

        await asyncio.gather(*(lane() for _ in range(in_flight)))


if __name__ == "__main__":
    base_url, ids_file, token_file, lanes = sys.argv[1:]
    asyncio.run(call_all(base_url, Path(ids_file).read_text().split(), Path(token_file).read_text(), int(lanes)))
