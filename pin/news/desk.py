"""What the use cases of news are given: built once by the web, passed to each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Engine

from pin.news.contents import Contents
from pin.outgoing.selections import SelectionsClient
from pin.rules.outbox import Entry

FirstAttempts = Callable[[Sequence[Entry], float], None]
"""Calls detach once for each entry until a moment of `time.monotonic`, and records what came of it (J19)."""


@dataclass(frozen=True)
class Desk:
    """The storage, the way to selections, the clock, the ids, and how long things may take."""

    engine: Engine
    read_engine: Engine
    """Connections of their own for readers: writers that wait for a row never keep them from reading (A63)."""
    client: SelectionsClient
    first_attempts: FirstAttempts
    contents: Contents
    clock: Callable[[], datetime]
    new_id: Callable[[], UUID]
    create_timeout: timedelta
    """All the snapshots that one request creates, together."""
    request_timeout: timedelta
    """The longest a request may take; its guard intents become due then (G13)."""
    detach_call_timeout: timedelta
    """All the first detach calls of one request, together (G8)."""


@dataclass(frozen=True, slots=True)
class Author:
    """The user who asks for a change, and the tenant that the token names."""

    user_id: UUID
    tenant_id: UUID
