"""What handlers need, built once a process and closed with it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from litestar.di import NamedDependency
from litestar.params import SkipValidation
from prometheus_client.registry import Collector
from sqlalchemy import Engine

from db.connect import OF_A_CHECK, make_engine
from db.views.gauges import StateCollector
from pin.access.checking import TokenVerifier
from pin.access.machine_tokens import MachineTokens
from pin.clock import new_id, utc_now
from pin.config.settings import Settings

if TYPE_CHECKING:
    from pin.outgoing.selections import SelectionsClient


@dataclass(frozen=True)
class Deps:
    """The web process's parts. `client`: where news or the console is served; `collectors` add to `/metrics`.

    `engine` serves reads, probes and the console, `write_engine` the changes: a wait for a locked row keeps no reader
    from its connection (A63).
    """

    settings: Settings
    engine: Engine
    write_engine: Engine
    verifier: TokenVerifier
    client: "SelectionsClient | None"
    clock: Callable[[], datetime] = utc_now
    new_id: Callable[[], UUID] = new_id
    collectors: tuple[Collector, ...] = ()
    probe_engine: Engine | None = None
    """One connection for probes, which are answered also while every other is taken."""

    def close(self) -> None:
        """Close what holds connections."""
        if self.client is not None:
            self.client.close()
        self.engine.dispose()
        self.write_engine.dispose()
        if self.probe_engine is not None:
            self.probe_engine.dispose()


InjectedDeps = NamedDependency[SkipValidation[Deps]]
"""A handler's parameter `deps`."""


def build_deps(settings: Settings) -> Deps:
    """The parts that `settings` describe; nothing connects yet. Raises SettingsError for keys that cannot serve."""
    verifier = TokenVerifier.from_settings(settings.auth)
    client = _selections_client(settings) if {"news", "ops"} & set(settings.contexts) else None
    size = settings.web.pool_size
    engine = make_engine(settings.database_url, pool_size=-(-size // 2), application_name="pin-web")
    write_engine = make_engine(settings.database_url, pool_size=size, application_name="pin-web")
    collectors = (StateCollector(engine, utc_now, settings.queue.lease),) if "news" in settings.contexts else ()
    probe = make_engine(
        settings.database_url, pool_size=1, pool_timeout=3, application_name="pin-web-health", limits=OF_A_CHECK
    )
    return Deps(settings, engine, write_engine, verifier, client, collectors=collectors, probe_engine=probe)


def _selections_client(settings: Settings) -> "SelectionsClient":
    from pin.outgoing.selections import SelectionsClient

    return SelectionsClient(settings.selections_url, MachineTokens.from_settings(settings.auth))
