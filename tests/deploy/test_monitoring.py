"""Rules, dashboard and runbooks, held to the metrics that there are and checked by Prometheus' own tool (J27–J29)."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client import Counter, Histogram
from prometheus_client.metrics import MetricWrapperBase
from sqlalchemy import create_engine

import actors  # noqa: F401 - declares what workers count by label
import pin.selections.snapshots  # noqa: F401 - likewise
import scheduler  # noqa: F401 - likewise
from db.views.gauges import StateCollector
from pin.cli import cli
from pin.clock import utc_now
from pin.config.settings import Settings
from pin.job.delivery import policy_of
from pin.operations.verdict import NO_RUN_AFTER, Limits
from pin.outgoing.alert_sinks import RUNBOOK
from pin.telemetry import metrics
from tests.tools import debian_tool

_DEPLOY = Path(__file__).parents[2] / "deploy"
_RUNBOOKS = _DEPLOY.parent / "docs" / "runbooks"
_RULES = _DEPLOY / "prometheus" / "rules.yaml"
_TESTS = _DEPLOY / "prometheus" / "rules_test.yaml"
_DASHBOARD = _DEPLOY / "grafana" / "snapshot-detach.json"
_WITHOUT_ALERT = {"wrong-content.md", "README.md"}
_FROM_PROMETHEUS = {"up": {"job": {"pin-web", "pin-worker", "pin-scheduler"}}}

Labels = dict[str, set[str]]


def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(_RULES.read_text())["groups"] for rule in group["rules"]]


def _alerts() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for rule in _rules():
        if "alert" in rule:
            found.setdefault(rule["alert"], []).append(rule)
    return found


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads(_DASHBOARD.read_text())["panels"]
    return panels


def _dashboard_expressions() -> list[str]:
    found = [target["expr"] for panel in _panels() for target in panel["targets"]]
    return [expression.replace("$__rate_interval", "5m") for expression in found]


def _known() -> Mapping[str, Labels]:
    """Every series that there may be: its labels, each with the values that are declared."""
    found: dict[str, Labels] = {name: dict(labels) for name, labels in _FROM_PROMETHEUS.items()}
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            labels: Labels = {name: set() for name in metric._labelnames}
            for values in metric._metrics if metric._labelnames else ():
                for name, value in zip(metric._labelnames, values, strict=True):
                    labels[name].add(value)
            if isinstance(metric, Counter):
                found[f"{metric._name}_total"] = labels
            elif isinstance(metric, Histogram):
                edges = {str(edge) for edge in metric._upper_bounds}
                found |= {f"{metric._name}_{ending}": labels for ending in ("count", "sum")}
                found[f"{metric._name}_bucket"] = labels | {"le": edges}
    state = StateCollector(create_engine("postgresql+psycopg://nowhere/"), utc_now, timedelta(seconds=1))
    for family in state.describe():
        found[family.name] = {}
        for sample in family.samples:
            for name, value in sample.labels.items():
                found[family.name].setdefault(name, set()).add(value)
    return found | {rule["record"]: {} for rule in _rules() if "record" in rule}


_WORD = re.compile(r"[a-zA-Z_][\w:]*")
_SERIES = re.compile(
    r"\b((?:news|selections|http|up|process|python)\b[\w:]*|(?:news|selections|http)_\w+)(?:\{([^}]*)\})?"
)
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_BY = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")


def _uses(expression: str) -> Iterator[tuple[str, str]]:
    """The series that the expression reads, each with its matchers."""
    for found in _SERIES.finditer(_BY.sub("", expression)):
        yield found[1], found[2] or ""


@pytest.mark.req("J25", "J27")
@pytest.mark.parametrize(
    "expression", [*(rule["expr"] for rule in _rules()), *_dashboard_expressions()], ids=lambda text: str(text)[:60]
)
def test_every_expression_reads_metrics_and_labels_that_there_are(expression: str) -> None:
    known = _known()
    labels: set[str] = set()
    for name, matchers in _uses(expression):
        assert name in known, name
        labels |= known[name].keys()
        for label, _, value in _MATCHER.findall(matchers):
            assert label in known[name], f"{name} has no label {label}"
            assert set(value.split("|")) <= known[name][label], f"{name}: {label} is never {value}"
    for listed in _BY.findall(expression):
        assert {label.strip() for label in listed.split(",")} <= labels


@pytest.mark.req("J27", "J29")
def test_each_alert_has_what_one_needs_at_three_in_the_morning() -> None:
    for rules in _alerts().values():
        for rule in rules:
            assert rule["labels"]["severity"] in {"warning", "critical"}
            assert len(rule["annotations"]["summary"]) > 20
            assert rule["annotations"]["runbook_url"].startswith("https://pin.example/docs/runbooks/")


@pytest.mark.req("J29", "D15")
def test_each_alert_has_a_page_and_each_page_its_alert() -> None:
    pages = {path.name for path in _RUNBOOKS.glob("*.md")}
    linked: dict[str, str] = {}
    for name, rules in _alerts().items():
        [page] = {rule["annotations"]["runbook_url"].rsplit("/", 1)[1] for rule in rules}
        assert page not in linked, "one page an alert"
        linked[page] = name
        text = (_RUNBOOKS / page).read_text(encoding="utf-8")
        assert text.startswith(f"# {name}\n")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
        diagnosis = text.partition("## Diagnosis")[2].partition("## Mitigation")[0]
        assert re.search(r"`pin [a-z]", diagnosis) or re.search(r"^    pin [a-z]", diagnosis, re.MULTILINE)
        assert "`/ops" in diagnosis
    assert linked.keys() | _WITHOUT_ALERT == pages
    assert RUNBOOK in linked, "what the product's own alerts link to"
    index = (_RUNBOOKS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == pages - {"README.md"}


@pytest.mark.req("J29", "D15")
def test_the_commands_and_pages_that_the_runbooks_name_are_there() -> None:
    pages = set(re.findall(r"`(/ops[^`{?<]*)", (_RUNBOOKS.parent / "console.md").read_text(encoding="utf-8")))
    for path in _RUNBOOKS.glob("*.md"):
        for page in re.findall(r"`(/ops[^`?<]*)", path.read_text(encoding="utf-8")):
            assert page in pages, f"{path.name}: {page}"
        for span in re.findall(r"`(pin [^`]+)`", path.read_text(encoding="utf-8")):
            command: click.Command = cli
            for word in shlex.split(span)[1:]:
                if isinstance(command, click.Group):
                    assert word in command.commands, f"{path.name}: {span}"
                    command = command.commands[word]
                elif word.startswith("--"):
                    options = {option for parameter in command.params for option in parameter.opts}
                    assert word in options, f"{path.name}: {span}"


@pytest.mark.req("J28", "J27", "G19", "G18")
def test_the_thresholds_are_those_of_the_default_settings() -> None:
    settings = Settings()
    retry, queue = settings.retry, settings.queue
    limits = Limits(retry.polling_interval, retry.lock_ttl, queue.lease, retry.batch_size)
    window = policy_of(retry).window(retry.polling_interval, retry.max_run_duration)

    def threshold(alert: str, pattern: str) -> timedelta:
        [rule] = _alerts()[alert]
        found = re.search(pattern + r" > (\d+)", rule["expr"])
        assert found is not None
        return timedelta(seconds=int(found[1]))

    age = r"max\(news_snapshot_detach_oldest_age_seconds\)"
    assert threshold("SnapshotDetachBacklog", age) == limits.age == 2 * retry.polling_interval
    window_age = r"max\(news_snapshot_detach_window_age_seconds\)"
    assert threshold("SnapshotDetachBeyondWindow", window_age) == window, "W of G19"
    run = r"max\(news_snapshot_detach_last_success_timestamp_seconds\)"
    assert threshold("SnapshotDetachNoSuccessfulRun", run) == limits.no_run == NO_RUN_AFTER
    assert limits.age.total_seconds() in metrics.LAG_BUCKETS, "the SLO's edge is a bucket"
    recorded = [rule["expr"] for rule in _rules() if "slow_ratio" in rule.get("record", "")]
    assert len(recorded) == 4
    assert all(f'le="{limits.age.total_seconds()}"' in expression for expression in recorded)


@pytest.mark.req("J27")
def test_each_alert_is_tested_firing_and_silent() -> None:
    fires: dict[str, set[bool]] = {}
    for test in yaml.safe_load(_TESTS.read_text())["tests"]:
        for asked in test["alert_rule_test"]:
            fires.setdefault(asked["alertname"], set()).add(bool(asked["exp_alerts"]))
    assert fires == {name: {True, False} for name in _alerts()}


@pytest.mark.req("J27")
def test_the_dashboard_says_the_verdict_first() -> None:
    panels = _panels()
    assert panels[0]["title"] == "Verdict"
    assert panels[0]["gridPos"] == {"x": 0, "y": 0, "w": 12, "h": 5}
    assert len({panel["id"] for panel in panels}) == len(panels)
    expression = panels[0]["targets"][0]["expr"]
    for threshold in ("> bool 900", "> bool 600", "> bool 0"):
        assert threshold in expression
    mapped = panels[0]["fieldConfig"]["defaults"]["mappings"][0]["options"]
    assert set(mapped) == {str(code) for code in range(8)}, "every sum of the three parts has its word"


def _promtool(*arguments: str | Path) -> None:
    tool = debian_tool("promtool", "prometheus")
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.req("J27", "J28", "G18", "G20")
def test_the_rules_do_what_their_tests_say() -> None:
    _promtool("test", "rules", _TESTS)


@pytest.mark.req("J27")
def test_rules_and_scrape_configuration_are_right_to_prometheus() -> None:
    _promtool("check", "config", _DEPLOY / "prometheus" / "prometheus.yaml")


@pytest.mark.req("J27")
def test_the_dashboards_expressions_are_right_to_prometheus(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(_dashboard_expressions())
    ]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    _promtool("check", "rules", path)


@pytest.mark.req("J27")
def test_ci_has_the_tools_that_these_tests_need() -> None:
    script = (_DEPLOY.parent / ".ci" / "run").read_text()
    assert re.search(r"\bprometheus\b", script)
    assert "make test" in script
