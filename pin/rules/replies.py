"""What a reply of selections means. Pure; every reply, however broken, has a meaning (G3, G4, J14, A6, A7)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from uuid import UUID

import msgspec

from pin.rules.contract import DetachConfirmed, ErrorCode
from pin.rules.outbox import ErrorClass, Reply, Verdict

MAX_REPLY_BYTES = 64 * 1024
"""Longer answers to detach are not the contract's."""

_RETRY_AFTER_DIGITS = 9
_SUCCESS = 200
_PERMANENT = {
    (400, ErrorCode.VALIDATION_ERROR.value): Verdict.INVALID,
    (404, ErrorCode.SELECTIONS_SNAPSHOT_NOT_FOUND.value): Verdict.NOT_FOUND,
}
_SAME_FOR_EVERY_ROW = {401, 403}
_ASKS_TO_WAIT = {429, 503}


class _Coded(msgspec.Struct):
    code: str


def read_detach_reply(
    snapshot_id: UUID,
    status: int,
    media_type: str,
    body: bytes,
    retry_after: Sequence[str],
    now: datetime,
    duration: timedelta = timedelta(0),
) -> Reply:
    """The meaning of one detach answer.

    `media_type` is the Content-Type header as it came, `body` the raw content, `retry_after` every value of that
    header, `duration` what the call took. Success is 200 with the contract's JSON for this snapshot (G4); permanent
    is only what carries the contract's own code (G3); the rest is transient. Raises nothing.
    """
    if status == _SUCCESS:
        if _is_detached(snapshot_id, media_type, body):
            return Reply(Verdict.DETACHED, http_status=status, duration=duration)
        return Reply(Verdict.TRANSIENT, ErrorClass.INVALID_RESPONSE, http_status=status, duration=duration)
    code = _code(media_type, body)
    if verdict := _PERMANENT.get((status, code or "")):
        return Reply(verdict, f"HTTP {status} {code}", http_status=status, duration=duration)
    if 200 < status < 300:  # noqa: PLR2004 - the class of success, of which the contract knows 200 alone
        return Reply(Verdict.TRANSIENT, ErrorClass.INVALID_RESPONSE, http_status=status, duration=duration)
    verdict = Verdict.REFUSED if same_for_every_row(status) else Verdict.TRANSIENT
    wait = read_retry_after(retry_after, now) if status in _ASKS_TO_WAIT else None
    return Reply(verdict, f"HTTP {status}", http_status=status, retry_after=wait, duration=duration)


def same_for_every_row(status: int) -> bool:
    """Whether an answer of this status would meet every other call as well: 401 and 403 (G3)."""
    return status in _SAME_FOR_EVERY_ROW


def read_retry_after(values: Sequence[str], now: datetime) -> timedelta | None:
    """How long one Retry-After asks to wait: whole seconds or an HTTP date in the future; None for anything else (A7).

    Two headers contradict each other and count as none.
    """
    if len(values) != 1:
        return None
    text = values[0].strip()
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0") or "0"
        return timedelta(seconds=int(digits)) if len(digits) <= _RETRY_AFTER_DIGITS else timedelta.max
    try:
        moment = parsedate_to_datetime(text)
        wait = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return wait if wait > timedelta(0) else None


def _is_detached(snapshot_id: UUID, media_type: str, body: bytes) -> bool:
    if not is_json(media_type) or len(body) > MAX_REPLY_BYTES:
        return False
    try:
        result = msgspec.json.decode(body, type=DetachConfirmed)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return result.snapshot_id == snapshot_id


def _code(media_type: str, body: bytes) -> str | None:
    if not is_json(media_type) or len(body) > MAX_REPLY_BYTES:
        return None
    try:
        return msgspec.json.decode(body, type=_Coded).code
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def is_json(media_type: str) -> bool:
    """Does this Content-Type header name JSON, a problem's included?"""
    essence = media_type.partition(";")[0].strip().lower()
    return essence in {"application/json", "application/problem+json"}
