"""The console's page of alerts: what is untold, by sink; retried or given up by a form (G27, J29)."""

from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from db.outbox import alerts as store
from pin.clock import new_id, utc_now
from pin.operations import audit
from pin.rules.alerts import QuarantinedEvent
from tests.console.browsing import Reading, Visitor
from tests.job.scene import change, query

pytestmark = pytest.mark.req("G27", "J29", "C5")


@pytest.fixture
def event(engine: Engine) -> UUID:
    """An event that its webhook has refused."""
    now = utc_now()
    made = QuarantinedEvent(new_id(), new_id(), new_id(), new_id(), "PostDeleted", 12, "HTTP 503", now)
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE news.snapshot_detach_quarantined_event, news.snapshot_detach_alert"))
        connection.execute(text("TRUNCATE news.snapshot_detach_audit"))
        store.write_events(connection, [made], now, timedelta(minutes=1))
        store.take_up(connection, [made.id], ["webhook"], now, timedelta(minutes=1))
    change(
        engine,
        "UPDATE news.snapshot_detach_alert SET tries = 2, last_error = 'HTTP 400', next_try_at = :at"
        " WHERE state = 'Untold'",
        at=now + timedelta(minutes=20),
    )
    return made.id


def test_the_page_shows_what_is_untold_and_why(operator: Visitor, viewer: Visitor, event: UUID) -> None:
    page = Reading(operator.get("/ops/alerts").text)
    assert "HTTP 400" in page.text
    assert page.having("input", name="alert", value=f"webhook/{event}")
    assert "pin alerts retry --all --reason WHY" in page.text
    assert not Reading(operator.get("/ops/alerts?sink=log").text).having("input", name="alert")
    seen = Reading(viewer.get("/ops/alerts").text)
    assert "HTTP 400" in seen.text
    assert not seen.having("input", name="alert")


def test_selected_alerts_are_retried_and_given_up(operator: Visitor, engine: Engine, event: UUID) -> None:
    chosen = f"webhook/{event}"
    done = operator.change("/ops/alerts", alert=chosen, what="retry", reason="it is back")
    assert done.headers["location"] == "/ops/alerts?notice=alerts-due"
    assert "The next tick tells" in operator.get(done.headers["location"]).text
    assert query(engine, "SELECT FROM news.snapshot_detach_alert WHERE sink = 'webhook' AND next_try_at <= now()")
    assert operator.change("/ops/alerts", alert=chosen, what="give-up", reason="gone").status_code == 303
    assert query(engine, "SELECT FROM news.snapshot_detach_quarantined_event WHERE alerted_at IS NOT NULL")
    assert [row.action for row in audit.list_audit(engine).rows] == ["give-up-alert", "retry-alert"]
    assert {row.actor for row in audit.list_audit(engine).rows} == {"otto"}


def test_a_form_that_is_not_whole_changes_nothing(
    operator: Visitor, viewer: Visitor, engine: Engine, event: UUID
) -> None:
    chosen = f"webhook/{event}"
    refused = [
        operator.change("/ops/alerts", what="retry", reason="r"),
        operator.change("/ops/alerts", alert=chosen, reason="r"),
        operator.change("/ops/alerts", alert=chosen, what="give-up", reason=" "),
        operator.change("/ops/alerts", alert=f"pager/{event}", what="give-up", reason="r"),
        operator.change("/ops/alerts", alert="webhook/1", what="give-up", reason="r"),
    ]
    assert {answer.status_code for answer in refused} == {400}
    assert viewer.change("/ops/alerts", alert=chosen, what="give-up", reason="r").status_code == 403
    assert query(engine, "SELECT FROM news.snapshot_detach_alert WHERE state = 'GivenUp'") == []
    assert audit.list_audit(engine).rows == ()
