"""The bare client: a loop over one aiohttp session, no database."""

import asyncio

from calls import IN_FLIGHT, detaching, ids


async def main() -> None:
    waiting = iter(ids())
    async with detaching() as detach:

        async def lane() -> None:
            for snapshot in waiting:
                await detach(snapshot)

        await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))


asyncio.run(main())
