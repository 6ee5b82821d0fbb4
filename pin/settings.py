"""Settings of every process: environment (`PIN_…`), `.env`, and a TOML file named by `PIN_CONFIG`, in that order.

Read once a process, frozen, and refused whole when anything is wrong: `load_settings` names every wrong field at once,
its value and the rule (J7). The same names serve the local stack, compose and systemd.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from dotenv import dotenv_values
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings import SettingsError as UnreadableSource

from pin.settings_faults import Fault, SettingsError, faults_of, unknown_keys, unknown_names
from pin.timespan import TimeSpan

PREFIX = "PIN_"
CONFIG_FILE = "PIN_CONFIG"


def _names(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Context = Literal["selections", "news", "ops"]


class Section(BaseModel):
    """A group of settings: frozen."""

    model_config = ConfigDict(frozen=True, extra="ignore", validate_default=True)


class SnapshotDetachRetryOptions(Section):
    """The retry job's options, under the document's names in this language's spelling (J7)."""

    polling_interval: TimeSpan = timedelta(minutes=5)
    batch_size: Annotated[int, Field(gt=0, le=1000)] = 100
    max_run_duration: TimeSpan = timedelta(minutes=4)
    max_attempts: Annotated[int, Field(gt=0, le=1000)] = 12
    backoff_base: TimeSpan = timedelta(minutes=1)
    backoff_factor: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] = 2.0
    backoff_cap: TimeSpan = timedelta(minutes=30)
    detach_call_timeout: TimeSpan = timedelta(seconds=5)
    lock_ttl: TimeSpan = timedelta(minutes=6)


class QueueOptions(Section):
    """The hand-over between the runner and the workers (G6)."""

    lease: TimeSpan = timedelta(seconds=40)
    """How long a consumed message belongs to its worker, on the database's clock."""
    poll: TimeSpan = timedelta(seconds=5)
    """How often a worker looks for messages without being notified."""
    max_batches_in_flight: Annotated[int, Field(gt=0, le=1000)] = 8
    """Batches consumed and not finished, over all workers, at which the runner waits."""


class WorkerOptions(Section):
    """One worker process."""

    processes: Annotated[int, Field(gt=0, le=64)] = 1
    threads: Annotated[int, Field(gt=0, le=64)] = 2
    """Batches a process works on at once."""
    concurrency: Annotated[int, Field(gt=0, le=1000)] = 20
    """Calls in flight a batch."""
    time_limit: TimeSpan = timedelta(seconds=30)
    """The longest a batch may take; calls it has not started by then wait for their next attempt."""
    shutdown_timeout: TimeSpan = timedelta(seconds=8)
    """How long a stop waits for the calls on the wire."""


class WebOptions(Section):
    """One web process."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    max_body_bytes: Annotated[int, Field(ge=1024, le=16 * 1024 * 1024)] = 256 * 1024
    pool_size: Annotated[int, Field(gt=0, le=200)] = 20
    create_timeout: TimeSpan = timedelta(seconds=10)
    """Deadline of all the snapshots one set-blocks creates."""
    request_timeout: TimeSpan = timedelta(seconds=30)
    """The longest a set-blocks may take; the guard intents become due then (G13)."""
    stop_timeout: TimeSpan = timedelta(seconds=8)


class AuthOptions(Section):
    """Tokens: RS256 JWTs, checked against configured public keys."""

    issuer: str = "pin"
    audience: str = "pin"
    public_keys: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_names)] = ()
    """PEM files; a token's `kid` is the file's name without its ending."""
    leeway: TimeSpan = timedelta(seconds=10)
    m2m_private_key: Path | None = None
    """News signs its own m2m tokens with this key."""
    m2m_token_file: Path | None = None
    """Or reads the token from here, again after each 401 (a sidecar renews it)."""
    token_url: str | None = None
    """Or asks this OAuth 2.0 token endpoint for one, by client credentials."""
    client_id: str = "news"
    client_secret_file: Path | None = None


class OpsOptions(Section):
    """The operator console, `/ops`: closed until operators are named."""

    operators_file: Path | None = None
    """`name:role:hash` a line, role viewer or operator; `pin operator` writes such a line."""
    session_lifetime: TimeSpan = timedelta(hours=12)
    """How long one signs in for."""


class AlertOptions(Section):
    """Where the alert of a quarantine goes beside the log; each event once to each."""

    alertmanager_url: str | None = None
    """Alertmanager's base URL; its v2 API is posted to."""
    webhook_url: SecretStr | None = None
    """Often holds a token in its path: shown nowhere."""
    timeout: TimeSpan = timedelta(seconds=5)
    """Total deadline of one request to a sink."""
    runbooks_url: str = "https://pin.example/docs/runbooks"
    """Where docs/runbooks is served, for the links in alerts."""


class LogOptions(Section):
    """What a process says."""

    format: Literal["json", "console"] = "json"
    level: Literal["debug", "info", "warning", "error"] = "info"


class MetricsOptions(Section):
    """Where scheduler and worker serve `/metrics`; the web serves its own on its port."""

    host: str = "127.0.0.1"
    scheduler_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    worker_port: Annotated[int, Field(ge=0, le=65535)] | None = None


class Settings(BaseSettings):
    """All settings of a process. Construct it in tests; processes call `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_file=".env",
        extra="ignore",  # unknown names are refused by `load_settings`, which can name the nearest known one
        frozen=True,
        validate_default=True,
    )

    database_url: str = "postgresql://pin@127.0.0.1:5432/pin"
    contexts: Annotated[tuple[Context, ...], NoDecode, BeforeValidator(_names), Field(min_length=1)] = (
        "selections",
        "news",
    )
    selections_url: str = "http://127.0.0.1:8000"
    """Base URL under which news reaches selections (G2)."""
    state_dir: Path = Path(".pin")
    """Where the local stack keeps its database, keys and ports."""

    retry: SnapshotDetachRetryOptions = SnapshotDetachRetryOptions()
    queue: QueueOptions = QueueOptions()
    worker: WorkerOptions = WorkerOptions()
    web: WebOptions = WebOptions()
    auth: AuthOptions = AuthOptions()
    ops: OpsOptions = OpsOptions()
    alerts: AlertOptions = AlertOptions()
    log: LogOptions = LogOptions()
    metrics: MetricsOptions = MetricsOptions()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment over `.env` over the TOML file."""
        del file_secret_settings
        sources = [init_settings, env_settings, dotenv_settings]
        if path := _config_file():
            sources.append(TomlConfigSettingsSource(settings_cls, Path(path)))
        return tuple(sources)


def cross_field_faults(settings: Settings) -> Iterator[Fault]:
    """The rules that bind several fields (J7, G6), each as one fault naming the field to change."""
    retry, queue, worker, web = settings.retry, settings.queue, settings.worker, settings.web
    auth = settings.auth
    call_time = -(-retry.batch_size // worker.concurrency) * retry.detach_call_timeout
    rules: list[tuple[str, object, bool, str]] = [
        (
            "retry.lock_ttl",
            retry.lock_ttl,
            retry.lock_ttl > retry.max_run_duration,
            f"must be longer than retry.max_run_duration ({retry.max_run_duration})",
        ),
        (
            "retry.detach_call_timeout",
            retry.detach_call_timeout,
            retry.detach_call_timeout < retry.max_run_duration,
            f"must be shorter than retry.max_run_duration ({retry.max_run_duration})",
        ),
        (
            "retry.backoff_cap",
            retry.backoff_cap,
            retry.backoff_cap >= retry.backoff_base,
            f"must be at least retry.backoff_base ({retry.backoff_base})",
        ),
        (
            "queue.lease",
            queue.lease,
            queue.lease + queue.poll < retry.backoff_base,
            f"plus queue.poll ({queue.poll}) must be shorter than retry.backoff_base ({retry.backoff_base})",
        ),
        (
            "worker.time_limit",
            worker.time_limit,
            call_time < worker.time_limit,
            f"must be longer than {call_time}, what retry.batch_size / worker.concurrency calls may take",
        ),
        (
            "queue.lease",
            queue.lease,
            worker.time_limit < queue.lease,
            f"must be longer than worker.time_limit ({worker.time_limit})",
        ),
        (
            "web.create_timeout",
            web.create_timeout,
            web.create_timeout < web.request_timeout,
            f"must be shorter than web.request_timeout ({web.request_timeout})",
        ),
        (
            "ops.operators_file",
            settings.ops.operators_file,
            "ops" not in settings.contexts or settings.ops.operators_file is not None,
            "must be set where contexts holds ops",
        ),
        (
            "selections_url",
            settings.selections_url,
            _is_base_url(settings.selections_url),
            "must be an http or https URL without query and fragment",
        ),
        (
            "auth.token_url",
            auth.token_url,
            auth.token_url is None or _is_base_url(auth.token_url),
            "must be an http or https URL without query and fragment",
        ),
        (
            "auth.client_secret_file",
            auth.client_secret_file,
            auth.token_url is None or auth.client_secret_file is not None,
            "must name the file of the client's secret where auth.token_url is set",
        ),
        (
            "database_url",
            settings.database_url,
            settings.database_url.startswith(("postgresql://", "postgres://")),
            "must start with postgresql://",
        ),
    ]
    manager, hook = settings.alerts.alertmanager_url, settings.alerts.webhook_url
    sinks = (manager is not None) + (hook is not None)
    a_url = "must be an http or https URL"
    rules.append(("alerts.alertmanager_url", manager, manager is None or _is_url(manager), a_url))
    rules.append(("alerts.webhook_url", hook, hook is None or _is_url(hook.get_secret_value()), a_url))
    rules.append(
        (
            "alerts.timeout",
            settings.alerts.timeout,
            sinks * settings.alerts.timeout < worker.time_limit,
            f"for each of {sinks} sinks must together be shorter than worker.time_limit ({worker.time_limit})",
        )
    )
    for field, value, holds, rule in rules:
        if not holds:
            yield Fault(field, value, rule)


def _is_url(text: str) -> bool:
    try:
        return re.fullmatch(r"https?://[^\s/?#]+([/?#]\S*)?", text) is not None and urlsplit(text).port != 0
    except ValueError:
        return False


def _is_base_url(text: str) -> bool:
    try:
        return re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", text) is not None and urlsplit(text).port != 0
    except ValueError:  # a port out of range, a bracket left open
        return False


def load_settings(overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings of this process, checked as one object (J7).

    `overrides` (nested, by field name) stand above every source. Raises SettingsError listing every unknown name
    (with the nearest known one) and every field that breaks a rule, with its value and the rule.
    """
    named = _dotenv() | dict(os.environ)
    faults = list(unknown_names(Settings, named, PREFIX, ignore={CONFIG_FILE}, ignore_prefix="PIN_TEST_"))
    faults += unknown_keys(Settings, _toml())
    given: dict[str, Any] = dict(overrides or {})
    try:
        settings = Settings(**given)
    except ValidationError as error:
        faults += faults_of(error)
        settings = _with_defaults_for(error, given)
    except UnreadableSource as error:  # a whole section in one variable: its name is among the unknown ones
        raise SettingsError(faults or [Fault("settings", "", str(error))]) from None
    broken = {fault.field for fault in faults}
    faults += [fault for fault in cross_field_faults(settings) if fault.field not in broken]
    if faults:
        raise SettingsError(faults)
    return settings


def _dotenv() -> dict[str, str | None]:
    """The names that `.env` gives."""
    try:
        return dotenv_values(".env")
    except (OSError, ValueError) as error:
        raise SettingsError([Fault(".env", "", f"must be a readable file: {error}")]) from error


def _config_file() -> str | None:
    """The TOML file's path, from the environment or `.env`."""
    return os.environ.get(CONFIG_FILE) or _dotenv().get(CONFIG_FILE)


def _toml() -> dict[str, Any]:
    """The whole TOML file; empty when none is named."""
    if not (path := _config_file()):
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError([Fault(CONFIG_FILE, path, f"must name a readable TOML file: {error}")]) from error


def _with_defaults_for(error: ValidationError, given: Mapping[str, Any]) -> Settings:
    """The same settings with each broken field at its default, so that the other rules can be checked as well."""
    merged: dict[str, Any] = dict(given)
    for item in error.errors():
        section, *rest = (str(part) for part in item["loc"])
        default = Settings.model_fields[section].default if section in Settings.model_fields else None
        if rest and isinstance(default, Section) and rest[0] in type(default).model_fields:
            group = dict(merged.get(section) or {})
            group[rest[0]] = getattr(default, rest[0])
            merged[section] = group
        elif default is not None:
            merged[section] = default
    try:
        return Settings(**merged)
    except ValidationError:
        return Settings.model_construct()
