"""`pin migrate`, `pin web`, `pin scheduler`, `pin worker`: one process of the product each."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import rich_click as click

from pin.cli.faults import told_plainly

if TYPE_CHECKING:
    from pin.config.settings import Settings


_ROOT = Path(__file__).parents[2]
"""Where `pin`, `actors`, `web`, `db` and `scheduler.py` lie, in a checkout and in an installation."""


@click.command()
def migrate() -> None:
    """Bring the database to this version's schema (forward only; several at once take turns)."""
    from db.migrate import upgrade
    from pin.config.loading import load_settings
    from pin.stack.local import database_url

    with told_plainly():
        before, after = upgrade(database_url(load_settings()))
    click.echo(f"already at {after}" if before == after else f"{before or 'empty'} -> {after}")


@click.command()
def web() -> None:
    """Serve the APIs that PIN_CONTEXTS names, on PIN_WEB__HOST and PIN_WEB__PORT."""
    from pin.config.loading import load_settings

    with told_plainly():
        _serve(load_settings())


@click.command()
def scheduler() -> None:
    """Run the retry job's timer: becomes `python scheduler.py`."""
    _become(str(_ROOT / "scheduler.py"))


@click.command()
def worker() -> None:
    """Run the detach actors: becomes `dramatiq actors` with the settings' processes and threads."""
    from pin.config.loading import load_settings
    from pin.telemetry.multiprocess import FOLDER_VARIABLE, fresh_folder

    with told_plainly():
        options = load_settings().worker
    milliseconds = int(options.shutdown_timeout.total_seconds() * 1000)
    # dramatiq puts this path before all others: a stray `actors` in the working folder must not be taken for ours.
    command = ["-P", "-m", "dramatiq", "actors", "--path", str(_ROOT)]
    command += ["-p", str(options.processes), "-t", str(options.threads)]
    # Its processes count in files of one folder, which has to be there before Python starts.
    _become(*command, "--worker-shutdown-timeout", str(milliseconds), **{FOLDER_VARIABLE: str(fresh_folder())})


def _become(*arguments: str, **environment: str) -> NoReturn:
    """Go on as `python arguments…`, the same process under the same supervisor."""
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *arguments], os.environ | environment)  # noqa: S606 - no shell is wanted


def _serve(settings: "Settings") -> NoReturn:
    """Serve until SIGTERM or SIGINT, then end with 0; 1 when the port is taken. Raises SettingsError."""
    import gc
    import signal

    import uvicorn

    from pin.telemetry.logs import configure_logging
    from web.app import create_app

    options = settings.web
    configure_logging(log_format=settings.log.format, level=settings.log.level, process="web")
    config = uvicorn.Config(
        create_app(settings),
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=max(1, int(options.stop_timeout.total_seconds())),
    )

    def leave(*_: object) -> NoReturn:
        gc.freeze()  # all is closed: the interpreter need not search a second long for garbage on its way out
        sys.exit(0)

    # uvicorn stops in order and then raises the signal again, for whoever stood here before it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    server = uvicorn.Server(config)
    server.run()
    sys.exit(0 if server.started else 1)
