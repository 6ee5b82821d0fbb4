"""Where settings come from besides the process's own arguments: `.env`, and the TOML file that `PIN_CONFIG` names."""

import os
import tomllib
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from pin.config.faults import Fault, SettingsError

PREFIX = "PIN_"
CONFIG_FILE = "PIN_CONFIG"


def dotenv_names() -> dict[str, str | None]:
    """The names that `.env` gives."""
    try:
        return dotenv_values(".env")
    except (OSError, ValueError) as error:
        raise SettingsError([Fault(".env", "", f"must be a readable file: {error}")]) from error


def config_file() -> str | None:
    """The TOML file's path, from the environment or `.env`."""
    return os.environ.get(CONFIG_FILE) or dotenv_names().get(CONFIG_FILE)


def toml_table() -> dict[str, Any]:
    """The whole TOML file; empty when none is named."""
    if not (path := config_file()):
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError([Fault(CONFIG_FILE, path, f"must name a readable TOML file: {error}")]) from error
