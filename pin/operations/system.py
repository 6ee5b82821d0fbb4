"""The system: versions, the settings in force with secrets masked, the schema, the database's sessions and sizes."""

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from pathlib import Path

from pydantic import BaseModel
from sqlalchemy import Engine

from db import migrate
from db.views import database
from db.views.database import OldTransaction, Sessions, TableSize
from pin.config.secrets import shown_path
from pin.config.settings import Settings
from pin.config.sources import PREFIX

_LIBRARIES = ("dramatiq", "dramatiq-pg", "apscheduler", "sqlalchemy", "psycopg", "litestar", "httpx")


@dataclass(frozen=True, slots=True)
class System:
    """What runs, on what, and how large it is. `schema` is the database's revision, `schema_known` this code's."""

    versions: dict[str, str]
    settings: tuple[tuple[str, str], ...]
    schema: str | None
    schema_known: str
    sessions: tuple[Sessions, ...]
    tables: tuple[TableSize, ...]
    oldest_transaction: OldTransaction | None

    @property
    def is_migrated(self) -> bool:
        """Whether the schema is new enough for this code; a newer one is, for migrations only add."""
        return self.schema is not None and self.schema >= self.schema_known


def read_system(engine: Engine, settings: Settings) -> System:
    """The system as it stands. Raises sqlalchemy errors when the database does not answer."""
    with engine.connect() as connection:
        return System(
            versions=versions() | {"postgresql": database.version(connection)},
            settings=tuple(settings_in_force(settings)),
            schema=migrate.current(connection),
            schema_known=migrate.head(),
            sessions=tuple(database.sessions(connection)),
            tables=tuple(database.table_sizes(connection)),
            oldest_transaction=database.oldest_transaction(connection),
        )


def versions() -> dict[str, str]:
    """The program's version, Python's, and those of the libraries it stands on."""
    found = {"pin": metadata.version("pin"), "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in _LIBRARIES}


def settings_in_force(settings: Settings) -> Iterator[tuple[str, str]]:
    """Each setting by its environment name, written as the environment would hold it; secrets are masked."""
    yield from _lines(settings, PREFIX)


def _lines(group: BaseModel, prefix: str) -> Iterator[tuple[str, str]]:
    for field in type(group).model_fields:
        value, name = getattr(group, field), f"{prefix}{field}".upper()
        if isinstance(value, BaseModel):
            yield from _lines(value, f"{name}__")
        else:
            yield name, str(value) if field == "state_dir" else _written(value)


def _written(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(map(_written, value))
    if isinstance(value, timedelta) and value.days:
        return f"{value.days}.{value - timedelta(days=value.days)}"
    return shown_path(value) if isinstance(value, Path) else str(value)
