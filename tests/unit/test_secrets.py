"""No secret is printed, wherever it was put; keys are followed as their files change."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from pin.access.checking import TokenVerifier
from pin.access.key_files import LOOK_EVERY, KeyFiles
from pin.access.signing import mint, new_key_pair
from pin.cli import cli
from pin.cli.faults import Fault as Told
from pin.clock import utc_now
from pin.config.faults import _SECTIONS, SettingsError, known_names
from pin.config.loading import load_settings
from pin.config.secrets import SecretUrl, SinkUrl, shown_url
from pin.config.sections import AlertOptions, Section
from pin.config.settings import Settings
from pin.operations.system import settings_in_force
from pin.outgoing.tokens import TokenError

pytestmark = pytest.mark.usefixtures("bare")

SECRET = "Zx9q-hunter2-Qy"
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
FORMS = [
    SECRET,
    PEM,
    f"eyJhbGciOiJub25lIn0.{SECRET}.x",
    f"boss:operator:scrypt.1.{SECRET}",
    f"https://u:{SECRET}@host/x",
    f'{{"webhook_url": "{SECRET}"}}',
]
MISSPELT = ["PIN_ALERTS_WEBHOOK_URL", "PIN_ALERTS__WEBHOOK_UR", "PIN_DB_PASS", "PIN_ALERTS", "PIN_AUTH", "PIN_X"]
MEANT_FOR_SECRETS = {
    *("PIN_DATABASE_URL", "PIN_SELECTIONS_URL", "PIN_AUTH__TOKEN_URL"),
    *("PIN_ALERTS__ALERTMANAGER_URL", "PIN_ALERTS__WEBHOOK_URL"),
    *("PIN_AUTH__PUBLIC_KEYS", "PIN_AUTH__M2M_PRIVATE_KEY", "PIN_AUTH__M2M_TOKEN_FILE"),
    *("PIN_AUTH__CLIENT_SECRET_FILE", "PIN_OPS__OPERATORS_FILE"),
}


def _said(*command: str) -> str:
    """All that a command says, its Fault's message and any exception's text included."""
    ran = CliRunner().invoke(cli, command)
    error = ran.exception
    said = ran.output + (str(error) if isinstance(error, Told) else "")
    assert error is None or isinstance(error, Told | SystemExit), error
    return said + repr(error)


def _everything_said(name: str) -> Iterator[str]:
    yield _said("config", "check")
    yield _said("config", "show")
    yield _said("config", "explain", name)
    yield _said("config", "explain", name, "-o", "json")
    try:
        settings = load_settings()
    except SettingsError as error:
        yield str(error) + repr(error)
    else:
        yield f"{settings} {settings!r} {settings.model_dump_json()} {dict(settings_in_force(settings))}"


@pytest.mark.case("A59", "A69")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", sorted({*MEANT_FOR_SECRETS, *MISSPELT}))
def test_a_secret_in_any_setting_or_misspelt_one_is_printed_nowhere(
    monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    assert name in known_names(Settings, "PIN_") or name in MISSPELT
    monkeypatch.setenv(name, form)
    assert not [said for said in _everything_said(name) if SECRET in said]


@pytest.mark.case("A69")
@pytest.mark.parametrize(
    "text",
    [
        f'[alerts]\nwebhook_ur = "{SECRET}"\n',
        f'alerts = "{SECRET}"\n',
        f'db_pass = "{SECRET}"\n',
        f'[alert]\nx = "{SECRET}"\n',
        f'[web.port]\nx = "{SECRET}"\n',
        f'[ops]\noperators_file = "{SECRET}"\n',
        f'[ops\noperators_file = "{SECRET}"\n',
    ],
)
def test_a_secret_in_the_toml_file_is_printed_nowhere(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    Path("pin.toml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PIN_CONFIG", "pin.toml")
    said = _said("config", "check")
    assert "78" in said or "wrong" in said
    assert SECRET not in said


def test_every_section_is_known_to_hold_secrets() -> None:
    assert {name for name, info in Settings.model_fields.items() if isinstance(info.default, Section)} == _SECTIONS


@pytest.mark.case("A69")
@pytest.mark.parametrize("name", ["PIN_CONFIG", "PIN_STATE_DIR"])
def test_a_key_in_place_of_another_path_is_printed_nowhere(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, PEM)
    assert SECRET not in _said("config", "show")


@pytest.mark.case("A59")
@pytest.mark.parametrize("name", ["PIN_SELECTIONS_URL", "PIN_AUTH__TOKEN_URL"])
def test_credentials_in_a_url_that_cannot_use_them_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, f"https://user:{SECRET}@host/base")
    Path("secret").touch()
    monkeypatch.setenv("PIN_AUTH__CLIENT_SECRET_FILE", "secret")
    with pytest.raises(SettingsError) as refused:
        load_settings()
    (fault,) = refused.value.faults
    assert fault.field == name.removeprefix("PIN_").lower().replace("__", ".")
    assert "no user name or password" in fault.rule
    assert "https://user:***@host/base" in str(fault)


@pytest.mark.case("A69")
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://pin@h1:5432,h2/db", "postgresql://pin@h1:5432,h2/db"),
        (f"postgresql://pin:{SECRET}@h/db?sslmode=require", "postgresql://pin:***@h/db?sslmode=require"),
        (f"postgresql://h/db?p%61ssword={SECRET}&sslmode=require", "postgresql://h/db?***=***&sslmode=require"),
        (f"postgresql://h/db?password={SECRET}", "postgresql://h/db?password=***"),
        (f"postgresql://pin:a/b?c@{SECRET}#@h/db", "postgresql://pin:***@h/db"),
        (f"postgresql://pin:a@{SECRET}/x@h/db", "postgresql://pin:***@h/db"),
        (f"host=h password={SECRET}", "***"),
        (SECRET, "***"),
        ("selections:8000", "selections:8000"),
    ],
)
def test_a_url_shows_where_it_leads_and_no_secret(given: str, shown: str) -> None:
    assert shown_url(given) == shown
    url = SecretUrl(given)
    assert (str(url), f"{url}", repr(url), f"{url!s:>1}") == (shown, shown, repr(shown), shown)
    assert url == given


@pytest.mark.case("A69")
def test_nothing_behind_a_sinks_host_is_shown() -> None:
    url = SinkUrl(f"https://{SECRET}@alerts.example:9093/{SECRET}/x?token={SECRET}")
    assert str(url) == "https://***@alerts.example:9093/***?token=***"
    made = AlertOptions(alertmanager_url=url)
    assert made.alertmanager_url == url
    assert SECRET not in json.dumps(made.model_dump(mode="json")) + made.model_dump_json() + repr(made)


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.case("A61")
def test_a_replaced_key_works_and_a_withdrawn_one_is_refused_without_a_restart(tmp_path: Path) -> None:
    old_private, public = new_key_pair(tmp_path / "old", "main")
    new_private, new_public = new_key_pair(tmp_path / "new", "main")
    old_pem, new_pem = old_private.read_bytes(), new_private.read_bytes()
    clock = _Clock()
    files = KeyFiles((public,), clock)
    verifier = TokenVerifier(files.current, issuer="pin", audience="pin", leeway=timedelta(seconds=10))

    def opens(pem: bytes) -> bool:
        token = mint(
            pem, kid="main", issuer="pin", audience="pin", lifetime=timedelta(minutes=5), now=utc_now(), client="news"
        )
        try:
            return verifier.verify(token).client == "news"
        except TokenError:
            return False

    assert (opens(old_pem), opens(new_pem)) == (True, False)
    new_public.replace(public)
    clock.now += LOOK_EVERY
    assert (opens(old_pem), opens(new_pem)) == (False, True)
    public.unlink()
    clock.now += LOOK_EVERY
    assert (opens(old_pem), opens(new_pem)) == (False, False)
    assert LOOK_EVERY <= 30


@pytest.mark.case("A61")
def test_two_key_files_of_one_stem_are_refused(tmp_path: Path) -> None:
    _, first = new_key_pair(tmp_path / "a", "main")
    _, second = new_key_pair(tmp_path / "b", "main")
    with pytest.raises(SettingsError, match="two files for the key main"):
        KeyFiles((first, second))
