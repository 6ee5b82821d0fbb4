"""Ports of the local stack."""

import contextlib
import socket


def free_ports(host: str, count: int) -> list[int]:
    """So many ports that are free now, all different."""
    with contextlib.ExitStack() as open_until_all_are_found:
        return [_bound(open_until_all_are_found, host, 0) for _ in range(count)]


def is_free(host: str, port: int) -> bool:
    """May a server listen there now."""
    with contextlib.ExitStack() as closing:
        try:
            _bound(closing, host, port)
        except (OSError, OverflowError):  # taken, forbidden, or no port at all
            return False
    return True


def _bound(closing: contextlib.ExitStack, host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    probe = closing.enter_context(socket.socket(family))
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server: a port in TIME_WAIT is free
    probe.bind((host, port))
    return int(probe.getsockname()[1])
