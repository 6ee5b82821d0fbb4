"""Where settings come from besides the process's own arguments: `.env`, and the TOML file that `PIN_CONFIG` names."""

import os
import tomllib
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from pin.config.faults import UNSHOWN, Fault, SettingsError
from pin.config.kubernetes import set_by_kubernetes
from pin.config.secrets import is_evidently_a_path

PREFIX = "PIN_"
CONFIG_FILE = "PIN_CONFIG"


def environment() -> dict[str, str]:
    """The process's variables, without those of Kubernetes' Services and without empty ones, which mean unset."""
    return {name: value for name, value in os.environ.items() if value and not set_by_kubernetes(name, value)}


def dotenv_names() -> dict[str, str]:
    """What `.env` gives; a name without a value, or with an empty one, is unset."""
    try:
        return {name: value for name, value in dotenv_values(".env").items() if value}
    except (OSError, ValueError) as error:
        raise SettingsError([Fault(".env", UNSHOWN, f"must be a readable file ({type(error).__name__})")]) from None


def config_file() -> str | None:
    """The TOML file's path, from the environment or `.env`."""
    return os.environ.get(CONFIG_FILE) or dotenv_names().get(CONFIG_FILE)


def without_empty(table: dict[str, Any]) -> dict[str, Any]:
    """A TOML table without its empty strings, which mean unset."""
    return {
        key: without_empty(value) if isinstance(value, dict) else value for key, value in table.items() if value != ""
    }


def toml_table() -> dict[str, Any]:
    """The whole TOML file; empty when none is named."""
    if not (path := config_file()):
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(
            [Fault(CONFIG_FILE, _named(path), f"must name a readable TOML file ({_why(error)})")]
        ) from None


def _named(path: str) -> object:
    return path if is_evidently_a_path(Path(path)) else UNSHOWN


def _why(error: Exception) -> str:
    """A place in the file, or what the system says; neither holds a value."""
    return str(error) if isinstance(error, tomllib.TOMLDecodeError) else type(error).__name__
