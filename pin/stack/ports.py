"""Ports of the local stack."""

import contextlib
import random
import socket

_LISTENING = range(15_000, 30_000)
"""Below the ports that an operating system hands to outgoing connections (32768 and up on Linux): a port found free
here is not taken by somebody's connection before the server listens on it."""
_TRIES = 200


def free_ports(host: str, count: int) -> list[int]:
    """So many ports that are free now, all different. Raises OSError when the host has no address to listen on."""
    with contextlib.ExitStack() as open_until_all_are_found:
        return [_free(open_until_all_are_found, host) for _ in range(count)]


def is_free(host: str, port: int) -> bool:
    """May a server listen there now."""
    with contextlib.ExitStack() as closing:
        try:
            _bound(closing, host, port)
        except (OSError, OverflowError):  # taken, forbidden, or no port at all
            return False
    return True


def _free(closing: contextlib.ExitStack, host: str) -> int:
    for port in random.SystemRandom().sample(_LISTENING, _TRIES):
        with contextlib.suppress(OSError):
            return _bound(closing, host, port)
    return _bound(closing, host, 0)


def _bound(closing: contextlib.ExitStack, host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    probe = closing.enter_context(socket.socket(family))
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server: a port in TIME_WAIT is free
    probe.bind((host, port))
    return int(probe.getsockname()[1])
