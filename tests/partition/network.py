"""Hosts that are network namespaces without a name, on one bridge in a namespace of its own: nothing outlives the run.

A namespace lives as long as a process or a file descriptor in it, so that a run which is killed leaves none behind,
and the machine's own network is not touched: not even the bridge is in it.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

_CLONE_NEWNET = 0x40000000
_HERE = "/proc/thread-self/ns/net"
_NOBODY = "02:00:00:00:00:fe"  # what is sent to this address reaches nobody, and nobody answers
HUB = "hub"


class NetworkError(Exception):
    """The kernel refuses. The message says what."""


class Network:
    """A context manager: the calling thread moves to the hub, and back at the end. Main thread only.

    Threads and processes stay where they were started; `inside(host)` starts them elsewhere.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._addresses = {host: f"10.77.0.{number}" for number, host in enumerate(hosts, start=1)}
        self._spaces: dict[str, int] = {}

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._home = os.open(_HERE, os.O_RDONLY)
            undo.callback(self._leave)
            for name in (HUB, *self._addresses):
                self._spaces[name] = self._new_space()
            self._enter(HUB)
            self._ip("link", "add", "br0", "type", "bridge")
            self._ip("addr", "add", "10.77.0.254/24", "dev", "br0")
            self._ip("link", "set", "br0", "up")
            self._ip("link", "set", "lo", "up")
            for host, address in self._addresses.items():
                self._plug_in(host, address)
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    def address(self, host: str) -> str:
        """Its IPv4 address."""
        return self._addresses[host]

    def host_of(self, address: str) -> str:
        """Whose address it is. Raises KeyError."""
        return {its: host for host, its in self._addresses.items()}[address]

    @contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """What this thread starts meanwhile, and the sockets it opens, are on that host."""
        self._enter(host)
        try:
            yield
        finally:
            self._enter(HUB)

    def down(self, host: str) -> None:
        """Pull its plug: nothing gets to it or from it, and nobody is told, no FIN and no RST."""
        self._ip("link", "set", _port(host), "down")

    def up(self, host: str) -> None:
        """Put it in again."""
        self._ip("link", "set", _port(host), "up")

    def cut(self, one: str, other: str) -> None:
        """What these two send each other is lost without a word; the rest gets through."""
        for here, there in ((one, other), (other, one)):
            with self.inside(here):
                self._ip(
                    *("neigh", "replace", self.address(there), "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")
                )

    def mend(self, one: str, other: str) -> None:
        """They reach each other again."""
        for here, there in ((one, other), (other, one)):
            with self.inside(here):
                self._ip("neigh", "del", self.address(there), "dev", "eth0")

    def _plug_in(self, host: str, address: str) -> None:
        space = f"/proc/{os.getpid()}/fd/{self._spaces[host]}"
        self._ip("link", "add", _port(host), "type", "veth", "peer", "name", "eth0", "netns", space)
        self._ip("link", "set", _port(host), "master", "br0", "up")
        with self.inside(host):
            self._ip("addr", "add", f"{address}/24", "dev", "eth0")
            self._ip("link", "set", "eth0", "up")
            self._ip("link", "set", "lo", "up")

    def _new_space(self) -> int:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
            raise NetworkError(f"no network namespace to be had: {os.strerror(ctypes.get_errno())}")
        space = os.open(_HERE, os.O_RDONLY)
        self._set(self._home)
        return space

    def _enter(self, host: str) -> None:
        self._set(self._spaces[host])

    def _set(self, space: int) -> None:
        if ctypes.CDLL(None, use_errno=True).setns(space, _CLONE_NEWNET):
            raise NetworkError(f"the namespace cannot be entered: {os.strerror(ctypes.get_errno())}")

    def _leave(self) -> None:
        self._set(self._home)
        for space in (*self._spaces.values(), self._home):
            os.close(space)
        self._spaces.clear()

    def _ip(self, *arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NetworkError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _port(host: str) -> str:
    """The bridge's end of its cable; Linux allows 15 characters."""
    return f"to-{host}"[:15]
