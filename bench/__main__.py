"""`python -m bench [--quick]`: every system in one run, round after round; exits with 1 below a bound."""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import httpx
import psycopg

from bench.charts import draw
from bench.database import Databases
from bench.peers.running import Peer, available
from bench.peers.running import run as run_peer
from bench.processes import clean_environment
from bench.ratios import Sample, verdict
from bench.run import PATIENCE, BenchError
from bench.systems import client_loop, plain_dramatiq, product
from bench.table import table
from bench.work import EndpointControl, Work, snapshot_ids
from db.embedded.server import EmbeddedServer
from pin.access.signing import mint, new_key_pair
from pin.clock import utc_now
from pin.config.sections import AuthOptions
from pin.rules.contract import NEWS_CLIENT

System = Callable[[Work, Path], Sample]


def main(arguments: Sequence[str]) -> int:
    """Measure, print, answer the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 intents, 3 rounds; otherwise 5,000 and 5")
    parser.add_argument("-n", type=int, help="intents a run")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--delays", default="0,20", help="milliseconds the endpoint takes, comma separated")
    parser.add_argument("--only", help="these systems alone, comma separated; no verdict")
    parser.add_argument("--no-peers", action="store_true", help="leave out what must be installed first")
    parser.add_argument("--draw", type=Path, help="write the charts into this folder")
    given = parser.parse_args(arguments)
    count = given.n or (2_000 if given.quick else 5_000)
    rounds = given.rounds or (3 if given.quick else 5)
    delays = [int(delay) for delay in given.delays.split(",")]
    with tempfile.TemporaryDirectory(prefix="pin-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # root's server runs as another user
        try:
            peers = [] if given.no_peers else available()
            samples = _measure(folder, count, rounds, delays, given.only, peers)
        except (BenchError, httpx.HTTPError, psycopg.Error) as error:
            log = folder / "run" / "output.log"
            print(f"bench: {type(error).__name__}: {error}\n{_tail(log)}", file=sys.stderr)
            return 1
    print("\n".join(table(samples, delays)))
    if given.draw:
        draw(samples, delays, given.draw)
    if given.only:
        return 0
    said, reached = verdict(samples, delays)
    print("\n".join(["", *said]))
    return 0 if reached else 1


def _measure(
    folder: Path, count: int, rounds: int, delays: Sequence[int], only: str | None, peers: Sequence[Peer]
) -> list[Sample]:
    samples: list[Sample] = []
    ids = snapshot_ids(count)
    key, token_file, ids_file = new_key_pair(folder, "news")[0], folder / "token", folder / "ids"
    token_file.write_text(_token(key))
    ids_file.write_text("\n".join(map(str, ids)))
    run_folder = folder / "run"
    run_folder.mkdir()
    with EmbeddedServer(folder / "postgres") as server, endpoint_process() as endpoint:
        databases = Databases(server)
        systems: dict[str, System] = {
            "product": partial(product, databases=databases),
            "client_loop": client_loop,
            "plain_dramatiq": partial(plain_dramatiq, databases=databases),
            **{peer.system: partial(run_peer, databases=databases, peer=peer) for peer in peers},
        }
        chosen = only.split(",") if only else list(systems)
        print(f"bench: {count} intents, {rounds} rounds, PostgreSQL: {databases.durability()}", flush=True)
        for number in range(rounds):
            first = number % len(chosen)  # each system goes first in turn
            for delay_ms in delays:
                for name in chosen[first:] + chosen[:first]:
                    endpoint.reset(delay_ms)
                    work = Work(number, delay_ms, ids, ids_file, token_file, key, endpoint)
                    began = time.monotonic()
                    sample = systems[name](work, run_folder)
                    samples.append(sample)
                    print(
                        f"round {number + 1}, {delay_ms:2} ms: {sample.system:18}"
                        f" {sample.calls_per_second:7.0f} calls/s  ({time.monotonic() - began:.1f} s in all)",
                        flush=True,
                    )
        databases.close()
    return samples


def _token(key: Path) -> str:
    auth = AuthOptions()
    return mint(
        key.read_bytes(),
        kid=key.stem,
        issuer=auth.issuer,
        audience=auth.audience,
        lifetime=timedelta(hours=1),
        now=utc_now(),
        client=NEWS_CLIENT,
    )


@contextlib.contextmanager
def endpoint_process() -> Iterator[EndpointControl]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.endpoint"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
        env=clean_environment(),
    )
    with process:
        try:
            assert process.stdout is not None  # noqa: S101 - for the type checker
            control = EndpointControl(int(process.stdout.readline().split()[1]), PATIENCE)
            yield control
            control.close()
        finally:
            process.terminate()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
