"""What an operator does and sees; console and CLI call the same functions (design: one path). One module a noun.

All take an engine and plain values and answer frozen dataclasses. Each change takes an actor and a reason and leaves an
audit row in its own transaction.
"""

from pin.operations.quarantine import RequeueAnswer, RequeueResult, list_quarantined, requeue

__all__ = ["RequeueAnswer", "RequeueResult", "list_quarantined", "requeue"]
