"""What commands open: settings, database and selections; those of the running local stack where none are set."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from pin.cli.faults import USAGE, Fault, told_plainly

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from pin.config.settings import Settings
    from pin.outgoing.selections import SelectionsClient


def settings_here() -> "Settings":
    """The settings as a process here would have them. Raises SettingsError."""
    from pin.config.loading import load_settings
    from pin.stack.local import database_url, local_keys

    settings = load_settings()
    url = database_url(settings)
    changed: dict[str, object] = {"database_url": url}
    auth = settings.auth
    if url != settings.database_url:  # the local stack runs
        if "selections_url" not in settings.model_fields_set:
            changed["selections_url"] = f"http://{settings.web.host}:{settings.web.port + 1}"
        if auth.m2m_private_key is None and auth.m2m_token_file is None:
            changed["auth"] = auth.model_copy(update={"m2m_private_key": local_keys(settings.state_dir).private})
    return settings.model_copy(update=changed)


@contextmanager
def database(settings: "Settings | None" = None) -> "Iterator[Engine]":
    """An engine for one command; what goes wrong around it is told in a line."""
    from db.connect import make_engine

    with told_plainly():
        used = settings or settings_here()
        engine = make_engine(used.database_url, pool_size=1, application_name="pin-cli")
        try:
            yield engine
        finally:
            engine.dispose()


@contextmanager
def selections(settings: "Settings") -> "Iterator[SelectionsClient]":
    """The client to selections as news has it. Raises Fault when selections gives no answer."""
    from pin.access.machine_tokens import MachineTokens
    from pin.outgoing.selections import SelectionsClient, SelectionsUnavailable

    client = SelectionsClient(settings.selections_url, MachineTokens.from_settings(settings.auth))
    try:
        yield client
    except SelectionsUnavailable as away:
        raise Fault(f"selections at {settings.selections_url} gives no answer: {away} (see pin doctor)") from None
    finally:
        client.close()


def ids_of(given: Sequence[str], noun: str = "an entry") -> list[UUID]:
    """The ids, each once. Raises Fault naming every one that is none, before anything is done."""
    found: dict[UUID, None] = {}
    bad: list[str] = []
    for text in given:
        try:
            found[UUID(text)] = None
        except ValueError:
            bad.append(repr(text))
    if bad:
        raise Fault(f"no id of {noun}: {', '.join(bad)}; nothing was done", USAGE)
    return list(found)
