"""News speaks to selections: create, get, list and detach snapshots over HTTP.

Every call has a total deadline, not a limit a read (A4).
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from pin.outgoing.client import Answer
from pin.outgoing.detach import DetachBatch, DetachCall
from pin.outgoing.errors import OutgoingError, TookTooLong
from pin.outgoing.exchange import Exchange, side_by_side
from pin.outgoing.operations import CREATE, GET, LIST, Operation
from pin.outgoing.tokens import TokenError, TokenSource
from pin.outgoing.wire import Wire
from pin.rules.contract import (
    SNAPSHOT_PATH,
    SNAPSHOTS_PATH,
    CreateSnapshotRequest,
    ErrorCode,
    Snapshot,
    SnapshotPage,
)
from pin.rules.outbox import ErrorClass, Reply
from pin.rules.replies import is_json

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder()


class SelectionsUnavailable(Exception):  # noqa: N818 - a state of the other side, not a fault here
    """Selections did not give an answer of the contract in time; `str()` is class and code alone."""


class SnapshotRefused(Exception):  # noqa: N818 - an answer, not a fault
    """Selections refused to create a snapshot, with a code of the contract."""

    def __init__(self, snapshot_id: UUID, code: str) -> None:
        super().__init__(code)
        self.snapshot_id = snapshot_id
        self.code = code


def never() -> bool:
    """Nobody asks to stop."""
    return False


class SelectionsClient:
    """Thread-safe; opens nothing before its first call. `concurrency` bounds the calls in flight of one batch."""

    def __init__(self, base_url: str, tokens: TokenSource, *, concurrency: int = 20, connections: int = 200) -> None:
        self._tokens = tokens
        self._concurrency = concurrency
        self._exchange = Exchange(base_url, tokens, connections=connections)
        self._wire = Wire(base_url, {"accept-encoding": "identity", "content-type": "application/json"})

    def close(self) -> None:
        """End the calls in flight with an error, the connections and the loop's thread.

        Closed stays closed (A48): a later call answers an error, a later batch makes none. May be repeated.
        """
        self._exchange.close()
        self._wire.close()

    def detach_all(
        self,
        calls: Sequence[DetachCall],
        *,
        call_timeout: timedelta,
        deadline: float,
        stopping: Callable[[], bool] = never,
    ) -> list[Reply | None]:
        """Make the calls; answers in their order, None for a call that was not made.

        None is made once `stopping()` holds, the monotonic `deadline` has passed, the client is closed, or a call met
        401 or 403, which would meet every other as well (G3). A call on the wire ends by `call_timeout` and by
        `deadline`, and has a reply whatever happens (A6); the caller has its answers by then, whatever the loop, the
        resolver or the other side does (A60).
        """
        if not calls:
            return []
        batch = DetachBatch(
            self._wire, self._tokens, calls, call_timeout=call_timeout, deadline=deadline, stopping=stopping
        )
        return batch.run(self._concurrency)

    def create_snapshots(self, requests: Sequence[CreateSnapshotRequest], *, deadline: float) -> list[Snapshot]:
        """Create these snapshots, ids chosen by the caller (G13); answers in order.

        Raises SnapshotRefused for a refusal with a code of the contract, else SelectionsUnavailable; some of the
        snapshots may exist then, or come to exist later.
        """

        def one(request: CreateSnapshotRequest) -> Snapshot:
            answer = self._answer_by(deadline, CREATE, SNAPSHOTS_PATH, _ENCODER.encode(request))
            if answer.status in {200, 201}:
                snapshot = _decoded(answer, Snapshot)
                if snapshot is not None and snapshot.snapshot_id == request.snapshot_id:
                    return snapshot
                raise SelectionsUnavailable(ErrorClass.INVALID_RESPONSE)
            code = _code_of(answer)
            if code is not None and answer.status in {400, 404, 409}:
                raise SnapshotRefused(request.snapshot_id, code)
            raise SelectionsUnavailable(f"HTTP {answer.status}")

        return side_by_side(one, requests, self._concurrency)

    def get_snapshots(self, ids: Iterable[UUID], *, deadline: float) -> dict[UUID, Snapshot]:
        """These snapshots, in any status; what is unknown or cannot be had by the monotonic `deadline` is absent."""

        def one(snapshot_id: UUID) -> Snapshot | None:
            try:
                answer = self._answer_by(deadline, GET, SNAPSHOT_PATH.replace("{id}", str(snapshot_id)))
            except SelectionsUnavailable:
                return None
            snapshot = _decoded(answer, Snapshot) if answer.status == 200 else None  # noqa: PLR2004
            return snapshot if snapshot is not None and snapshot.snapshot_id == snapshot_id else None

        wanted = list(dict.fromkeys(ids))
        found = side_by_side(one, wanted, self._concurrency)
        return {snapshot.snapshot_id: snapshot for snapshot in found if snapshot is not None}

    def find_snapshots(self, ids: Iterable[UUID], *, deadline: float) -> dict[UUID, Snapshot | None]:
        """These snapshots; None for one that selections says it does not have. Raises SelectionsUnavailable."""

        def one(snapshot_id: UUID) -> Snapshot | None:
            answer = self._answer_by(deadline, GET, SNAPSHOT_PATH.replace("{id}", str(snapshot_id)))
            if answer.status == 404 and _code_of(answer) == ErrorCode.SELECTIONS_SNAPSHOT_NOT_FOUND:  # noqa: PLR2004
                return None
            if answer.status != 200:  # noqa: PLR2004
                raise SelectionsUnavailable(f"HTTP {answer.status}")
            snapshot = _decoded(answer, Snapshot)
            if snapshot is None or snapshot.snapshot_id != snapshot_id:
                raise SelectionsUnavailable(ErrorClass.INVALID_RESPONSE)
            return snapshot

        wanted = list(dict.fromkeys(ids))
        found = side_by_side(one, wanted, self._concurrency)
        return dict(zip(wanted, found, strict=True))

    def list_snapshots(self, *, after: UUID | None, limit: int, deadline: float) -> SnapshotPage:
        """A page of all the snapshots by their ids, those after `after`. Raises SelectionsUnavailable."""
        query = f"?limit={limit}" + (f"&after={after}" if after else "")
        answer = self._answer_by(deadline, LIST, SNAPSHOTS_PATH + query)
        if answer.status != 200:  # noqa: PLR2004
            raise SelectionsUnavailable(f"HTTP {answer.status}")
        found = _decoded(answer, SnapshotPage)
        if found is None:
            raise SelectionsUnavailable(ErrorClass.INVALID_RESPONSE)
        return found

    def _answer_by(self, deadline: float, operation: Operation, path: str, body: bytes = b"") -> Answer:
        try:
            return self._exchange.answer(operation, path, body, deadline=deadline)
        except TookTooLong as error:
            raise SelectionsUnavailable(ErrorClass.TIMEOUT) from error
        except TokenError as error:
            raise SelectionsUnavailable(ErrorClass.CREDENTIAL) from error
        except OutgoingError as error:
            raise SelectionsUnavailable(ErrorClass.NETWORK) from error


class _Coded(msgspec.Struct):
    code: str


def _decoded(answer: Answer, kind: type[T]) -> T | None:
    if not is_json(answer.media_type):
        return None
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _code_of(answer: Answer) -> str | None:
    coded = _decoded(answer, _Coded)
    known: Any = {code.value for code in ErrorCode}
    return coded.code if coded is not None and coded.code in known else None
