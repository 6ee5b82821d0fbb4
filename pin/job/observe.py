"""What logs and counters say of recorded attempts (J24, J25, G16)."""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from db.outbox.outcome import Decided
from pin.rules.outbox import OutcomeKind, Verdict
from pin.telemetry import metrics
from pin.telemetry.logs import Line, line, write_lines

_CALLED: list[Verdict] = [verdict for verdict in Verdict if verdict is not Verdict.NOT_CALLED]
metrics.declare(metrics.ATTEMPT_SECONDS, [verdict.value for verdict in _CALLED])
metrics.declare(
    metrics.FIRST_ATTEMPTS, [kind.value for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.RETRIED, OutcomeKind.LATE)]
)


_ATTEMPT_SECONDS = {verdict: metrics.ATTEMPT_SECONDS.labels(verdict.value) for verdict in _CALLED}


def observe_attempts(decided: Sequence[Decided], now: datetime) -> None:
    """Logs and counters of a batch of recorded attempts of the job (J24, J25, G16)."""
    called = [each for each in decided if each.reply.verdict is not Verdict.NOT_CALLED]
    lines = [_attempt(each, now) for each in called]
    if given_back := len(decided) - len(called):
        metrics.NOT_CALLED.inc(given_back)
        lines.append(line("info", "entries not called", rows=given_back))
    write_lines(__name__, lines)


def observe_done(decided: Decided, now: datetime) -> None:
    """Logs and counters of a move to Done at once, by a first attempt (J25)."""
    write_lines(__name__, [_done(decided, now)])


def _attempt(decided: Decided, now: datetime) -> Line:
    entry, reply, outcome = decided.entry, decided.reply, decided.outcome
    _ATTEMPT_SECONDS[reply.verdict].observe(reply.duration.total_seconds())
    if outcome.kind is OutcomeKind.SUCCEEDED:
        return _done(decided, now)
    if reply.verdict is not Verdict.DETACHED:
        metrics.FAILED.inc()
    snapshot, attempts, error = str(entry.snapshot_id), decided.called.attempts, outcome.error
    match outcome.kind:
        case OutcomeKind.RETRIED:
            metrics.RETRIED.inc()
            return line("info", "entry retry", snapshotId=snapshot, attempts=attempts, errorCode=error)
        case OutcomeKind.QUARANTINED:
            metrics.QUARANTINED.inc()
            return line(
                "warning",
                "entry quarantined",
                snapshotId=snapshot,
                reason=str(entry.reason),
                attempts=attempts,
                errorCode=error,
            )
        case OutcomeKind.LATE:
            return line("info", "late reply", snapshotId=snapshot, attempts=attempts, errorCode=error)
        case OutcomeKind.NOT_CALLED:
            raise AssertionError("an attempt is a call")
        case _:
            assert_never(outcome.kind)


def _done(decided: Decided, now: datetime) -> Line:
    metrics.SUCCEEDED.inc()
    metrics.LAG.observe(max(0.0, (now - decided.entry.created_at).total_seconds()))
    return line("info", "entry detached", snapshotId=str(decided.entry.snapshot_id), attempts=decided.called.attempts)
