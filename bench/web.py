"""The web side under load: `python -m bench.web`. Two figures, each a ratio within a round, the medians count.

Detach: `POST …/detach` of as many Active snapshots through a number of kept-alive connections, against the same UPDATE
by pgbench through as many sessions, on the same server. Reads: the p99 of a post's GET while 50 set-blocks wait for a
selections that says nothing, against the p99 with nobody waiting. Ends with 1 beyond a bound.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import httpx
import uvloop

from bench.database import Databases, FreshDatabase
from bench.processes import clean_environment, running
from bench.run import BenchError, until
from bench.work import REASON, USER
from db.embedded.place import place_programs
from db.embedded.server import EmbeddedServer
from pin.access.signing import mint, new_key_pair
from pin.clock import new_id, utc_now
from pin.config.sections import AuthOptions
from pin.rules.contract import DETACH_PATH, NEWS_CLIENT

DETACH_BOUND = 0.35
"""Detaches a second, against the same UPDATE by pgbench."""
READ_BOUND = 2.0
"""A GET's p99 beside the waiting writers, against alone."""
WRITERS = 50

_ROOT = Path(__file__).parents[1]
_READERS, _READS = 4, 2_000
_ACTIVE = """
    INSERT INTO selections.snapshot (id, status, selection_id, content, requested_by_user_id, created_at, updated_at)
    SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'Active', gen_random_uuid(),
           '{"title": "t", "items": []}', gen_random_uuid(), now(), now()
    FROM generate_series(%s::bigint, %s::bigint) n
"""
_SCRIPT = f"""\\set i :i + 1
\\set n :first + :client_id * :per + :i
WITH detached AS (
    UPDATE selections.snapshot
    SET status = 'Detached', detached_at = now(), detach_reason = '{REASON}', updated_at = now(), version = version + 1
    WHERE id = CAST('00000000-0000-7000-8000-' || lpad(to_hex(CAST(:n AS bigint)), 12, '0') AS uuid)
        AND status = 'Active' AND version = 0
    RETURNING id, detached_at, detach_reason
)
INSERT INTO selections.snapshot_detached_event (snapshot_id, event_id, reason, requested_by_user_id, occurred_at)
SELECT id, gen_random_uuid(), detach_reason, '{USER}', detached_at FROM detached;
"""
_DETACHED = "SELECT count(*) FROM selections.snapshot WHERE status = 'Detached'"


@dataclass(frozen=True, slots=True)
class Load:
    """What one load came to: requests a second, and the p50 and p99 in milliseconds."""

    rate: float
    p50: float
    p99: float


def main(arguments: Sequence[str]) -> int:
    """Measure, print, answer the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=__doc__)
    parser.add_argument("-n", type=int, default=4_000, help="detaches a round")
    parser.add_argument("-c", type=int, default=16, help="connections")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    said, reached = measure(given.n, given.c, given.rounds)
    sys.stdout.write("\n".join([*said, ""]))
    return 0 if reached else 1


def measure(count: int, connections: int, rounds: int) -> tuple[list[str], bool]:
    """Both figures as lines with their bounds, and whether every bound is reached. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="pin-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # root's server runs as another user
        private, public = new_key_pair(folder, "news")
        with EmbeddedServer(folder / "postgres") as server:
            databases = Databases(server)
            with databases.fresh() as database:
                detach = _detach(database, folder, (private, public), count, connections, rounds)
            with databases.fresh() as database:
                reads = _reads(database, folder, (private, public), rounds)
            databases.close()
    return [*detach[0], *reads[0]], detach[1] and reads[1]


def _detach(
    database: FreshDatabase,
    folder: Path,
    keys: tuple[Path, Path],
    count: int,
    connections: int,
    rounds: int,
) -> tuple[list[str], bool]:
    per = count // connections
    said: list[str] = []
    ratios: list[float] = []
    (folder / "detach.sql").write_text(_SCRIPT)
    head = {"authorization": f"Bearer {_token(keys[0], client=NEWS_CLIENT)}", "content-type": "application/json"}
    body = json.dumps({"reason": REASON, "requestedByUserId": str(USER)}).encode()
    with _web(database, folder, keys, PIN_CONTEXTS="selections") as url:
        _once(url, head)
        for number in range(rounds):
            first = 2 * number * count + 1
            database.connection.execute(_ACTIVE, (first, first + 2 * count - 1))
            database.connection.execute("VACUUM ANALYZE selections.snapshot")
            database.connection.execute("CHECKPOINT")
            before = database.number(_DETACHED)
            paths = [DETACH_PATH.format(id=_id(first + n)) for n in range(per * connections)]
            web = load(url, [_request("POST", path, head, body) for path in paths], connections)
            bare = _pgbench(database, folder, first + count - 1, per, connections)
            done = database.number(_DETACHED) - before
            if done != 2 * per * connections:
                raise BenchError(f"{done} of {2 * per * connections} snapshots detached")
            ratios.append(web.rate / bare)
            said.append(
                f"round {number + 1}: detach {web.rate:.0f}/s, p50 {web.p50:.1f} ms, p99 {web.p99:.1f} ms;"
                f" pgbench {bare:.0f}/s; {connections} connections"
            )
    ratio = statistics.median(ratios)
    said.append(f"web: detach / the same UPDATE by pgbench = {ratio:.2f} (bound {DETACH_BOUND:g})")
    return said, ratio >= DETACH_BOUND


def _pgbench(database: FreshDatabase, folder: Path, first: int, per: int, connections: int) -> float:
    found = subprocess.run(
        [
            str(_pgbench_program()), "-n", "-M", "prepared", "-c", str(connections), "-j", "1", "-t", str(per),
            "-D", "i=0", "-D", f"first={first}", "-D", f"per={per}", "-f", str(folder / "detach.sql"), database.url,
        ],
        check=True,
        capture_output=True,
        text=True,
    )  # fmt: skip
    rate = re.search(r"tps = ([\d.]+)", found.stdout)
    if rate is None:
        raise BenchError(f"pgbench said no rate: {found.stdout[-500:]}")
    return float(rate[1])


def _reads(database: FreshDatabase, folder: Path, keys: tuple[Path, Path], rounds: int) -> tuple[list[str], bool]:
    said: list[str] = []
    ratios: list[float] = []
    user = {"authorization": f"Bearer {_token(keys[0], user_id=new_id(), tenant_id=new_id())}"}
    patience = {"PIN_WEB__CREATE_TIMEOUT": "100s", "PIN_WEB__REQUEST_TIMEOUT": "110s"}
    for number in range(rounds):
        with (
            _silence() as (silent_url, heard),
            _web(database, folder, keys, PIN_CONTEXTS="news", PIN_SELECTIONS_URL=silent_url, **patience) as url,
            httpx.Client(base_url=f"{url}/api/v1", headers=user, timeout=120, trust_env=False) as http,
        ):
            posts = [_post(http) for _ in range(WRITERS)]
            get = _request("GET", f"/api/v1/posts/{posts[0][0]}", user)
            load(url, [get] * 500, _READERS)
            alone = load(url, [get] * _READS, _READERS)
            writers = [threading.Thread(target=_write, args=(url, user, *post), daemon=True) for post in posts]
            for writer in writers:
                writer.start()
            until(lambda: heard() >= WRITERS, "not every set-blocks reached selections")
            beside = load(url, [get] * _READS, _READERS)
            if not all(writer.is_alive() for writer in writers):
                raise BenchError("a set-blocks was answered before the reads were over")
        for writer in writers:
            writer.join()
        ratios.append(beside.p99 / alone.p99)
        said.append(
            f"round {number + 1}: GET {alone.rate:.0f}/s, p99 {alone.p99:.1f} ms;"
            f" beside {WRITERS} waiting set-blocks {beside.rate:.0f}/s, p99 {beside.p99:.1f} ms"
        )
    ratio = statistics.median(ratios)
    said.append(f"web: a GET's p99 beside {WRITERS} waiting set-blocks / alone = {ratio:.2f} (at most {READ_BOUND:g})")
    return said, ratio <= READ_BOUND


def _post(http: httpx.Client) -> tuple[str, str]:
    made = http.post("/posts", json={"title": "t", "blocks": [{"kind": "Text", "body": "x"}]}).raise_for_status()
    return made.json()["id"], made.headers["etag"]


def _write(url: str, user: dict[str, str], post: str, etag: str) -> None:
    """A set-blocks that waits for selections; the end of the round cuts it off."""
    blocks = {"blocks": [{"kind": "SelectionEmbed", "selectionId": str(new_id())}]}
    with contextlib.suppress(httpx.HTTPError):
        httpx.put(
            f"{url}/api/v1/posts/{post}/blocks", json=blocks, headers=user | {"if-match": etag}, timeout=120,
            trust_env=False,
        )  # fmt: skip


@contextlib.contextmanager
def _silence() -> Iterator[tuple[str, Callable[[], int]]]:
    """A selections that takes requests and never answers; how many it has been sent."""
    heard: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)

    def listen() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            heard.append(accepted)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", lambda: len(heard)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for each in heard:
            each.close()


def load(url: str, requests: Sequence[bytes], connections: int) -> Load:
    """All these requests, dealt out to so many kept-alive connections, one at a time on each.

    Raises BenchError for an answer that is no 200.
    """
    port = int(url.rpartition(":")[2])

    async def run() -> tuple[float, list[float]]:
        took: list[float] = []
        lanes = [requests[n::connections] for n in range(connections)]
        began = time.perf_counter()
        await asyncio.gather(*(_lane(port, lane, took) for lane in lanes))
        return time.perf_counter() - began, took

    seconds, took = uvloop.run(run())
    cuts = statistics.quantiles(took, n=100)
    return Load(len(requests) / seconds, cuts[49] * 1000, cuts[98] * 1000)


async def _lane(port: int, requests: Sequence[bytes], took: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in requests:
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1]) if length else 0)
        took.append(time.perf_counter() - began)
        if not head.startswith(b"HTTP/1.1 200"):
            raise BenchError(f"{head.splitlines()[0].decode()}: {body[:200].decode(errors='replace')}")
    writer.close()


def _request(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: bench", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


@contextlib.contextmanager
def _web(database: FreshDatabase, folder: Path, keys: tuple[Path, Path], **settings: str) -> Iterator[str]:
    """The production web process, `pin web`, settings by environment alone and the rest at their defaults."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = clean_environment(
        PIN_DATABASE_URL=database.url,
        PIN_AUTH__PUBLIC_KEYS=str(keys[1]),
        PIN_AUTH__M2M_PRIVATE_KEY=str(keys[0]),
        PIN_WEB__PORT=str(port),
        PYTHONPATH=str(_ROOT),
        **settings,
    )
    command = [str(Path(sys.executable).with_name("pin")), "web"]
    run_folder = folder / "web"
    run_folder.mkdir(exist_ok=True)
    with running([command], environment=environment, folder=run_folder) as (process,):

        def is_ready() -> bool:
            if process.poll() is not None:
                raise BenchError((run_folder / "output.log").read_text()[-2000:])
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"http://127.0.0.1:{port}/health/ready", trust_env=False).status_code == 200
            return False

        until(is_ready, "the web process is not ready")
        yield f"http://127.0.0.1:{port}"


def _once(url: str, head: dict[str, str]) -> None:
    """Imports, connections and caches are warm before the clock runs: 404s for ids that nobody has."""
    body = {"reason": REASON, "requestedByUserId": str(USER)}
    with httpx.Client(base_url=url, headers=head, trust_env=False) as http:
        for _ in range(200):
            http.post(DETACH_PATH.format(id=new_id()), json=body)


def _token(key: Path, **who: str | UUID) -> str:
    auth = AuthOptions()
    return mint(
        key.read_bytes(),
        kid=key.stem,
        issuer=auth.issuer,
        audience=auth.audience,
        lifetime=timedelta(hours=1),
        now=utc_now(),
        **who,  # type: ignore[arg-type]
    )


def _id(number: int) -> UUID:
    return UUID(f"00000000-0000-7000-8000-{number:012x}")


def _pgbench_program() -> Path:
    return place_programs(as_root=os.geteuid() == 0) / "pgbench"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
