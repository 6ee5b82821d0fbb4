"""How each peer is filled, started and looked at. In flight and processes: the best of a small search on 2 cores."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.database import Databases
from bench.peers import installing
from bench.processes import clean_environment, running
from bench.ratios import AIOHTTP_LOOP, GRAPHILE_WORKER, PG_BOSS, PGQUEUER, PROCRASTINATE, Sample
from bench.run import BenchError, measured
from bench.work import Work

_HERE = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True)
class Peer:
    """One system. `shape`: by the endpoint's delay in ms, (processes, calls in flight a process)."""

    system: str
    program: str
    left: str
    shape: dict[int, tuple[int, int]]


PEERS = (
    Peer(
        GRAPHILE_WORKER,
        "graphile.mjs",
        "SELECT count(*) FROM graphile_worker._private_jobs",
        {0: (1, 24), 20: (2, 100)},
    ),
    Peer(
        PG_BOSS,
        "pgboss.mjs",
        "SELECT count(*) FROM pgboss.job WHERE name = 'detach' AND state < 'completed'",
        {0: (1, 32), 20: (2, 100)},
    ),
    Peer(PGQUEUER, "pgqueuer_peer.py", "SELECT count(*) FROM pgqueuer", {0: (2, 16), 20: (2, 100)}),
    Peer(
        PROCRASTINATE,
        "procrastinate_peer.py",
        "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        {0: (2, 16), 20: (2, 32)},
    ),
    Peer(AIOHTTP_LOOP, "aiohttp_loop.py", "", {0: (1, 8), 20: (1, 128)}),
)


def available() -> list[Peer]:
    """The peers that can run here; what is missing is said."""
    python, node = installing.python(), installing.node()
    return [peer for peer in PEERS if (node if peer.program.endswith(".mjs") else python) is not None]


def run(work: Work, folder: Path, databases: Databases, peer: Peer) -> Sample:
    """One run of the peer. Raises BenchError when it does not do its work."""
    processes, in_flight = peer.shape.get(work.delay_ms, peer.shape[max(peer.shape)])
    is_node = peer.program.endswith(".mjs")
    interpreter = installing.node() if is_node else installing.python()
    environment = clean_environment(
        BENCH_ENDPOINT=work.endpoint.url,
        BENCH_TOKEN=work.token_file.read_text(),
        BENCH_IDS=str(work.ids_file),
        BENCH_IN_FLIGHT=str(in_flight),
        BENCH_NODE=str(installing.folder() / "node"),
        PYTHONPATH=str(_HERE),
    )
    command = [str(interpreter), str(_HERE / peer.program)]
    if not peer.left:
        with running([command], environment=environment, folder=folder) as started:
            return measured(work, [process.pid for process in started]).sample(peer.system, work)
    with databases.fresh(stock=True) as database:
        environment["BENCH_DATABASE"] = database.url
        filled = subprocess.run(
            [*command, "fill"], env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        if filled.returncode:
            raise BenchError(f"{peer.system}: {filled.stderr[-500:]}")
        with (
            database.costing() as cost,
            running([[*command, "work"]] * processes, environment=environment, folder=folder) as started,
        ):
            result = measured(work, [process.pid for process in started], database, peer.left)
    return result.sample(peer.system, work, *cost)
