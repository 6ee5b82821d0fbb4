"""The settings, a section each: names, types, defaults, and the rules that bind one field alone."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic_settings import NoDecode

from pin.config.secrets import AlertUrl, Url, path_of_a_file
from pin.config.timespan import Retention, TimeSpan


def comma_separated(value: object) -> object:
    """`a, b` as a list; anything else as it is."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


FilePath = Annotated[Path, AfterValidator(path_of_a_file)]
"""The path of a file that holds keys, a token or operators; never what the file holds (A69)."""


Context = Literal["selections", "news", "ops"]


class Section(BaseModel):
    """A group of settings: frozen."""

    model_config = ConfigDict(frozen=True, extra="ignore", validate_default=True, hide_input_in_errors=True)


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


FRESH = 0.9
"""The part of its lease that a message must have left to start without renewing it (A50)."""


class QueueOptions(Section):
    """The hand-over between the runner and the workers (G6)."""

    lease: TimeSpan = timedelta(seconds=40)
    """How long a consumed message belongs to its worker, on the database's clock."""
    poll: TimeSpan = timedelta(seconds=5)
    """How often a worker looks for messages without being notified."""
    max_batches_in_flight: Annotated[int, Field(gt=0, le=1000)] = 8
    """Batches consumed and not finished, over all workers, at which the runner waits."""
    max_calls_in_flight: Annotated[int, Field(gt=0, le=100_000)] = 400
    """Calls on the wire at once, over all workers: the runner hands over no batch that could exceed it."""


class WorkerOptions(Section):
    """One worker process."""

    processes: Annotated[int, Field(gt=0, le=64)] = 1
    threads: Annotated[int, Field(gt=0, le=64)] = 2
    """Batches a process works on at once."""
    concurrency: Annotated[int, Field(gt=0, le=1000)] = 50
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
    """Database connections for changes; reads, probes and the console share half as many more."""
    read_threads: Annotated[int, Field(gt=0, le=200)] = 16
    """Reads at work at once, and as many changes that wait for the database alone."""
    max_writes: Annotated[int, Field(gt=0, le=1000)] = 64
    """News' writes at work at once: they wait for selections. One more is answered 503 with Retry-After."""
    create_timeout: TimeSpan = timedelta(seconds=10)
    """Deadline of all the snapshots one set-blocks creates."""
    request_timeout: TimeSpan = timedelta(seconds=30)
    """The longest a set-blocks may take; the guard intents become due then (G13)."""
    stop_timeout: TimeSpan = timedelta(seconds=8)


class AuthOptions(Section):
    """Tokens: RS256 JWTs, checked against configured public keys."""

    issuer: str = "pin"
    audience: str = "pin"
    public_keys: Annotated[tuple[FilePath, ...], NoDecode, BeforeValidator(comma_separated)] = ()
    """PEM files; a token's `kid` is the file's name without its ending."""
    leeway: TimeSpan = timedelta(seconds=10)
    m2m_private_key: FilePath | None = None
    """News signs its own m2m tokens with this key."""
    m2m_token_file: FilePath | None = None
    """Or reads the token from here, again after each 401 (a sidecar renews it)."""
    token_url: Url | None = None
    """Or asks this OAuth 2.0 token endpoint for one, by client credentials."""
    client_id: str = "news"
    client_secret_file: FilePath | None = None


class OpsOptions(Section):
    """The operator console, `/ops`: closed until operators are named."""

    operators_file: FilePath | None = None
    """`name:role:hash` a line, role viewer or operator; `pin operator` writes such a line."""
    session_lifetime: TimeSpan = timedelta(hours=12)
    """How long one signs in for."""


class AlertOptions(Section):
    """Where the alert of a quarantine goes beside the log; each event once to each."""

    alertmanager_url: AlertUrl | None = None
    """Alertmanager's base URL; its v2 API is posted to. Of what is behind its host nothing is shown."""
    webhook_url: SecretStr | None = None
    """Often holds a token in its path: shown nowhere."""
    timeout: TimeSpan = timedelta(seconds=5)
    """Total deadline of one request to a sink."""
    runbooks_url: str = "https://pin.example/docs/runbooks"
    """Where docs/runbooks is served, for the links in alerts."""


class RetentionOptions(Section):
    """How long what is over is kept, from its completion on; `off` keeps it for ever (docs/retention.md)."""

    done: Retention = timedelta(days=30)
    """Done entries, with their history and the events of their quarantines."""
    history: Retention = None
    """The attempts of Done entries, where they are to go before their entries."""
    events: Retention = timedelta(days=90)
    """Events of quarantines that every sink was told of, whose entry is Done or gone."""
    runs: Retention = timedelta(days=30)
    plans: Retention = timedelta(days=90)
    """Plans of re-enqueuing that are Completed or Stopped."""
    messages: Retention = timedelta(days=90)
    """Rejected messages of the queue."""
    audit: Retention = timedelta(days=400)


class LogOptions(Section):
    """What a process says."""

    format: Literal["json", "console"] = "json"
    level: Literal["debug", "info", "warning", "error"] = "info"


class MetricsOptions(Section):
    """Where scheduler and worker serve `/metrics`; the web serves its own on its port."""

    host: str = "127.0.0.1"
    scheduler_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    worker_port: Annotated[int, Field(ge=0, le=65535)] | None = None
