import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import Engine, text

from db.outbox.intents import Intent, stage
from pin.clock import new_id, utc_now
from pin.rules.contract import Reason
from tests.acceptance.processes import environment
from tests.cli.conftest import Pin

HOSTILE = "HTTP 500\x1b]52;c;Zm9v\x07\r\nforged log line"


def entries(engine: Engine, statuses: Sequence[str], last_error: str | None = "HTTP 503") -> list[UUID]:
    """One entry of each status, the first the oldest; those Quarantined with 12 attempts and `last_error`."""
    now = utc_now()
    made = [
        Intent(new_id(), new_id(), new_id(), Reason.POST_DELETED, new_id(), due_at=now + timedelta(hours=1))
        for _ in statuses
    ]
    with engine.begin() as connection:
        stage(connection, made, now)
        for number, (intent, status) in enumerate(zip(made, statuses, strict=True)):
            connection.execute(
                text("""
                    UPDATE news.snapshot_detach_outbox SET status = :status, attempts = 12, updated_at = :now,
                        last_error = :error WHERE id = :id
                """),
                {
                    "id": intent.id,
                    "status": status,
                    "now": now + timedelta(seconds=number),
                    "error": None if status == "Done" else last_error,
                },
            )
    return [intent.id for intent in made]


def row(engine: Engine, entry: UUID) -> tuple[str, int, int]:
    statement = text("SELECT status, attempts, version FROM news.snapshot_detach_outbox WHERE id = :id")
    with engine.connect() as connection:
        found = connection.execute(statement, {"id": entry}).one()
    return found.status, found.attempts, found.version


def audits(engine: Engine) -> list[tuple[UUID, str, str, str]]:
    statement = text("SELECT entry_id, actor, action, reason FROM news.snapshot_detach_audit ORDER BY id")
    with engine.connect() as connection:
        return [(found.entry_id, found.actor, found.action, found.reason) for found in connection.execute(statement)]


@pytest.mark.req("J29", "J30.5")
def test_the_list_shows_the_quarantined_alone_longest_first(pin: Pin, database: str, engine: Engine) -> None:
    first, _, _, last = entries(engine, ["Quarantined", "Pending", "Done", "Quarantined"])

    table = pin("quarantine", "list", PIN_DATABASE_URL=database)
    as_json = pin("quarantine", "list", "-o", "json", PIN_DATABASE_URL=database)
    lines = pin("quarantine", "list", "-o", "jsonl", PIN_DATABASE_URL=database)

    assert table.code == as_json.code == lines.code == 0
    heading, *rows = table.out.splitlines()
    assert heading.split()[:2] == ["id", "snapshotId"]
    assert [text.split()[0] for text in rows] == [str(first), str(last)]
    assert all("HTTP 503" in text for text in rows)
    found = json.loads(as_json.out)
    assert [each["id"] for each in found] == [str(first), str(last)]
    assert found[0] | {"id": "", "snapshotId": "", "postId": "", "createdAt": "", "quarantinedAt": ""} == {
        "id": "",
        "snapshotId": "",
        "postId": "",
        "reason": "PostDeleted",
        "attempts": 12,
        "lastError": "HTTP 503",
        "createdAt": "",
        "quarantinedAt": "",
    }
    assert [json.loads(each) for each in lines.out.splitlines()] == found


@pytest.mark.req("J29")
def test_a_list_that_is_cut_or_empty_says_so_beside_the_data(pin: Pin, database: str, engine: Engine) -> None:
    empty = pin("quarantine", "list", "-o", "json", PIN_DATABASE_URL=database)
    entries(engine, ["Quarantined"] * 3)
    cut = pin("quarantine", "list", "--limit", "2", "-o", "jsonl", PIN_DATABASE_URL=database)

    assert (empty.code, empty.out, empty.err) == (0, "[]\n", "nothing is quarantined\n")
    assert len(cut.out.splitlines()) == 2
    assert "more than these 2" in cut.err


@pytest.mark.case("A22")
@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_text_from_outside_is_inert_in_the_list(pin: Pin, database: str, engine: Engine, output: str) -> None:
    entries(engine, ["Quarantined"], last_error=HOSTILE)

    shown = pin("quarantine", "list", "-o", output, PIN_DATABASE_URL=database).out

    assert "HTTP 500" in shown
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert len(shown.splitlines()) == {"table": 2, "json": 12, "jsonl": 1}[output]


@pytest.mark.req("J29", "J30.5", "G21")
def test_a_quarantined_entry_goes_back_to_the_job_with_an_audit_row(pin: Pin, database: str, engine: Engine) -> None:
    (entry,) = entries(engine, ["Quarantined"])

    ended = pin(
        "quarantine", "requeue", str(entry).upper(), "--reason", "deployed", "--actor", "ada", PIN_DATABASE_URL=database
    )

    assert (ended.code, ended.out) == (0, f"{entry}  requeued\n")
    assert row(engine, entry) == ("Pending", 0, 1)
    assert audits(engine) == [(entry, "ada", "requeue", "deployed")]


@pytest.mark.req("J29", "G21")
@pytest.mark.case("A15")
def test_every_id_gets_its_answer_and_what_is_not_quarantined_stays(pin: Pin, database: str, engine: Engine) -> None:
    quarantined, pending, done = entries(engine, ["Quarantined", "Pending", "Done"])
    unknown = new_id()
    before = row(engine, pending), row(engine, done)
    ids = [str(one) for one in (quarantined, pending, done, unknown, quarantined)]

    ended = pin("quarantine", "requeue", *ids, "--reason", "r", "--yes", PIN_DATABASE_URL=database)
    again = pin("quarantine", "requeue", str(quarantined), "--reason", "r", PIN_DATABASE_URL=database)

    assert ended.code == 1
    assert ended.out.splitlines() == [
        f"{quarantined}  requeued",
        f"{pending}  not quarantined, it is Pending: unchanged",
        f"{done}  not quarantined, it is Done: unchanged",
        f"{unknown}  unknown",
    ]
    assert ended.err == "1 of 4 requeued\n"
    assert (row(engine, pending), row(engine, done)) == before
    assert (again.code, again.out) == (1, f"{quarantined}  not quarantined, it is Pending: unchanged\n")
    assert [audit[0] for audit in audits(engine)] == [quarantined]


@pytest.mark.req("J29")
def test_more_than_one_is_never_moved_unasked(pin: Pin, database: str, engine: Engine) -> None:
    ids = entries(engine, ["Quarantined", "Quarantined"])

    ended = pin("quarantine", "requeue", *map(str, ids), "--reason", "r", PIN_DATABASE_URL=database)

    assert ended.code == 2
    assert "2 entries and no terminal to ask on" in ended.err
    assert [row(engine, one)[0] for one in ids] == ["Quarantined", "Quarantined"]


@pytest.mark.req("J29")
@pytest.mark.parametrize(("said", "code", "status"), [("n", 1, "Quarantined"), ("y", 0, "Pending")])
def test_on_a_terminal_it_asks_with_the_count(database: str, engine: Engine, said: str, code: int, status: str) -> None:
    ids = entries(engine, ["Quarantined", "Quarantined"])
    ours, theirs = pty.openpty()
    os.write(ours, f"{said}\n".encode())

    ended = subprocess.run(
        [sys.executable, "-m", "pin.cli", "quarantine", "requeue", *map(str, ids), "--reason", "r"],
        env=environment(PIN_DATABASE_URL=database),
        stdin=theirs,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(ours)
    os.close(theirs)

    assert "Requeue 2 entries?" in ended.stderr
    assert ended.returncode == code
    assert {row(engine, one)[0] for one in ids} == {status}


@pytest.mark.req("J29")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["not-an-id", "018f0000-0000-7000-8000-000000000001", "x", "--reason", "r"], "'not-an-id', 'x'; nothing was"),
        (["018f0000-0000-7000-8000-000000000001", "--reason", " "], "an actor and a reason are needed"),
        (["018f0000-0000-7000-8000-000000000001", "--reason", "r" * 513], "longer than 512 characters"),
        (["018f0000-0000-7000-8000-000000000001", "--reason", "r", "--actor", ""], "an actor and a reason are needed"),
        (["018f0000-0000-7000-8000-000000000001"], "Missing option '--reason'"),
        (["--reason", "r"], "Missing argument 'ID...'"),
    ],
)
def test_a_wrong_command_line_is_refused_in_words(pin: Pin, database: str, arguments: list[str], message: str) -> None:
    ended = pin("quarantine", "requeue", *arguments, PIN_DATABASE_URL=database)

    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


@pytest.mark.req("J29")
def test_a_database_that_is_down_or_not_migrated_is_said_in_a_line(pin: Pin, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE DATABASE not_migrated")
    empty = f"{database.rpartition('/')[0]}/not_migrated"

    down = pin("quarantine", "list", PIN_DATABASE_URL="postgresql://pin:secret@127.0.0.1:9/pin")
    raw = pin("quarantine", "list", PIN_DATABASE_URL=empty)

    assert (down.code, down.out) == (69, "")
    assert down.err.startswith("pin: the database does not answer: ")
    assert len(down.err.splitlines()) == 1
    assert "secret" not in down.err
    assert (raw.code, raw.err) == (69, "pin: the database's schema is not this version's: run `pin migrate`\n")
