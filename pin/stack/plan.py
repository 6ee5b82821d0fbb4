"""Which processes a stack is made of, and the settings each gets, by environment alone."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pin.stack.child import ChildSpec, Role
from pin.stack.local import LocalKeys


@dataclass(frozen=True, slots=True)
class StackOptions:
    """A stack. `environment` is what every process gets, below the settings that the supervisor chooses."""

    state_dir: Path
    environment: Mapping[str, str] = field(repr=False)
    news_port: int
    selections_port: int
    host: str = "127.0.0.1"
    workers: int = 1
    worker_processes: int = 1
    schedulers: int = 1
    database_url: str | None = field(default=None, repr=False)
    """None for the embedded server."""
    operators_file: Path | None = None
    """Who may sign in to the console, which news serves then."""
    own_keys: bool = True
    """The state folder's own key pair, unless the environment names keys."""
    quiet: bool = False
    """The processes log too little to say that they are ready."""
    cwd: Path = field(default_factory=Path.cwd)

    @property
    def news_url(self) -> str:
        """Where the news API answers."""
        return _url(self.host, self.news_port)

    @property
    def selections_url(self) -> str:
        """Where the selections API answers."""
        return _url(self.host, self.selections_port)


def specs(options: StackOptions, database_url: str, keys: LocalKeys | None) -> list[ChildSpec]:
    """The processes, in the order in which they start."""
    shared = {
        **options.environment,
        "PIN_DATABASE_URL": database_url,
        "PIN_SELECTIONS_URL": options.selections_url,
        "PIN_STATE_DIR": str(options.state_dir),
        "PIN_LOG__FORMAT": "console",
        "PIN_WORKER__PROCESSES": str(options.worker_processes),
        "PYTHONUNBUFFERED": "1",
    }
    if keys is not None:
        shared |= {"PIN_AUTH__PUBLIC_KEYS": str(keys.public), "PIN_AUTH__M2M_PRIVATE_KEY": str(keys.private)}
    # -P: what lies in the working folder, a file named db.py for one, is not taken for ours (A34).
    pin = (sys.executable, "-P", "-m", "pin.cli")

    def web(name: str, role: Role, port: int) -> ChildSpec:
        own = {"PIN_CONTEXTS": name, "PIN_WEB__HOST": options.host, "PIN_WEB__PORT": str(port)}
        if role is Role.NEWS and options.operators_file is not None:
            own |= {"PIN_CONTEXTS": f"{name},ops", "PIN_OPS__OPERATORS_FILE": str(options.operators_file)}
        return ChildSpec(name, role, (*pin, "web"), shared | own, ready_url=f"{_url(options.host, port)}/health/ready")

    def numbered(kind: str, role: Role, count: int, lines: int) -> list[ChildSpec]:
        # A configured port is the first one's; the others take a free one and say which.
        port = f"PIN_METRICS__{kind.upper()}_PORT"
        others = {port: "0"} if port in shared else {}
        return [
            ChildSpec(
                f"{kind}-{number}",
                role,
                (*pin, kind),
                shared if number == 1 else shared | others,
                ready_line=None if options.quiet else f"{kind} started",
                ready_lines=lines,
            )
            for number in range(1, count + 1)
        ]

    return [
        web("selections", Role.SELECTIONS, options.selections_port),
        web("news", Role.NEWS, options.news_port),
        *numbered("worker", Role.WORKER, options.workers, options.worker_processes),
        *numbered("scheduler", Role.SCHEDULER, options.schedulers, 1),
    ]


def _url(host: str, port: int) -> str:
    """Where this machine reaches a server that listens on `host`."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - a name to look up, not to bind
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"
