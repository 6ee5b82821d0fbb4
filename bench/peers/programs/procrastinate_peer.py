"""procrastinate: one worker a process, as many jobs at once as there are calls in flight."""

import asyncio
import sys
from collections.abc import Awaitable, Callable

from calls import DATABASE, IN_FLIGHT, detaching, ids
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=DATABASE))
made: list[Callable[[str], Awaitable[None]]] = []


@app.task(name="detach", queue="detach")
async def work(snapshot: str) -> None:
    await made[0](snapshot)


async def main(verb: str) -> None:
    async with app.open_async():
        if verb == "fill":
            await app.schema_manager.apply_schema_async()
            everything = ids()
            for at in range(0, len(everything), 1000):
                await work.batch_defer_async(*({"snapshot": each} for each in everything[at : at + 1000]))
            return
        async with detaching() as detach:
            made.append(detach)
            await app.run_worker_async(queues=["detach"], concurrency=IN_FLIGHT)


asyncio.run(main(sys.argv[1]))
