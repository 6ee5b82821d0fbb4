"""What the requests to selections are called in metrics and spans."""

from collections.abc import Iterable
from dataclasses import dataclass

from pin.rules.contract import DETACH_PATH, SNAPSHOT_PATH, SNAPSHOTS_PATH
from pin.telemetry import metrics

NETWORK, TIMEOUT = "network", "timeout"
"""What came of an exchange without an answer, in metrics."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a request is called in metrics and spans."""

    name: str
    method: str
    route: str


DETACH = Operation("detach", "POST", DETACH_PATH)
CREATE = Operation("create", "POST", SNAPSHOTS_PATH)
GET = Operation("get", "GET", SNAPSHOT_PATH)
LIST = Operation("list", "GET", SNAPSHOTS_PATH)

_SECONDS = {
    (operation.name, outcome): metrics.CLIENT_SECONDS.labels(operation.name, outcome)
    for operation in (CREATE, GET, LIST, DETACH)
    for outcome in ("2xx", "4xx", "5xx", NETWORK, TIMEOUT)
}
"""Looked up once, so that an observation costs little, and so that a series is there at 0 before its first event."""


def outcome_of(status: int) -> str:
    """The class of an answer's status, such as `2xx`."""
    return f"{status // 100}xx"


def observe_exchanges(operation: Operation, exchanges: Iterable[tuple[str, float]]) -> None:
    """Count these exchanges, each by what came of it and the seconds it took."""
    for outcome, seconds in exchanges:
        series = _SECONDS.get((operation.name, outcome)) or metrics.CLIENT_SECONDS.labels(operation.name, outcome)
        series.observe(seconds)
