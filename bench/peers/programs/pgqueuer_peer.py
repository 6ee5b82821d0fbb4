"""pgqueuer over asyncpg: batches of 100, its buffered log of outcomes."""

import asyncio
import signal
import sys
from datetime import timedelta

import asyncpg
from calls import DATABASE, detaching, ids
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries


async def main(verb: str) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(DATABASE)))
    if verb == "fill":
        await queries.install()
        everything = [each.encode() for each in ids()]
        for at in range(0, len(everything), 1000):
            some = everything[at : at + 1000]
            await queries.enqueue(["detach"] * len(some), some, [0] * len(some))
        return
    manager = QueueManager(queries)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.shutdown.set)
    async with detaching() as detach:

        @manager.entrypoint("detach")
        async def work(job: Job) -> None:
            await detach((job.payload or b"").decode())

        await manager.run(batch_size=100, max_concurrent_tasks=200, dequeue_timeout=timedelta(seconds=1))


asyncio.run(main(sys.argv[1]))
