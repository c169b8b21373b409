"""Where the servers of one NATS are, and which is tried next: those of the settings, then those that they tell of."""

import ssl
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from logboom.base.errors import LogboomError
from logboom.base.settings import join_address
from logboom.nats.config import NatsTls, split_server

_TOLD_MAX: Final = 64


class TlsError(LogboomError):
    """A file of a certificate or key cannot be used."""


class ServerAddress(NamedTuple):
    """One server."""

    host: str
    port: int
    tls: bool
    """Whether its address says so."""

    def __str__(self) -> str:
        return join_address(self.host, self.port)


def server_address(url: str) -> ServerAddress:
    """Of an address in the settings."""
    parts = split_server(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return ServerAddress(parts.hostname, parts.port, parts.scheme == "tls")


class ServerPool:
    """The servers in the order in which they are tried, round and round."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._configured = [server_address(url) for url in urls]
        self._told: list[ServerAddress] = []
        self._next = 0

    def next(self) -> ServerAddress:
        """The one to try now."""
        servers = [*self._configured, *self._told]
        self._next %= len(servers)
        server = servers[self._next]
        self._next += 1
        return server

    def stay(self) -> None:
        """The one that was tried last is tried first the next time."""
        self._next -= 1

    def told(self, urls: Iterable[str]) -> None:
        """A server has told where others of its cluster are, as `HOST:PORT`; what cannot be read is left out."""
        known = {(server.host, server.port) for server in self._configured}
        uses_tls = any(server.tls for server in self._configured)
        found = []
        for url in urls:
            try:
                server = server_address(url)
            except ValueError:
                continue
            if (server.host, server.port) not in known:
                found.append(server._replace(tls=uses_tls))
        self._told = found[:_TOLD_MAX]


def tls_context(tls: NatsTls) -> ssl.SSLContext:
    """What TLS is spoken with. Raises TlsError."""
    try:
        context = ssl.create_default_context(cafile=None if tls.ca_file is None else str(tls.ca_file))
        if tls.cert_file is not None:
            context.load_cert_chain(str(tls.cert_file), None if tls.key_file is None else str(tls.key_file))
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"a file of nats.tls cannot be used: {error.strerror or error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
