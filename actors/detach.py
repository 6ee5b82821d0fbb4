"""The detach actor: one message a batch (C4). A message names entries with their versions, no more of them (G6)."""

from typing import Any
from uuid import UUID

import dramatiq
import structlog
from opentelemetry.context import attach, detach
from sqlalchemy import Connection

from actors import detach_broker
from actors.alert import announce
from actors.process import context
from db.outbox.claim import Claimed
from db.runner.gate import DETACH_QUEUE
from pin.job import delivery
from pin.job.delivery import Batch
from pin.telemetry import traces


@dramatiq.actor(queue_name=DETACH_QUEUE, max_retries=0)
def deliver_batch(run_id: str, claimed: list[list[Any]], trace: dict[str, str]) -> None:
    """Deliver `claimed`, a list of [entry id, version], of the run `run_id`, inside the run's trace (J26, J31)."""
    worker = context()
    token = attach(traces.context_of(trace))
    try:
        with structlog.contextvars.bound_contextvars(jobRunId=run_id, correlationId=run_id, actor="system"):
            delivery.deliver(
                Batch(
                    UUID(run_id),
                    tuple(Claimed(UUID(entry_id), version) for entry_id, version in claimed),
                    redelivered=detach_broker.is_redelivered(),
                ),
                engine=worker.engine,
                client=worker.client,
                policy=worker.policy,
                call_timeout=worker.settings.retry.detach_call_timeout,
                time_limit=worker.calls_limit,
                patience=worker.patience,
                announce=announce,
                stopping=detach_broker.draining.is_set,
                worker=worker.worker,
                caution=worker.caution,
            )
    finally:
        detach(token)


def hand_over(connection: Connection, batch: Batch) -> UUID:
    """Write the batch's message into the caller's transaction (G6); answers the message's id."""
    message = deliver_batch.message(
        str(batch.run_id), [[str(one.entry_id), one.version] for one in batch.claimed], traces.carrier()
    )
    detach_broker.enqueue_on(connection, [message])
    return UUID(message.message_id)
