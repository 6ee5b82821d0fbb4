"""`pin up`: the whole stack with production defaults until Ctrl-C or SIGTERM (C6)."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address

from pin.config.settings import Settings
from pin.stack.journal import Journal
from pin.stack.local import new_operator
from pin.stack.plan import StackOptions
from pin.stack.ports import free_ports, is_free
from pin.stack.supervisor import NAME, Stack, StackError

_LOOK_EVERY = 0.25  # seconds


def up(settings: Settings, *, workers: int, schedulers: int, announce: Callable[[str], None]) -> None:
    """Run the stack in `settings.state_dir` until a signal; `announce` gets each line that says where to reach it.

    Main thread only. Raises StackError, EmbeddedServerError, sqlalchemy.exc.OperationalError when it does not start.
    """
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    options, console = with_console(settings, options_of(settings, workers=workers, schedulers=schedulers))
    journal = Journal(sys.stderr)
    journal.introduce(NAME)
    with Stack(options, journal, stopping=stopping.is_set) as stack:
        stack.start()
        if not stopping.is_set():
            announce(f"news        {options.news_url}")
            announce(f"selections  {options.selections_url}")
            announce(f"console     {console}")
            announce(f"state       {options.state_dir}  (pin token user gives a token; Ctrl-C stops everything)")
        while not stopping.wait(_LOOK_EVERY):
            stack.mend()


def with_console(settings: Settings, options: StackOptions) -> tuple[StackOptions, str]:
    """The stack with the console open, and the line that says how to come in.

    To the operators that are configured; else to one with a fresh password, and only where nobody else can reach it.
    """
    url = f"{options.news_url}/ops"
    if (file := settings.ops.operators_file) is not None:
        return replace(options, operators_file=file.absolute()), f"{url}  (operators of {file})"
    if not _is_loopback(options.host):
        return options, "closed, since others reach this address: name operators with PIN_OPS__OPERATORS_FILE"
    path, name, password = new_operator(options.state_dir)
    return replace(options, operators_file=path), f"{url}  (name {name}, password {password})"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def options_of(settings: Settings, *, workers: int, schedulers: int) -> StackOptions:
    """The stack that these settings describe: news on `web.port`, selections on the next one; 0 for free ones.

    Raises StackError when a port is taken.
    """
    host, port = settings.web.host, settings.web.port
    news_port, selections_port = free_ports(host, 2) if port == 0 else (port, port + 1)
    for taken in (news_port, selections_port):
        if not is_free(host, taken):
            raise StackError(f"port {taken} is taken: choose another with PIN_WEB__PORT (0 finds free ones)")
    return StackOptions(
        state_dir=settings.state_dir.absolute(),
        environment=dict(os.environ),
        news_port=news_port,
        selections_port=selections_port,
        host=host,
        workers=workers,
        worker_processes=settings.worker.processes,
        schedulers=schedulers,
        database_url=settings.database_url if "database_url" in settings.model_fields_set else None,
        own_keys=not settings.auth.public_keys,
        quiet=settings.log.level in {"warning", "error"},
    )
