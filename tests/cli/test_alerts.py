"""`pin alerts`, and the console's page of the same: what is untold, retried, given up (G27, J29)."""

import json
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import Engine

from db.outbox import alerts as store
from pin.clock import new_id, utc_now
from pin.operations import audit
from pin.rules.alerts import AlertState, QuarantinedEvent
from tests.cli.conftest import Pin
from tests.job.scene import change, query

pytestmark = pytest.mark.req("G27", "J29")


def events(engine: Engine, count: int) -> list[UUID]:
    """Events whose log was told and whose webhook was not, the first the oldest."""
    made: list[UUID] = []
    for number in range(count):
        now = utc_now() - timedelta(hours=count - number)
        event = QuarantinedEvent(new_id(), new_id(), new_id(), new_id(), "PostDeleted", 12, "HTTP 503", now)
        with engine.begin() as connection:
            store.write_events(connection, [event], now, timedelta(minutes=1))
            store.take_up(connection, [event.id], ["webhook"], now, timedelta(minutes=1))
        made.append(event.id)
    change(
        engine,
        """UPDATE news.snapshot_detach_alert SET tries = 3, last_error = 'HTTP 400', handed_over = false,
               next_try_at = :at WHERE state = 'Untold'""",
        at=utc_now() + timedelta(minutes=20),
    )
    return made


def test_the_list_says_what_is_untold_first(pin: Pin, engine: Engine, database: str) -> None:
    first, second = events(engine, 2)
    listed = json.loads(pin("alerts", "list", "--ended", "-o", "json", PIN_DATABASE_URL=database).out)
    assert [(row["sink"], row["state"]) for row in listed[:2]] == [("webhook", "Untold")] * 2
    assert [row["eventId"] for row in listed[:2]] == [str(first), str(second)]
    assert (listed[0]["tries"], listed[0]["lastError"]) == (3, "HTTP 400")
    assert listed[0]["nextTryAt"] > utc_now().isoformat()
    assert {(row["sink"], row["state"]) for row in listed[2:]} == {("log", "Told")}
    assert "HTTP 400" in pin("alerts", PIN_DATABASE_URL=database).out
    assert pin("alerts", "list", "--sink", "log", PIN_DATABASE_URL=database).out == ""
    assert pin("alerts", "list", "--sink", "pager", PIN_DATABASE_URL=database).code == 2


def test_retry_makes_them_due_and_leaves_an_audit_row_each(pin: Pin, engine: Engine, database: str) -> None:
    first, second = events(engine, 2)
    asked = pin("alerts", "retry", "--all", "--reason", "it is back", PIN_DATABASE_URL=database)
    assert (asked.code, "--yes" in asked.err) == (2, True)
    dry = pin("alerts", "retry", "--all", "--reason", "r", "--dry-run", PIN_DATABASE_URL=database)
    assert (dry.code, len(audit.list_audit(engine).rows)) == (0, 0)
    why = ("--reason", "it is back", "--actor", "ada")
    done = pin("alerts", "retry", "--all", *why, "--yes", PIN_DATABASE_URL=database)
    assert done.code == 0
    with engine.begin() as connection:
        assert store.claim_due(connection, utc_now(), timedelta(minutes=1), limit=10) == {first, second}
    kept = audit.list_audit(engine, action="retry-alert").rows
    assert {row.details["event"] for row in kept} == {str(first), str(second)}
    assert {(row.actor, row.reason, row.details["tries"], row.details["lastError"]) for row in kept} == {
        ("ada", "it is back", 3, "HTTP 400")
    }


def test_what_is_given_up_is_told_no_more_and_its_event_is_over(pin: Pin, engine: Engine, database: str) -> None:
    first, second = events(engine, 2)
    done = pin("alerts", "give-up", str(first), "--sink", "webhook", "--reason", "gone", PIN_DATABASE_URL=database)
    assert done.code == 0
    over = query(engine, "SELECT id FROM news.snapshot_detach_quarantined_event WHERE alerted_at IS NOT NULL")
    assert [row.id for row in over] == [first]
    row = query(engine, "SELECT * FROM news.snapshot_detach_alert WHERE event_id = :id ORDER BY sink", id=first)[-1]
    assert (row.state, row.last_error) == (AlertState.GIVEN_UP, "HTTP 400")
    assert len(audit.list_audit(engine, action="give-up-alert").rows) == 1
    again = pin("alerts", "give-up", str(first), "--reason", "gone", PIN_DATABASE_URL=database)
    assert (again.code, "nothing was done" in again.err) == (1, True)
    assert [str(second)] == [
        one["eventId"] for one in json.loads(pin("alerts", "list", "-o", "json", PIN_DATABASE_URL=database).out)
    ]


def test_nothing_is_changed_by_a_command_that_names_nothing(pin: Pin, engine: Engine, database: str) -> None:
    events(engine, 1)
    for words in ([], ["--all", str(new_id())], ["not-an-id"]):
        assert pin("alerts", "give-up", *words, "--reason", "r", PIN_DATABASE_URL=database).code == 2
    assert pin("alerts", "give-up", "--all", "--reason", " ", PIN_DATABASE_URL=database).code == 2
    assert query(engine, "SELECT FROM news.snapshot_detach_alert WHERE state = 'GivenUp'") == []


def test_a_purge_says_what_stays_untold(pin: Pin, engine: Engine, database: str) -> None:
    (event,) = events(engine, 1)
    change(
        engine,
        """INSERT INTO news.snapshot_detach_outbox (id, snapshot_id, post_id, reason, requested_by_user_id, status,
               next_attempt_at, created_at, updated_at)
           SELECT entry_id, snapshot_id, post_id, reason, id, 'Done', :at, :at, :at
           FROM news.snapshot_detach_quarantined_event""",
        at=utc_now() - timedelta(days=40),
    )
    told = pin("purge", "--older-than", "30d", "--reason", "space", "-o", "json", PIN_DATABASE_URL=database)
    assert "1 old entries stay" in told.err
    assert json.loads(told.out) == {"entries": 0, "attempts": 0, "events": 0, "untold": 1}
    assert [row.id for row in query(engine, "SELECT id FROM news.snapshot_detach_quarantined_event")] == [event]
