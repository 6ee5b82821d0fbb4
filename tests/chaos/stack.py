"""The stack of a run: a PostgreSQL of its own, two web contexts, two workers, two schedulers, short timings."""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

from db.embedded.server import EmbeddedServer
from pin.access.signing import mint
from pin.clock import utc_now
from pin.config.sections import AuthOptions
from pin.stack.child import ChildSpec, Role
from pin.stack.local import KEY_ID, LocalKeys
from pin.stack.plan import StackOptions, specs

TIMINGS = {
    "PIN_RETRY__POLLING_INTERVAL": "1s",
    "PIN_RETRY__BATCH_SIZE": "20",
    "PIN_RETRY__MAX_RUN_DURATION": "3s",
    "PIN_RETRY__LOCK_TTL": "4s",
    "PIN_RETRY__MAX_ATTEMPTS": "6",
    "PIN_RETRY__BACKOFF_BASE": "3500ms",
    "PIN_RETRY__BACKOFF_FACTOR": "1.2",
    "PIN_RETRY__BACKOFF_CAP": "5s",
    "PIN_RETRY__DETACH_CALL_TIMEOUT": "1s",
    "PIN_QUEUE__LEASE": "3s",
    "PIN_QUEUE__POLL": "300ms",
    "PIN_WORKER__THREADS": "2",
    "PIN_WORKER__CONCURRENCY": "20",
    "PIN_WORKER__TIME_LIMIT": "2500ms",
    "PIN_WORKER__SHUTDOWN_TIMEOUT": "3s",
    "PIN_ALERTS__TIMEOUT": "500ms",
    "PIN_WEB__CREATE_TIMEOUT": "1500ms",
    "PIN_WEB__REQUEST_TIMEOUT": "3s",
}
LOCK_TTL = 4.0
INTERVAL = 1.0
WINDOW = 45.0
"""The backoff window W of these timings (G19), in seconds, rounded up."""
DELIVERIES = 3
_NOTHING: Mapping[str, str] = MappingProxyType({})


def server_of(home: Path, settings: Mapping[str, str] = _NOTHING, port: int | None = None) -> EmbeddedServer:
    """A PostgreSQL that loses nothing it has acknowledged when it crashes (the machine itself does not crash here)."""
    settings = {"synchronous_commit": "on", **settings}
    return EmbeddedServer(home / "postgres", port=port, durable=False, settings=settings)


def plan(
    home: Path, keys: LocalKeys, database_url: str, ports: tuple[int, int], extra: Mapping[str, str]
) -> list[ChildSpec]:
    """The processes of the stack, news on the first port and selections on the second."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIN_")}
    news_port, selections_port = ports
    options = StackOptions(
        state_dir=home,
        environment={**environment, **TIMINGS, **extra},
        news_port=news_port,
        selections_port=selections_port,
        workers=2,
        schedulers=2,
        cwd=home,
    )
    return specs(options, database_url, keys)


def by_way_of(gateway_url: str, planned: list[ChildSpec]) -> list[ChildSpec]:
    """The same processes, which reach selections through the gateway."""
    through = {"PIN_SELECTIONS_URL": gateway_url}
    return [
        spec if spec.role is Role.SELECTIONS else replace(spec, environment={**spec.environment, **through})
        for spec in planned
    ]


def user_token(keys: LocalKeys, user: UUID, tenant: UUID, lifetime: timedelta) -> str:
    """A token of a user of the tenant."""
    auth = AuthOptions()
    return mint(
        keys.private.read_bytes(),
        kid=KEY_ID,
        issuer=auth.issuer,
        audience=auth.audience,
        lifetime=lifetime,
        now=utc_now(),
        user_id=user,
        tenant_id=tenant,
    )
