"""Text from outside is inert in the row, in the log of real processes, and on the operator's terminal (A22)."""

import json
import subprocess
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from pin.clock import new_id
from tests.acceptance.processes import PIN, environment
from tests.cases.fleet import Fleet
from tests.fake_selections import Call, Close, FakeSelections, Script, reply
from tests.job.scene import rows, stage
from tests.waiting import eventually

FORGED = '{"event": "entry detached", "level": "info"}'
BODIES = [
    b"<script>alert(1)</script><img src=x onerror=alert(1)>",
    b"\x1b[2J\x1b[31mred\x1b]0;title\x07",
    b"\x1b]52;c;Zm9v\x07",
    b"first\rsecond",
    b"\r\n" + FORGED.encode() + b"\r\n",
    "\u202eright to left \u2028 a line \x85".encode(),
]
MARKS = ("script", "\x1b", "Zm9v", "second", "entry detached", "right to left", "hostile")


@pytest.mark.case("A22")
@pytest.mark.req("J14", "J24")
@pytest.mark.parametrize("output", ["table", "jsonl"])
def test_hostile_replies_reach_neither_row_nor_log_nor_terminal(
    database: str, engine: Engine, make_fleet: Callable[..., Fleet], selections: FakeSelections, output: str
) -> None:
    def answer(_call: Call) -> Script:
        number = len(selections.calls) % len(BODIES)
        if number == 0:  # the status line's phrase is text from outside as well
            return [b"HTTP/1.1 500 \x1b[31mhostile\r\nContent-Length: 0\r\n\r\n", Close()]
        return reply(500, BODIES[number], content_type="text/html", headers=[("X-Hostile", "\x1b[31mhostile")])

    selections.answer = answer
    fleet = make_fleet(database, selections.url, PIN_RETRY__MAX_ATTEMPTS="1")
    entries = stage(engine, [new_id() for _ in range(len(BODIES) * 2)])
    worker, scheduler = fleet.worker(), fleet.scheduler()
    eventually(lambda: {r.status for r in rows(engine, entries)} == {"Quarantined"}, within=30)
    worker.says('"entry quarantined"', times=len(entries))

    assert {r.last_error for r in rows(engine)} <= {"HTTP 500", "INVALID_RESPONSE", "NETWORK"}
    said = [json.loads(text) for text in worker.output().splitlines() if text.startswith("{")]
    assert sum(each["event"] == "entry quarantined" for each in said) == len(entries), "one event an error"
    for process in (worker, scheduler):
        assert [mark for mark in MARKS if mark in process.output()] == []
    listed = subprocess.run(
        [*PIN, "quarantine", "list", "-o", output],
        env=environment(PIN_DATABASE_URL=database),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert all(char.isprintable() or char == "\n" for char in listed)
    assert [mark for mark in MARKS if mark in listed] == []
    assert len(listed.splitlines()) == len(entries) + (output == "table")
