"""Each dependency tried, and the mend named: what to run when nobody knows yet what is wrong."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from time import monotonic

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from db import migrate
from db.contract import unfitness
from db.runner.lock import PoolerError, refuse_transaction_pooler
from db.views import database
from pin.access.machine_tokens import MachineTokens
from pin.config.faults import SettingsError
from pin.config.settings import Settings
from pin.operations.status import read_status
from pin.outgoing.selections import SelectionsClient, SelectionsUnavailable
from pin.outgoing.tokens import TokenError

CLOCK_LIMIT = 2.0
"""Seconds between our clock and the database's above which leases and schedules disagree."""
CALL = 5.0
WORKER = "pin-worker-queue"
"""The application name of a worker's session that listens to the queue."""


class CheckState(StrEnum):
    """How a check ended."""

    OK = "Ok"
    WARNING = "Warning"
    FAILED = "Failed"
    NOT_TRIED = "NotTried"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing tried; `mend` says what to do about it, None when nothing is."""

    name: str
    state: CheckState
    says: str
    mend: str | None = None


def examine(engine: Engine, settings: Settings, now: datetime) -> Iterator[Check]:
    """Try each dependency in turn, what needs the database only if that answers. Never raises for what is broken."""
    database = _database(engine)
    yield database
    if database.state is CheckState.OK:
        yield _schema(engine)
        yield _sessions(settings.database_url)
        yield _clock(engine, now)
    else:
        for name in ("schema", "sessions", "clock"):
            yield Check(name, CheckState.NOT_TRIED, "the database does not answer")
    credential = _credential(settings)
    yield credential
    if credential.state is CheckState.OK:
        yield _selections(settings)
    else:
        yield Check("selections", CheckState.NOT_TRIED, "there is no credential to call it with")
    if database.state is CheckState.OK:
        yield from _processes(engine, settings, now)
    else:
        for name in ("workers", "job"):
            yield Check(name, CheckState.NOT_TRIED, "the database does not answer")


def _database(engine: Engine) -> Check:
    try:
        with engine.connect() as connection:
            if says := unfitness(connection):
                what, _, mend = says.partition(": ")
                return Check("database", CheckState.FAILED, what, mend)
            return Check("database", CheckState.OK, f"PostgreSQL {database.version(connection)} answers")
    except SQLAlchemyError as error:
        said = next(iter(str(getattr(error, "orig", error)).splitlines()), type(error).__name__)
        mend = "start it, or mend PIN_DATABASE_URL (pin config explain PIN_DATABASE_URL)"
        return Check("database", CheckState.FAILED, said, mend)


def _schema(engine: Engine) -> Check:
    with engine.connect() as connection:
        revision, known = migrate.current(connection), migrate.head()
    if revision is None or revision < known:
        says = f"the schema is at {revision or 'nothing'}, this code needs {known}"
        return Check("schema", CheckState.FAILED, says, "run: pin db migrate")
    return Check("schema", CheckState.OK, f"the schema is at {revision}")


def _sessions(url: str) -> Check:
    try:
        refuse_transaction_pooler(url)
    except PoolerError as error:
        return Check(
            "sessions", CheckState.FAILED, str(error), "give PIN_DATABASE_URL a direct or session-mode address"
        )
    except SQLAlchemyError as error:
        return Check("sessions", CheckState.WARNING, type(error).__name__, "see whether connections are left")
    return Check("sessions", CheckState.OK, "each connection is a session of its own, so that the lock holds")


def _clock(engine: Engine, now: datetime) -> Check:
    before = monotonic()
    with engine.connect() as connection:
        theirs = database.clock(connection)
    apart = abs((theirs - now).total_seconds()) - (monotonic() - before)
    if apart > CLOCK_LIMIT:
        says = f"this machine's clock and the database's are {apart:.1f} s apart"
        return Check("clock", CheckState.WARNING, says, "let NTP set both")
    return Check("clock", CheckState.OK, "this machine's clock and the database's agree")


def _credential(settings: Settings) -> Check:
    try:
        MachineTokens.from_settings(settings.auth).token()
    except (SettingsError, TokenError) as error:
        mend = "set PIN_AUTH__M2M_PRIVATE_KEY or PIN_AUTH__M2M_TOKEN_FILE to a readable file"
        return Check("credential", CheckState.FAILED, str(error), mend)
    return Check("credential", CheckState.OK, "news has a machine token")


def _selections(settings: Settings) -> Check:
    client = SelectionsClient(settings.selections_url, MachineTokens.from_settings(settings.auth))
    try:
        client.list_snapshots(after=None, limit=1, deadline=monotonic() + CALL)
    except SelectionsUnavailable as away:
        says = f"{settings.selections_url} gives no answer of the contract: {away}"
        return Check("selections", CheckState.FAILED, says, _mend_of(str(away)))
    finally:
        client.close()
    return Check("selections", CheckState.OK, f"{settings.selections_url} answers news")


def _mend_of(error: str) -> str:
    match error.split():
        case ["HTTP", "401" | "403", *_]:
            return "give selections news' public key (PIN_AUTH__PUBLIC_KEYS), and both the same issuer and audience"
        case ["HTTP", "404" | "405", *_] | ["INVALID_RESPONSE", *_]:
            return "PIN_SELECTIONS_URL leads elsewhere, or to an older release: deploy selections before news"
        case ["HTTP", *_]:
            return "look at the log of selections"
        case ["TIMEOUT", *_]:
            return "selections is overloaded, or a firewall drops what is sent"
        case _:
            return "start selections, or mend PIN_SELECTIONS_URL"


def _processes(engine: Engine, settings: Settings, now: datetime) -> Iterator[Check]:
    try:
        with engine.connect() as connection:
            workers = sum(one.count for one in database.sessions(connection) if one.application == WORKER)
        status = read_status(engine, now=now, retry=settings.retry, queue=settings.queue)
    except SQLAlchemyError as error:
        yield Check("workers", CheckState.NOT_TRIED, type(error).__name__)
        yield Check("job", CheckState.NOT_TRIED, type(error).__name__)
        return
    if workers:
        yield Check("workers", CheckState.OK, f"{workers} sessions of workers listen to the queue")
    else:
        yield Check("workers", CheckState.FAILED, "no worker listens to the queue", "start one: pin worker")
    verdict = status.verdict
    state = CheckState.OK if verdict.kind.is_well else CheckState.FAILED
    yield Check("job", state, verdict.says, verdict.advice)
