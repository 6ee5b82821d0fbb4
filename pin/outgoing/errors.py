"""Why an exchange has no answer: one small tree, for every exchange with the outside.

OutgoingError
├── CannotSend      CLIENT …            the request cannot be written: its URL or a header is wrong
├── Unreachable     NETWORK             no connection, or it ended before the answer did
│   └── Closed      NETWORK             the client was closed before or during the exchange
├── TookTooLong     TIMEOUT             the deadline passed, name resolution included (A4, A60)
└── BadAnswer       INVALID_RESPONSE    what came is not HTTP, or more of it than is read (A6, A60)

`str()` of each is its class of error alone, never text of an answer, a URL or a header (J14, J24).
"""

from pin.rules.outbox import ErrorClass


class OutgoingError(Exception):
    """An exchange has no answer. `str()` is what `last_error` may hold."""

    code: ErrorClass

    def __init__(self) -> None:
        super().__init__(self.code.value)


class CannotSend(OutgoingError):  # noqa: N818 - says what happened
    """The request cannot be written; nothing was sent. `what` is the class of the fault, such as `InvalidURL`."""

    code = ErrorClass.CLIENT

    def __init__(self, what: str) -> None:
        Exception.__init__(self, f"{self.code.value} {what}")


class Unreachable(OutgoingError):  # noqa: N818
    """There is no connection, or it ended before the answer did: whether the request was heeded is unknown."""

    code = ErrorClass.NETWORK


class Closed(Unreachable):
    """The client was closed before or during the exchange (A48)."""


class TookTooLong(OutgoingError):  # noqa: N818
    """The deadline passed: whether the request was heeded is unknown."""

    code = ErrorClass.TIMEOUT


class BadAnswer(OutgoingError):  # noqa: N818
    """What came back is not HTTP, or it is more than is read of an answer."""

    code = ErrorClass.INVALID_RESPONSE
