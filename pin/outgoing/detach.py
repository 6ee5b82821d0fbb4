"""One detach call and the reply it has, whatever happens (A6)."""

import asyncio
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

import aiohttp
import httpx
import msgspec

from pin.clock import utc_now
from pin.outgoing.exchange import Exchange, Operation
from pin.outgoing.tokens import TokenError
from pin.rules.contract import DETACH_PATH
from pin.rules.outbox import ErrorClass, Reply, Verdict
from pin.rules.replies import read_detach_reply
from pin.telemetry import traces

DETACH = Operation("detach", "POST", DETACH_PATH)

_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class DetachCall:
    """One call to make. `attempts` only names the call in its trace (J26)."""

    snapshot_id: UUID
    reason: str
    requested_by_user_id: UUID
    attempts: int = 0


async def detach(exchange: Exchange, call: DetachCall, timeout: float) -> Reply:  # noqa: ASYNC109 - a total deadline
    """One detach call, which has a reply whatever happens (A6), within `timeout` seconds."""
    started = time.monotonic()
    attributes: dict[str, str | int] = {"snapshotId": str(call.snapshot_id), "attempts": call.attempts}
    with traces.span("detach attempt", attributes=attributes) as span:
        reply = await _detach_reply(exchange, call, timeout)
        span.set_attribute("verdict", reply.verdict.value)
    return replace(reply, duration=timedelta(seconds=time.monotonic() - started))


async def _detach_reply(exchange: Exchange, call: DetachCall, timeout: float) -> Reply:  # noqa: ASYNC109
    try:
        async with asyncio.timeout(timeout):
            # A reason this release does not know is sent as it stands: to know it is for selections to say (D14).
            body = _ENCODER.encode({"reason": call.reason, "requestedByUserId": call.requested_by_user_id})
            answer = await exchange.answer(DETACH, DETACH_PATH.replace("{id}", str(call.snapshot_id)), body)
        return read_detach_reply(
            call.snapshot_id, answer.status, answer.media_type, answer.body, answer.retry_after, utc_now()
        )
    except TimeoutError:  # httpx has no limits of its own here; its transport calls a refusal a ConnectTimeout
        return Reply(Verdict.TRANSIENT, ErrorClass.TIMEOUT)
    except TokenError:
        return Reply(Verdict.REFUSED, ErrorClass.CREDENTIAL)
    except (httpx.TransportError, aiohttp.ClientConnectionError, OSError):
        return Reply(Verdict.TRANSIENT, ErrorClass.NETWORK)
    except (aiohttp.ClientResponseError, aiohttp.http.HttpProcessingError):
        return Reply(Verdict.TRANSIENT, ErrorClass.INVALID_RESPONSE)
    except Exception as error:  # noqa: BLE001 - the one place where a call's failure is contained: it has an outcome
        return Reply(Verdict.TRANSIENT, f"{ErrorClass.CLIENT} {type(error).__name__}")
