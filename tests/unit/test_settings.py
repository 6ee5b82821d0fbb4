from collections.abc import Mapping
from datetime import timedelta

import pytest
from pydantic import ValidationError

from pin.config.faults import Fault, SettingsError
from pin.config.loading import load_settings
from pin.config.timespan import parse_timespan

PASSWORD = "s3cr3t"


pytestmark = pytest.mark.usefixtures("bare")


def _faults() -> dict[str, Fault]:
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert str(refused.value).splitlines() == [str(fault) for fault in refused.value.faults]
    return {fault.field: fault for fault in refused.value.faults}


@pytest.mark.req("J7")
def test_every_option_has_the_documents_default() -> None:
    assert load_settings().retry.model_dump() == {
        "polling_interval": timedelta(minutes=5),
        "batch_size": 100,
        "max_run_duration": timedelta(minutes=4),
        "max_attempts": 12,
        "backoff_base": timedelta(minutes=1),
        "backoff_factor": 2.0,
        "backoff_cap": timedelta(minutes=30),
        "detach_call_timeout": timedelta(seconds=5),
        "lock_ttl": timedelta(minutes=6),
    }


@pytest.mark.req("J7")
@pytest.mark.parametrize(
    ("given", "field", "rule"),
    [
        ({"PIN_RETRY__POLLING_INTERVAL": "00:00:00"}, "retry.polling_interval", "longer than 0"),
        ({"PIN_RETRY__BATCH_SIZE": "0"}, "retry.batch_size", "greater than 0"),
        ({"PIN_RETRY__BATCH_SIZE": "-1"}, "retry.batch_size", "greater than 0"),
        ({"PIN_RETRY__BATCH_SIZE": "1001"}, "retry.batch_size", "less than or equal to 1000"),
        ({"PIN_RETRY__BATCH_SIZE": "ten"}, "retry.batch_size", "valid integer"),
        ({"PIN_RETRY__MAX_RUN_DURATION": "0s"}, "retry.max_run_duration", "longer than 0"),
        ({"PIN_RETRY__MAX_ATTEMPTS": "0"}, "retry.max_attempts", "greater than 0"),
        ({"PIN_RETRY__BACKOFF_BASE": "0s"}, "retry.backoff_base", "longer than 0"),
        ({"PIN_RETRY__BACKOFF_BASE": "40m"}, "retry.backoff_cap", "at least retry.backoff_base (0:40:00)"),
        ({"PIN_RETRY__BACKOFF_FACTOR": "0.5"}, "retry.backoff_factor", "greater than or equal to 1"),
        ({"PIN_RETRY__BACKOFF_FACTOR": "nan"}, "retry.backoff_factor", "finite"),
        ({"PIN_RETRY__BACKOFF_FACTOR": "101"}, "retry.backoff_factor", "less than or equal to 100"),
        ({"PIN_RETRY__BACKOFF_CAP": "367d"}, "retry.backoff_cap", "at most 366 days"),
        ({"PIN_RETRY__BACKOFF_CAP": "59s"}, "retry.backoff_cap", "at least retry.backoff_base (0:01:00)"),
        ({"PIN_RETRY__DETACH_CALL_TIMEOUT": "0s"}, "retry.detach_call_timeout", "longer than 0"),
        ({"PIN_RETRY__LOCK_TTL": "4m"}, "retry.lock_ttl", "longer than retry.max_run_duration (0:04:00)"),
        ({"PIN_RETRY__MAX_RUN_DURATION": "5s"}, "retry.detach_call_timeout", "shorter than retry.max_run_duration"),
        ({"PIN_RETRY__BACKOFF_BASE": "45s"}, "queue.lease", "shorter than retry.backoff_base (0:00:45)"),
        ({"PIN_QUEUE__LEASE": "30s"}, "queue.lease", "longer than worker.time_limit (0:00:30)"),
        ({"PIN_QUEUE__LEASE": "40s", "PIN_WORKER__TIME_LIMIT": "39s"}, "queue.lease", "the part it may start with"),
        ({"PIN_RETRY__DETACH_CALL_TIMEOUT": "15s"}, "worker.time_limit", "longer than 0:00:30"),
        ({"PIN_WORKER__CONCURRENCY": "10"}, "worker.time_limit", "longer than 0:00:50"),
        ({"PIN_WORKER__TIME_LIMIT": "10s"}, "worker.time_limit", "longer than 0:00:10"),
        ({"PIN_QUEUE__MAX_CALLS_IN_FLIGHT": "49"}, "queue.max_calls_in_flight", "at least worker.concurrency (50)"),
        ({"PIN_WEB__CREATE_TIMEOUT": "30s"}, "web.create_timeout", "shorter than web.request_timeout (0:00:30)"),
        ({"PIN_WEB__PORT": "65536"}, "web.port", "less than or equal to 65535"),
        ({"PIN_SELECTIONS_URL": "selections:8000"}, "selections_url", "http or https URL"),
        ({"PIN_SELECTIONS_URL": "http://host?x=1"}, "selections_url", "without query"),
        ({"PIN_SELECTIONS_URL": "http://host:99999"}, "selections_url", "http or https URL"),
        ({"PIN_SELECTIONS_URL": "http://[::1"}, "selections_url", "http or https URL"),
        ({"PIN_DATABASE_URL": "mysql://host/pin"}, "database_url", "must start with postgresql://"),
        ({"PIN_CONTEXTS": ","}, "contexts", "at least 1 item"),
        ({"PIN_LOG__LEVEL": "loud"}, "log.level", "'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_each_rule_is_named_with_its_field_and_value(
    monkeypatch: pytest.MonkeyPatch, given: Mapping[str, str], field: str, rule: str
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    faults = _faults()
    assert list(faults) == [field]
    assert rule in faults[field].rule
    if own := given.get(f"PIN_{field.replace('.', '__').upper()}"):
        shown = faults[field].value
        assert (shown if isinstance(shown, timedelta) else str(shown)) == (
            parse_timespan(own)
            if isinstance(shown, timedelta)
            else own.replace("x=1", "x=***")  # a query may be a secret
        )
        assert str(faults[field]).startswith(f"{field} = {shown}: ")


@pytest.mark.req("J7")
def test_everything_wrong_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIN_RETRY__BATCH_SIZE", "0")
    monkeypatch.setenv("PIN_RETRY__MAX_ATTEMPTS", "many")
    monkeypatch.setenv("PIN_RETRY__LOCK_TTL", "1m")
    monkeypatch.setenv("PIN_RETRY__POLING_INTERVAL", "5m")
    monkeypatch.setenv("PIN_CONTEXTS", "news,blogs")
    monkeypatch.setenv("PIN_METRICS__SCHEDULER_PORT", "70000")
    assert set(_faults()) == {
        "PIN_RETRY__POLING_INTERVAL",
        "contexts.1",
        "metrics.scheduler_port",
        "retry.batch_size",
        "retry.lock_ttl",
        "retry.max_attempts",
    }


@pytest.mark.req("J7")
def test_a_good_value_beside_a_broken_one_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIN_RETRY__MAX_RUN_DURATION", "9m")
    monkeypatch.setenv("PIN_RETRY__LOCK_TTL", "10m")
    monkeypatch.setenv("PIN_RETRY__BATCH_SIZE", "0")
    assert list(_faults()) == ["retry.batch_size"]


@pytest.mark.req("J7")
@pytest.mark.parametrize("section", ["abc", '{"batch_size": 7}', "[]"])
def test_a_whole_section_in_one_variable_is_refused(monkeypatch: pytest.MonkeyPatch, section: str) -> None:
    monkeypatch.setenv("PIN_RETRY", section)
    faults = _faults()
    assert "is no setting" in faults["PIN_RETRY"].rule


@pytest.mark.req("J7")
def test_settings_do_not_change() -> None:
    settings = load_settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.database_url = "postgresql://elsewhere/pin"
    with pytest.raises(ValidationError, match="frozen"):
        settings.retry.batch_size = 5


@pytest.mark.req("J24")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PIN_DATABASE_URL", f"mysql://pin:{PASSWORD}@host/pin"),
        ("PIN_DATABASE_URL", f"mysql://pin:a/b@{PASSWORD}@host/pin"),
        ("PIN_DATABASE_URL", f"postgresql:/pin:{PASSWORD}@host/pin"),
        ("PIN_DATABASE_URL", f"pin:{PASSWORD}@host/pin"),
        ("PIN_DATABASE_URL", f"http://host/pin?password={PASSWORD}"),
        ("PIN_DATABASE_URL", f"host=h password={PASSWORD} user=pin"),
        ("PIN_DATABASE_URL", f"host=h password='{PASSWORD} {PASSWORD}'"),
        ("PIN_DATABASE", f"postgresql://pin:{PASSWORD}@host/pin"),
        ("PIN_DB_PASSWORD", PASSWORD),
        ("PIN_M2M_TOKEN", PASSWORD),
        ("PIN_PRIVATE_KEY", PASSWORD),
    ],
)
def test_a_refusal_shows_no_password(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    (fault,) = _faults().values()
    assert "***" in str(fault) or "is no setting" in fault.rule
    assert PASSWORD not in str(fault)


@pytest.mark.req("J24")
def test_the_rest_of_a_url_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIN_DATABASE_URL", f"mysql://pin:{PASSWORD}@host:5432/pin")
    (fault,) = _faults().values()
    assert str(fault) == "database_url = mysql://pin:***@host:5432/pin: must start with postgresql://"
