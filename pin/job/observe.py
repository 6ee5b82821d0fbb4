"""What logs and counters say of recorded attempts (J24, J25, G16)."""

from datetime import datetime

from db.outbox.outcome import Decided
from pin.rules.outbox import OutcomeKind, Verdict
from pin.telemetry import metrics
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

metrics.declare(metrics.ATTEMPT_SECONDS, [verdict.value for verdict in Verdict])
metrics.declare(
    metrics.FIRST_ATTEMPTS, [kind.value for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.RETRIED, OutcomeKind.LATE)]
)


def observe_attempt(decided: Decided, now: datetime) -> None:
    """Logs and counters of one recorded attempt of the job (J24, J25, G16)."""
    entry, reply = decided.entry, decided.reply
    metrics.ATTEMPT_SECONDS.labels(reply.verdict.value).observe(reply.duration.total_seconds())
    facts = {"snapshotId": str(entry.snapshot_id), "attempts": decided.called.attempts}
    if decided.outcome.kind is OutcomeKind.SUCCEEDED:
        observe_done(decided, now)
        return
    if reply.verdict is not Verdict.DETACHED:
        metrics.FAILED.inc()
    match decided.outcome.kind:
        case OutcomeKind.RETRIED:
            metrics.RETRIED.inc()
            log.info("entry retry", errorCode=decided.outcome.error, **facts)
        case OutcomeKind.QUARANTINED:
            metrics.QUARANTINED.inc()
            log.warning("entry quarantined", reason=str(entry.reason), errorCode=decided.outcome.error, **facts)
        case OutcomeKind.LATE:
            log.info("late reply", errorCode=decided.outcome.error, **facts)


def observe_done(decided: Decided, now: datetime) -> None:
    """Logs and counters of a move to Done, by the job or at once (J25)."""
    metrics.SUCCEEDED.inc()
    metrics.LAG.observe(max(0.0, (now - decided.entry.created_at).total_seconds()))
    log.info("entry detached", snapshotId=str(decided.entry.snapshot_id), attempts=decided.called.attempts)
