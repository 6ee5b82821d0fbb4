"""Probes and metrics."""

from collections.abc import Iterable

import httpx
import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from db import migrate
from db.embedded.server import EmbeddedServer
from tests.serving import MakeSettings, serving
from web.app import assemble, create_app
from web.deps import Deps, build_deps


@pytest.mark.req("J32")
def test_ready_means_a_schema_that_this_code_knows_or_a_newer_one(client: httpx.Client, engine: Engine) -> None:
    def at(revision: str) -> int:
        with engine.begin() as connection:
            connection.execute(text("UPDATE schema_version SET version_num = :revision"), {"revision": revision})
        return client.get("/health/ready").status_code

    head = migrate.head()
    assert (at("0001"), at("9999"), at(head)) == (503, 200, 200)


@pytest.mark.req("J32")
def test_an_empty_database_is_not_ready(app_settings: MakeSettings, server: EmbeddedServer) -> None:
    server.create_database("empty_one")
    with serving(create_app(app_settings(server.url("empty_one")))) as url:
        response = httpx.get(f"{url}/health/ready", trust_env=False)
    assert response.status_code == 503
    assert response.json()["code"] == "UNAVAILABLE"


class _Given(Collector):
    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily("given_rows", "Rows", value=7)


class _Lost(Collector):
    def collect(self) -> Iterable[GaugeMetricFamily]:
        raise OperationalError("SELECT 1", {}, Exception("gone"))


@pytest.mark.req("J25")
def test_metrics_are_the_process_own_and_the_collectors(database: str, app_settings: MakeSettings) -> None:
    deps = build_deps(app_settings(database))
    for collector, shown in ((_Given(), True), (_Lost(), False)):
        given = Deps(deps.settings, deps.engine, deps.write_engine, deps.verifier, None, collectors=(collector,))
        with serving(assemble(given)) as url:
            response = httpx.get(f"{url}/metrics", trust_env=False)
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/plain")
        assert "news_snapshot_detach_quarantined_total" in response.text
        assert ("given_rows 7.0" in response.text) is shown
    deps.close()
