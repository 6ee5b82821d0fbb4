"""The outbox's gauges on `/metrics`, read from the database at each scrape."""

from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest
from litestar import Litestar
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine

from pin.clock import new_id, utc_now
from tests.job.scene import change, stage
from tests.serving import MakeSettings
from web.app import create_app


@pytest.mark.req("J25")
def test_the_backlog_is_scraped_as_it_stands_and_absent_when_the_database_is_gone(
    database: str, engine: Engine, app_settings: MakeSettings, serve: Callable[[Litestar], str]
) -> None:
    url = serve(create_app(app_settings(database, contexts=("news",))))

    def gauges() -> dict[str, float]:
        families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
        prefix = "news_snapshot_detach_"
        wanted = {prefix + name for name in ("pending", "oldest_age_seconds", "quarantined_entries")}
        return {s.name.removeprefix(prefix): s.value for f in families for s in f.samples if s.name in wanted}

    assert gauges() == {"pending": 0, "oldest_age_seconds": 0, "quarantined_entries": 0}
    now = utc_now()
    stage(engine, [new_id() for _ in range(2)], now=now - timedelta(minutes=5))
    stage(engine, [new_id()], is_guard=True, due=now + timedelta(minutes=1), now=now - timedelta(hours=1))
    stage(engine, [new_id()])
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Quarantined' WHERE created_at > :t", t=now)
    found = gauges()
    assert (found["pending"], found["quarantined_entries"]) == (2, 1), "a guard counts only once it is overdue"
    assert 300 <= found["oldest_age_seconds"] < 330
    change(engine, "ALTER TABLE news.snapshot_detach_outbox RENAME TO elsewhere")
    assert gauges() == {}
