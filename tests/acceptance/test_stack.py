"""`pin up`: the whole stack as one command, mended when a process dies, stopped in order, and gone when killed."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.acceptance.processes import PIN, alive, environment, open_folder, started
from tests.waiting import eventually, line

__all__ = ["open_folder"]


def get(url: str, token: str | None = None, body: object = None) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    connection.request("POST" if body else "GET", parts.path, json.dumps(body) if body else None, headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def pin(*command: str, settings: dict[str, str]) -> str:
    return subprocess.run(
        [*PIN, *command], env=environment(**settings), capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


@pytest.mark.req("C5", "C6", "J23")
def test_up_serves_mends_stops_in_order_and_keeps_its_data_and_a_killed_one_leaves_nothing(open_folder: Path) -> None:
    settings = {"PIN_STATE_DIR": str(open_folder / "state"), "PIN_WEB__PORT": "0"}
    user = ["--user", "018f0000-0000-7000-8000-000000000001", "--tenant", "018f0000-0000-7000-8000-000000000002"]
    first, second = open_folder / "first.log", open_folder / "second.log"

    with started([*PIN, "up"], settings, log=first) as stack:
        news = line(stack, r"^news +(\S+)$", within=60)[1]
        selections = line(stack, r"^selections +(\S+)$")[1]
        assert get(f"{news}/health/ready")[0] == 200
        assert get(f"{news}/api/v1/posts/018f0000-0000-7000-8000-000000000003")[0] == 401
        token = pin("token", "user", *user, settings=settings)
        status, made = get(f"{selections}/api/v1/selections", token, {"title": "kept", "items": []})
        assert status == 201

        # These commands find the stack's database by themselves.
        assert pin("quarantine", "list", "-o", "json", settings=settings) == "[]"
        assert pin("migrate", settings=settings).startswith("already at")

        scheduler = re.search(r"runner=[^:\s]+:(\d+)", first.read_text())
        assert scheduler
        os.kill(int(scheduler[1]), signal.SIGKILL)
        eventually(lambda: first.read_text().count("scheduler started") == 2, within=30)
        assert "scheduler-1 ended with code -9 and starts again in 1 s" in first.read_text()

        began = time.monotonic()
        stack.terminate()
        assert stack.wait(30) == 0
        assert time.monotonic() - began < 10
    assert alive(str(open_folder)) == []
    said = first.read_text()
    ends = ["scheduler stopped", "Worker has been shut down", "news .*Finished server", "selections .*Finished server"]
    places = [match.start() for end in ends if (match := re.search(end, said))]
    assert len(places) == 4
    assert places == sorted(places)

    with started([*PIN, "up"], settings, log=second) as stack:
        selections = line(stack, r"^selections +(\S+)$", within=60)[1]
        status, kept = get(f"{selections}/api/v1/selections/{json.loads(made)['id']}", token)
        assert (status, json.loads(kept)["title"]) == (200, "kept")

        assert len(alive(str(open_folder))) > 6
        stack.kill()
        stack.wait(10)
        eventually(lambda: alive(str(open_folder)) == [], within=20)


@pytest.mark.req("C6")
def test_a_taken_port_and_a_child_that_does_not_start_are_said_in_words(open_folder: Path) -> None:
    settings = {"PIN_STATE_DIR": str(open_folder / "state"), "PIN_WEB__PORT": "0"}
    no_key = settings | {"PIN_AUTH__PUBLIC_KEYS": str(open_folder / "missing.pem")}

    def up(changed: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        settings = environment(**changed)
        return subprocess.run([*PIN, "up"], env=settings, capture_output=True, text=True, check=False, timeout=60)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = up(settings | {"PIN_WEB__PORT": port})
    ended = up(no_key)

    assert refused.returncode == 1
    assert refused.stderr.startswith(f"pin: port {port} is taken")
    assert ended.returncode == 1
    assert "ended at its start, code 78" in ended.stderr
    assert "missing.pem" in ended.stderr
    assert "Traceback" not in refused.stderr + ended.stderr
    assert alive(str(open_folder)) == []
