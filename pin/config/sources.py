"""Where settings come from besides the process's own arguments: `.env`, and the TOML file that `PIN_CONFIG` names."""

import os
import tomllib
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from pin.config.faults import Fault, SettingsError
from pin.config.kubernetes import set_by_kubernetes

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
        raise SettingsError([Fault(".env", "", f"must be a readable file: {error}")]) from error


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
        raise SettingsError([Fault(CONFIG_FILE, path, f"must name a readable TOML file: {error}")]) from error
