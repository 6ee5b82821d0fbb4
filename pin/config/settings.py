"""Settings of every process: environment (`PIN_…`), `.env`, and a TOML file named by `PIN_CONFIG`, in that order.

The same names serve the local stack, compose and systemd.
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from pin.config.secrets import Url, folder_path
from pin.config.sections import (
    AlertOptions,
    AuthOptions,
    Context,
    LogOptions,
    MetricsOptions,
    OpsOptions,
    QueueOptions,
    RetentionOptions,
    SnapshotDetachRetryOptions,
    WebOptions,
    WorkerOptions,
    comma_separated,
)
from pin.config.sources import PREFIX, toml_table, without_empty


class Settings(BaseSettings):
    """All settings of a process. Construct it in tests; processes call `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_file=".env",
        env_ignore_empty=True,  # an empty string means unset, for every setting (A32)
        extra="ignore",  # unknown names are refused by `load_settings`, which can name the nearest known one
        frozen=True,
        hide_input_in_errors=True,
        validate_default=True,
    )

    database_url: Url = "postgresql://pin@127.0.0.1:5432/pin"
    contexts: Annotated[tuple[Context, ...], NoDecode, BeforeValidator(comma_separated), Field(min_length=1)] = (
        "selections",
        "news",
    )
    selections_url: Url = "http://127.0.0.1:8000"
    """Base URL under which news reaches selections (G2)."""
    state_dir: Annotated[Path, AfterValidator(folder_path)] = Path(".pin")
    """Where the local stack keeps its database, keys and ports."""

    retry: SnapshotDetachRetryOptions = SnapshotDetachRetryOptions()
    queue: QueueOptions = QueueOptions()
    worker: WorkerOptions = WorkerOptions()
    web: WebOptions = WebOptions()
    auth: AuthOptions = AuthOptions()
    ops: OpsOptions = OpsOptions()
    alerts: AlertOptions = AlertOptions()
    retention: RetentionOptions = RetentionOptions()
    log: LogOptions = LogOptions()
    metrics: MetricsOptions = MetricsOptions()

    @property
    def batches_in_flight(self) -> int:
        """Batches in work at once, over all workers, so that the fleet keeps both of the queue's limits."""
        calls_of_a_batch = min(self.worker.concurrency, self.retry.batch_size)
        return min(self.queue.max_batches_in_flight, self.queue.max_calls_in_flight // calls_of_a_batch)

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
        if table := toml_table():
            sources.append(InitSettingsSource(settings_cls, init_kwargs=without_empty(table)))
        return tuple(sources)
