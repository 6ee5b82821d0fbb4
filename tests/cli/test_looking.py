"""Commands that only look."""

import json
import os
import signal
import subprocess
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine, make_url

from pin.cli.opening import settings_here
from pin.clock import new_id, utc_now
from pin.stack.local import ensure_keys, published_database
from tests.acceptance.processes import PIN, started
from tests.cli.conftest import Pin
from tests.job.scene import change, stage
from tests.waiting import line

HOSTILE = "HTTP 500\x1b]52;c;Zm9v\x07\r\nforged"


def tick(engine: Engine, result: str = "Completed", minutes: float = 1) -> UUID:
    run_id, at = new_id(), utc_now() - timedelta(minutes=minutes)
    change(
        engine,
        """INSERT INTO news.snapshot_detach_run (id, runner, started_at, ended_at, result, halted_by)
           VALUES (:id, :runner, :at, :at, :result, :halted)""",
        id=run_id,
        runner=HOSTILE,
        at=at,
        result=result,
        halted=HOSTILE,
    )
    return run_id


def failed_entry(engine: Engine) -> UUID:
    (entry,) = stage(engine, [new_id()], now=utc_now() - timedelta(minutes=20))
    change(
        engine,
        "UPDATE news.snapshot_detach_outbox SET last_error = :error, attempts = 2, version = 4 WHERE id = :id",
        error=HOSTILE,
        id=entry,
    )
    change(
        engine,
        """INSERT INTO news.snapshot_detach_attempt
               (entry_id, entry_version, attempt, run_id, outcome, error, duration_ms, worker, recorded_at)
           VALUES (:entry, 3, 2, :run, 'Retried', :error, 7, :error, :now)""",
        entry=entry,
        run=new_id(),
        error=HOSTILE,
        now=utc_now(),
    )
    return entry


@pytest.mark.req("J27", "J29")
def test_status_says_it_in_a_sentence_and_by_its_exit_code(pin: Pin, database: str, engine: Engine) -> None:
    none = pin("status", PIN_DATABASE_URL=database)
    tick(engine)
    well = pin("status", "-o", "json", PIN_DATABASE_URL=database)
    failed_entry(engine)
    stuck = pin("status", "-o", "jsonl", PIN_DATABASE_URL=database)

    assert (none.code, none.out.splitlines()[0]) == (
        1,
        "No runner: no run has ever been recorded in this database.",
    )
    assert "runbook: docs/runbooks/no-runs.md" in none.out
    assert well.code == 0
    found = json.loads(well.out)
    assert found["verdict"]["kind"] == "Delivering"
    assert {"pending", "oldestAge", "lastRuns", "deliveredLastMinute", "nextTick", "pause", "lock"} <= found.keys()
    assert stuck.code == 1
    (told,) = stuck.out.splitlines()
    assert json.loads(told)["verdict"]["kind"] == "Stuck"
    assert json.loads(told)["oldestAge"] >= 1200


@pytest.mark.req("J29")
def test_status_watches_until_it_is_interrupted(database: str, engine: Engine) -> None:
    tick(engine)
    command = [*PIN, "status", "--watch", "--interval", "0.2", "-o", "jsonl"]
    with started(command, {"PIN_DATABASE_URL": database}) as process:
        line(process, '"kind": "Delivering"')
        line(process, '"kind": "Delivering"')
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == 0


@pytest.mark.case("A22")
@pytest.mark.req("J29")
@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_text_from_outside_is_inert_wherever_it_is_printed(
    pin: Pin, database: str, engine: Engine, output: str
) -> None:
    run_id, entry = tick(engine, "Halted"), failed_entry(engine)
    change(
        engine,
        """INSERT INTO news.snapshot_detach_audit (id, actor, action, reason, details, occurred_at)
           VALUES (:id, :text, 'pause', :text, '{"a": "\\u001b[2J"}', :now)""",
        id=new_id(),
        text=HOSTILE,
        now=utc_now(),
    )
    for command in (
        ["status"],
        ["entries", "list"],
        ["entries", "show", str(entry)],
        ["runs", "list"],
        ["runs", "show", str(run_id)],
        ["audit", "list"],
        ["system"],
    ):
        ended = pin(*command, "-o", output, PIN_DATABASE_URL=database)
        assert all(char.isprintable() or char == "\n" for char in ended.out + ended.err), command
        assert "\nforged" not in ended.out


@pytest.mark.req("J29")
def test_entries_are_searched_and_paged(pin: Pin, database: str, engine: Engine) -> None:
    entry = failed_entry(engine)
    others = stage(engine, [new_id() for _ in range(2)])

    found = pin("entries", "list", "age:>5m", "error:http 500", "-o", "json", PIN_DATABASE_URL=database)
    first = pin("entries", "list", "--limit", "2", "-o", "jsonl", PIN_DATABASE_URL=database)
    key = first.err.split("--after ")[1].strip()
    rest = pin("entries", "list", "--after", key, "-o", "jsonl", PIN_DATABASE_URL=database)
    bad = pin("entries", "list", "color:red", PIN_DATABASE_URL=database)
    foreign = pin("entries", "list", "--after", "x", PIN_DATABASE_URL=database)

    assert [one["id"] for one in json.loads(found.out)] == [str(entry)]
    assert found.err == "1 Pending, 0 Done, 0 Quarantined\n"
    assert {json.loads(one)["id"] for one in first.out.splitlines()} == {str(one) for one in others}
    assert [json.loads(one)["id"] for one in rest.out.splitlines()] == [str(entry)]
    assert (bad.code, bad.out) == (2, "")
    assert "'color:red': no such token" in bad.err
    assert (foreign.code, foreign.out) == (2, "")


@pytest.mark.req("J29", "G7")
def test_an_entrys_life_is_told(pin: Pin, database: str, engine: Engine) -> None:
    entry = failed_entry(engine)

    table = pin("entries", "show", str(entry), PIN_DATABASE_URL=database)
    as_json = json.loads(pin("entries", "show", str(entry), "-o", "json", PIN_DATABASE_URL=database).out)
    unknown = pin("entries", "show", str(new_id()), PIN_DATABASE_URL=database)
    none = pin("entries", "show", "seven", PIN_DATABASE_URL=database)

    kinds = [moment["kind"] for moment in as_json["timeline"]]
    assert kinds == ["Staged", "Lost", "Attempt"]
    assert as_json["timeline"][2]["attempt"]["durationMs"] == 7
    assert as_json["next"]["kind"] == "Attempt"
    assert "attempt 3 of 12" in table.out
    assert "outcome unknown" in table.out
    assert (unknown.code, unknown.err) == (1, "pin: there is no such entry\n")
    assert none.code == 2


@pytest.mark.req("J29")
def test_runs_are_listed_and_shown(pin: Pin, database: str, engine: Engine) -> None:
    run_id = tick(engine)
    tick(engine, "Skipped", minutes=0)

    listed = pin("runs", "list", "--no-skipped", "-o", "json", PIN_DATABASE_URL=database)
    shown = pin("runs", "show", str(run_id), "-o", "json", PIN_DATABASE_URL=database)

    assert [one["id"] for one in json.loads(listed.out)] == [str(run_id)]
    assert json.loads(shown.out)["attempts"] == []
    assert {"startedAt", "endedAt", "result", "claimed", "haltedBy"} <= json.loads(shown.out).keys()
    assert pin("runs", "show", str(new_id()), PIN_DATABASE_URL=database).code == 1


@pytest.mark.req("J29", "J24")
def test_the_system_is_shown_without_secrets(pin: Pin, database: str) -> None:
    found = json.loads(pin("system", "-o", "json", PIN_DATABASE_URL=database).out)
    assert found["schema"] == found["schemaKnown"]
    assert {"pin", "postgresql"} <= found["versions"].keys()
    password = make_url(database).password or ""
    assert password
    assert password not in json.dumps(found)
    assert "news.snapshot_detach_outbox" in pin("system", PIN_DATABASE_URL=database).out


@pytest.mark.req("J7")
def test_a_setting_is_explained(pin: Pin) -> None:
    given = pin("config", "explain", "retry.batch_size", "-o", "json", PIN_RETRY__BATCH_SIZE="7")
    default = pin("config", "explain", "PIN_QUEUE__POLL", "-o", "json")
    unknown = pin("config", "explain", "retry.batchsize")

    found = json.loads(given.out)
    assert (found["name"], found["value"], found["default"]) == ("PIN_RETRY__BATCH_SIZE", "7", "100")
    assert found["from"] == "environment"
    found = json.loads(default.out)
    assert found["from"] == "default"
    assert "looks for messages" in found["about"]
    assert (unknown.code, unknown.out) == (2, "")
    assert "did you mean PIN_RETRY__BATCH_SIZE?" in unknown.err


@pytest.mark.req("C6")
def test_the_schema_is_checked_and_brought_up(pin: Pin, database: str, engine: Engine) -> None:
    assert pin("db", "check", PIN_DATABASE_URL=database).out.startswith("the schema is at ")
    assert "already at" in pin("db", "migrate", PIN_DATABASE_URL=database).out
    change(engine, "UPDATE public.schema_version SET version_num = '0001'")
    old = pin("db", "check", PIN_DATABASE_URL=database)
    assert (old.code, old.out) == (69, "")
    assert "run `pin db migrate`" in old.err


@pytest.mark.req("C6")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(pin: Pin, shell: str) -> None:
    assert "_PIN_COMPLETE" in pin("completion", shell).out


@pytest.mark.req("C6")
def test_completion_completes_nouns() -> None:
    ended = subprocess.run(
        PIN,
        env=os.environ | {"_PIN_COMPLETE": "bash_complete", "COMP_WORDS": "pin qua", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "quarantine" in ended.stdout


@pytest.mark.req("C6")
def test_beside_a_running_local_stack_nothing_need_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = ensure_keys(tmp_path / ".pin")
    alone = settings_here()
    with published_database(tmp_path / ".pin", database):
        beside = settings_here()
        monkeypatch.setenv("PIN_SELECTIONS_URL", "http://elsewhere")
        told = settings_here()

    assert (alone.selections_url, alone.auth.m2m_private_key) == ("http://127.0.0.1:8000", None)
    assert (beside.database_url, beside.selections_url) == (database, "http://127.0.0.1:8001")
    assert beside.auth.m2m_private_key == keys.private
    assert (told.database_url, told.selections_url) == (database, "http://elsewhere")
