from pathlib import Path

import pytest

from pin.config.faults import SettingsError
from pin.config.loading import load_settings

pytestmark = pytest.mark.usefixtures("bare")


def _toml(text: str | bytes) -> str:
    Path("pin.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    return "pin.toml"


def _refusals() -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load_settings()
    return [str(fault) for fault in refused.value.faults]


@pytest.mark.req("J7")
def test_environment_stands_above_dotenv_above_toml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIN_CONFIG", _toml("[retry]\nbatch_size = 1\nmax_attempts = 1\nbackoff_factor = 1.5\n"))
    Path(".env").write_text("PIN_RETRY__BATCH_SIZE=2\nPIN_RETRY__MAX_ATTEMPTS=2\nELSE=1\n", encoding="utf-8")
    monkeypatch.setenv("PIN_RETRY__BATCH_SIZE", "3")
    retry = load_settings().retry
    assert (retry.batch_size, retry.max_attempts, retry.backoff_factor) == (3, 2, 1.5)
    assert load_settings({"retry": {"batch_size": 4}}).retry.batch_size == 4


@pytest.mark.req("J7")
def test_dotenv_may_name_the_toml_file() -> None:
    path = _toml("[retry]\nbatch_size = 7\n")
    Path(".env").write_text(f"PIN_CONFIG={path}\n", encoding="utf-8")
    assert load_settings().retry.batch_size == 7


@pytest.mark.req("J7")
@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("PIN_RETRY__BATCHSIZE", "PIN_RETRY__BATCH_SIZE"),
        ("pin_retry__batchsize", "PIN_RETRY__BATCH_SIZE"),
        ("PIN_DATABSE_URL", "PIN_DATABASE_URL"),
        ("PIN_RETRY_BATCH_SIZE", "PIN_RETRY__BATCH_SIZE"),
        ("PIN_RETRY__BATCH_SIZ", "PIN_RETRY__BATCH_SIZE"),
    ],
)
@pytest.mark.parametrize("in_dotenv", [False, True])
def test_an_unknown_variable_names_the_nearest_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, nearest: str, in_dotenv: bool
) -> None:
    if in_dotenv:
        Path(".env").write_text(f"{name}=9\n", encoding="utf-8")
    else:
        monkeypatch.setenv(name, "9")
    assert _refusals() == [f"{name}: is no setting; did you mean {nearest}?"]


@pytest.mark.req("J7")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[retry]\nbatch_siz = 9\n", "retry.batch_siz: is no setting; did you mean retry.batch_size?"),
        ("[retry]\nBatch_Size = 9\n", "retry.Batch_Size: is no setting; did you mean retry.batch_size?"),
        ("[rety]\npassword = 'secret'\n", "rety: is no setting; did you mean retry?"),
        ("State_dir = 'x'\n", "State_dir: is no setting; did you mean state_dir?"),
        ("[retry]\nwhatever = 9\n", "retry.whatever: is no setting"),
        ("retry__batch_size = 9\n", "retry__batch_size: is no setting"),
    ],
)
def test_an_unknown_key_of_the_toml_file_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setenv("PIN_CONFIG", _toml(text))
    assert _refusals() == [said]


@pytest.mark.req("J7")
def test_a_section_that_is_no_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIN_CONFIG", _toml("retry = 5\n"))
    (said,) = _refusals()
    assert said.startswith("retry: input should be a valid dictionary")


@pytest.mark.req("J7")
@pytest.mark.parametrize("text", [b"[retry\n", b"\xff\xfe", b"a = 1\na = 2\n"])
def test_an_unreadable_toml_file_is_refused(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setenv("PIN_CONFIG", _toml(text))
    (said,) = _refusals()
    assert said.startswith("PIN_CONFIG = pin.toml: must name a readable TOML file")


@pytest.mark.req("J7")
@pytest.mark.parametrize("path", ["missing.toml", "."])
def test_a_toml_file_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("PIN_CONFIG", path)
    (said,) = _refusals()
    shown = " = ." if path == "." else ""
    assert said.startswith(f"PIN_CONFIG{shown}: must name a readable TOML file")


@pytest.mark.req("J7")
def test_an_unreadable_dotenv_is_refused() -> None:
    Path(".env").write_bytes(b"PIN_X=\xff\n")
    (said,) = _refusals()
    assert said.startswith(".env: must be a readable file")


@pytest.mark.req("J7")
def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIN_CONTEXTS", "news, selections")
    monkeypatch.setenv("PIN_AUTH__PUBLIC_KEYS", "/keys/a.pem, /keys/b.pem,")
    settings = load_settings()
    assert settings.contexts == ("news", "selections")
    assert settings.auth.public_keys == (Path("/keys/a.pem"), Path("/keys/b.pem"))


@pytest.mark.req("J7")
def test_the_suites_own_variables_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIN_TEST_PG_BIN", "/usr/bin")
    load_settings()
