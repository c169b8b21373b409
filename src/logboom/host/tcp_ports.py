"""TCP ports of this machine for servers that are yet to be started, or are down between two lives.

A port that was found free and let go of may be taken before its server listens, as often as others look for free
ports at the same time. So it is held: a socket is bound to it that never listens. With SO_REUSEADDR, which servers set,
one other socket may listen on it all the same, and again after a restart; clients are refused as before. Whoever looks
for a free port binds without that option and passes over what is held.
"""

import contextlib
import random
import socket
from pathlib import Path
from typing import Final

_TRIES: Final = 1_000
_PORT_MIN: Final = 1_024
_BELOW_EPHEMERAL: Final = 20_000
_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_MIN_DEFAULT: Final = 32_768


def hold_port(host: str, port: int) -> socket.socket:
    """A socket that keeps a known port from those who look for a free one, until it is closed. Raises OSError where
    somebody listens there already."""
    held = _socket(host)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port))
    except BaseException:  # an interrupt, too: the socket is closed
        held.close()
        raise
    return held


def hold_free_port(host: str) -> socket.socket:
    """A socket that holds a port on which nobody listens and which nobody else holds; its name says which.

    The port is below those that the system gives to outgoing connections: one of these could take it while its server
    is down, and a client that tries that very port again and again can even connect to itself. Raises OSError where
    there is none.
    """
    chance = random.SystemRandom()  # two processes with one seed would try the same ports
    lowest = _EPHEMERAL_MIN_DEFAULT
    with contextlib.suppress(OSError, ValueError):
        lowest = int(_EPHEMERAL_RANGE.read_text().split()[0])
    first = max(_PORT_MIN, lowest - _BELOW_EPHEMERAL)
    error = OSError(f"no free port was found at {host}")
    for _ in range(_TRIES):
        held = _socket(host)
        try:
            held.bind((host, chance.randrange(first, max(lowest, first + 1))))
            # Only now: with it the bind would succeed on a port that somebody else holds.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError as refused:
            held.close()
            error = refused
        else:
            return held
    raise error


def port_of(held: socket.socket) -> int:
    """The port that a socket holds."""
    return int(held.getsockname()[1])


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
