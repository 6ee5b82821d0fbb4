"""A process that enqueues `record` for each of a range: `python -m tests.broker.enqueuer URL FIRST LAST`."""

import sys

import psycopg

from tests.broker.queue_actors import broker, record

BATCH = 10


def main(url: str, first: int, last: int) -> None:
    with psycopg.connect(url) as connection:
        for start in range(first, last, BATCH):
            broker.enqueue_on(connection, [record.message(n) for n in range(start, min(start + BATCH, last))])
            connection.commit()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
