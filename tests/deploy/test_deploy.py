"""What is under deploy/ is checked by the tools of those who will read it, and held to the product's settings."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from pin.config.faults import EXIT_BAD_SETTINGS, known_names
from pin.config.settings import Settings
from pin.config.sources import CONFIG_FILE, PREFIX
from pin.config.timespan import parse_timespan
from tests.tools import debian_tool

_DEPLOY = Path(__file__).parents[2] / "deploy"
_UNITS = sorted((_DEPLOY / "systemd").glob("*.service"))
_ROLES = {"migrate", "web", "worker", "scheduler"}


def _run(*command: str | Path, **environment: str) -> str:
    """What the command says; fails with it when it says no."""
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _tool(name: str) -> Path:
    return Path(sys.executable).with_name(name)


def _services() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = yaml.safe_load((_DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return {name: service for name, service in loaded["services"].items() if service["image"] == "pin"}


def _settings(environment: Mapping[str, str]) -> Settings:
    """The settings that a process with these variables would have."""
    nested: dict[str, Any] = {}
    for name, value in environment.items():
        group, _, field = name.removeprefix(PREFIX).lower().rpartition("__")
        (nested.setdefault(group, {}) if group else nested)[field] = value
    return Settings(**nested)


@pytest.mark.req("C2", "C6")
def test_the_image_is_clean_to_hadolint() -> None:
    assert _run(_tool("hadolint"), _DEPLOY / "Dockerfile") == ""


@pytest.mark.req("C6")
def test_the_image_installs_what_the_lock_says() -> None:
    written = runpy.run_path(str(_DEPLOY / "lock.py"))["parts"]()
    assert {name: (_DEPLOY / name).read_text() for name in written} == written, "run `python deploy/lock.py`"
    for text in written.values():
        assert not re.search(r"^(?:--|https?:)", text, re.MULTILINE)
    assert "hypothesis==" not in written["runtime.lock"]
    assert "psycopg2-binary==" in written["runtime.lock"]


@pytest.mark.req("C6")
def test_the_compose_file_is_one_by_its_schema() -> None:
    _run(_tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", _DEPLOY / "compose.yaml")


@pytest.mark.req("C6", "J23")
def test_compose_runs_every_role_and_more_than_one_of_what_scales() -> None:
    services = _services()
    assert {role for service in services.values() for role in service["command"]} == _ROLES
    assert {name for name, service in services.items() if service.get("deploy", {}).get("replicas", 1) > 1} == {
        "worker",
        "scheduler",
    }
    for name, service in services.items():
        if name != "migrate":
            assert service["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    contexts = {service["environment"].get("PIN_CONTEXTS") for service in services.values()}
    assert contexts == {None, "selections", "news"}


@pytest.mark.req("J7", "G10")
def test_each_service_of_compose_has_settings_that_hold_and_the_keys_it_needs() -> None:
    for service in _services().values():
        settings = _settings(service["environment"])
        mounted = {Path("/run/secrets", name) for name in service.get("secrets", ())}
        private = settings.auth.m2m_private_key
        assert {*settings.auth.public_keys, *([private] if private else [])} == mounted
        grace = parse_timespan(service["stop_grace_period"])
        assert grace > max(settings.web.stop_timeout, settings.worker.shutdown_timeout) + timedelta(seconds=5)


@pytest.mark.req("C6", "J7")
@pytest.mark.parametrize("unit", _UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_a_role_and_stays_down_on_wrong_settings(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    role = re.search(r"^ExecStart=/opt/pin/bin/pin (\w+)$", text, re.MULTILINE)
    assert role is not None
    assert role[1] in _ROLES
    assert role[1] in unit.name
    if role[1] != "migrate":
        assert f"RestartPreventExitStatus={EXIT_BAD_SETTINGS}\n" in text
        assert re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)


@pytest.mark.req("C6")
def test_the_units_are_right_to_systemd(tmp_path: Path) -> None:
    analyze = debian_tool("systemd-analyze", "systemd")
    for unit in _UNITS:
        # systemd looks for the program, which is where this project is installed.
        text = unit.read_text(encoding="utf-8").replace("/opt/pin/bin/pin", str(_tool("pin")))
        (tmp_path / unit.name).write_text(text)
    named = [tmp_path / unit.name.replace("@.", "@news.") for unit in _UNITS]
    assert _run(analyze, "verify", "--man=no", *named, SYSTEMD_UNIT_PATH=f"{tmp_path}:") == ""


@pytest.mark.req("J7")
def test_deploy_names_no_setting_that_there_is_not() -> None:
    allowed = known_names(Settings, PREFIX) | {CONFIG_FILE}
    for path in _DEPLOY.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            used = set(re.findall(r"\bPIN_\w+", path.read_text(encoding="utf-8")))
            assert used <= allowed, path.name


@pytest.mark.req("J7")
@pytest.mark.parametrize("role", ["news", "selections", "ops"])
def test_the_example_environments_are_settings(role: str) -> None:
    lines = "\n".join((_DEPLOY / "systemd" / f"{name}.env.example").read_text() for name in ("pin", role)).splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert _settings(given).auth.public_keys
