"""Environments that others fill: variables nobody meant for this program, and empty ones."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pin.config.faults import SettingsError
from pin.config.kubernetes import set_by_kubernetes
from pin.config.loading import load_settings
from pin.config.sections import Section
from pin.config.settings import Settings
from pin.stack.plan import StackOptions, specs
from pin.telemetry.otel_environment import take_out_unreadable

pytestmark = pytest.mark.usefixtures("bare")

ROOT = Path(__file__).parents[2]

SERVICE = {
    "PIN_SERVICE_HOST": "10.96.3.7",
    "PIN_SERVICE_PORT": "8000",
    "PIN_SERVICE_PORT_HTTP": "8000",
    "PIN_PORT": "tcp://10.96.3.7:8000",
    "PIN_PORT_8000_TCP": "tcp://10.96.3.7:8000",
    "PIN_PORT_8000_TCP_PROTO": "tcp",
    "PIN_PORT_8000_TCP_PORT": "8000",
    "PIN_PORT_8000_TCP_ADDR": "10.96.3.7",
    "PIN_WEB_PORT": "udp://[fd00::7]:53",
    "PIN_WEB_SERVICE_HOST": "fd00::7",
    "PIN_WEB_PORT_53_UDP_ADDR": "fd00::7",
    "PIN_HEADLESS_SERVICE_HOST": "None",
}


@pytest.mark.case("A31")
def test_what_kubernetes_sets_for_a_service_is_no_setting_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SERVICE.items():
        monkeypatch.setenv(name, value)
    assert load_settings() == Settings()


@pytest.mark.case("A31")
@pytest.mark.parametrize(
    ("name", "value"),
    [("PIN_PORT", "8001"), ("PIN_WEB_PORT", "8001"), ("PIN_SERVICE_HOST", "selections"), ("PIN_SERVICE_PORT", "tcp")],
)
def test_a_misspelt_setting_is_refused_though_its_name_has_the_form(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    assert not set_by_kubernetes(name, value)
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match="is no setting"):
        load_settings()


def _every_name() -> list[str]:
    from pin.config.faults import known_names

    return sorted(known_names(Settings, "PIN_"))


@pytest.mark.case("A32")
@pytest.mark.parametrize("source", ["environment", ".env", "toml"])
def test_an_empty_value_means_unset_for_every_setting(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    unset, names = load_settings(), _every_name()
    if source == "environment":
        for name in names:
            monkeypatch.setenv(name, "")
    elif source == ".env":
        Path(".env").write_text("".join(f"{name}=\n" for name in names), encoding="utf-8")
    else:
        tables: dict[str, list[str]] = {}
        for name in names:
            section, _, key = name.removeprefix("PIN_").lower().rpartition("__")
            tables.setdefault(section, []).append(f'{key} = ""\n')
        text = "".join(
            (f"[{section}]\n" if section else "") + "".join(keys) for section, keys in sorted(tables.items())
        )
        Path("pin.toml").write_text(text, encoding="utf-8")
        monkeypatch.setenv("PIN_CONFIG", "pin.toml")
    settings = load_settings()
    assert settings == unset
    sections = {name for name, info in Settings.model_fields.items() if isinstance(info.default, Section)}
    assert settings.model_fields_set <= sections
    assert settings.auth.m2m_token_file is None
    assert settings.state_dir == Path(".pin")


@pytest.mark.case("A32")
def test_an_empty_value_leaves_the_next_source_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("PIN_WEB__PORT=8123\n", encoding="utf-8")
    monkeypatch.setenv("PIN_WEB__PORT", "")
    assert load_settings().web.port == 8123


OTEL = [
    ("OTEL_PROPAGATORS", "tracecontext,baggage,b3"),
    ("OTEL_BSP_SCHEDULE_DELAY", "abc"),
    ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "99999"),
    ("OTEL_ATTRIBUTE_COUNT_LIMIT", "many"),
    ("OTEL_SPAN_EVENT_COUNT_LIMIT", "-3"),
    ("OTEL_TRACES_SAMPLER", "sometimes"),
    ("OTEL_TRACES_SAMPLER_ARG", "nan"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "top-secret"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ("OTEL_RESOURCE_ATTRIBUTES", "zz"),
    ("OTEL_PYTHON_TRACER_PROVIDER", "zz"),
    ("OTEL_PYTHON_CONTEXT", "zz"),
    ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER", "zz"),
    ("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "zz"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", ":::"),
]


@pytest.mark.case("A36")
@pytest.mark.parametrize(("name", "value"), OTEL)
def test_what_cannot_be_followed_is_taken_out_and_named(name: str, value: str) -> None:
    environment = {"HOME": "/", "OTEL_SERVICE_NAME": "ours", "OTEL_TRACES_EXPORTER": "", name: value}
    assert take_out_unreadable(environment) == (name,)
    assert environment == {"HOME": "/", "OTEL_SERVICE_NAME": "ours"}


@pytest.mark.case("A36")
def test_a_process_with_all_of_them_imports_and_says_once_what_it_ignores() -> None:
    code = "import actors, scheduler, web.app; from pin.telemetry import traces as t;"
    code += "t.configure_tracing('x'); t.configure_tracing('x'); print(sorted(t.carrier()))"
    given = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | dict(OTEL)
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\nwith t.span('a'): print(sorted(t.carrier()))"],
        env=given,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    ignored, *printed = ran.stdout.splitlines()
    assert "telemetry settings ignored" in ignored
    assert all(f"'{name}'" in ignored for name, _ in OTEL)
    assert printed == ["[]", "['traceparent']"]
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "top-secret" not in ran.stdout + ran.stderr


SHADOWS = ["db.py", "pin.py", "web.py", "scheduler.py", "actors.py", "logging.py"]


@pytest.mark.case("A33", "A34")
def test_the_code_runs_from_any_path_and_files_of_the_working_folder_are_never_ours(tmp_path: Path) -> None:
    home, work = tmp_path / "feature%2Fd\u00e9tach (1)", tmp_path / "work %d"
    work.mkdir()
    for name in SHADOWS:
        (work / name).write_text("raise SystemExit('taken for ours')\n", encoding="utf-8")
    for package in ("pin", "actors", "web", "db"):
        shutil.copytree(ROOT / package, home / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "scheduler.py", home)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIN_", "PYTHON"))}

    def run(*command: str, **environment: str) -> str:
        return subprocess.run(
            command, cwd=work, env=clean | environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    code = "import db.migrate as m; print(m.head(), m.__file__)"
    revision, file = run(sys.executable, "-P", "-c", code, PYTHONPATH=str(home)).strip().split(" ", 1)
    assert revision.isdigit()
    assert file.startswith(str(home))
    # What the stack starts its processes with, and a path of others' before ours.
    options = StackOptions(work, {}, 1, 2)
    for command in {spec.command[:-1] for spec in specs(options, "postgresql://u@h/d", None)}:
        assert "right" in run(*command, "config", "check")
    others = tmp_path / "others"
    others.mkdir()
    for name in ("db.py", "web.py", "actors.py", "scheduler.py"):
        (others / name).write_text("raise SystemExit('taken for ours')\n", encoding="utf-8")
    code = "import pin, actors, db, web, scheduler; print(scheduler.__file__)"
    assert run(sys.executable, "-P", "-c", code, PYTHONPATH=str(others)).strip() == str(ROOT / "scheduler.py")
