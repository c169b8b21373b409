"""The servers of one NATS, and which is tried next: those of the settings, then those that they announce."""

import ssl
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from itertools import islice
from typing import Final, NamedTuple

from logboom.base.errors import LogboomError
from logboom.base.settings import join_address
from logboom.nats.config import NatsTls, split_server

_TOLD_MAX: Final = 64
_TOLD_LOOKED_AT_MAX: Final = 256
_TOLD_LENGTH_MAX: Final = 300
"""Characters of an address that servers tell: a name of 253 and a port."""
_TOLD_TRIED_MAX: Final = 4
"""So many of those that servers tell of are tried before those of the settings have their turn again: the first may
name many that are not there, each of which takes `nats.connect_timeout_s`."""


class TlsError(LogboomError):
    """A file of a certificate or key cannot be used."""


class ServerAddress(NamedTuple):
    """One server."""

    host: str
    port: int
    tls: bool
    """Whether its address says so."""
    tls_name: str | None = None
    """The name that its certificate is to be of, where its address has none; see `ServerPool.told`."""

    def __str__(self) -> str:
        return join_address(self.host, self.port)


def server_address(url: str) -> ServerAddress:
    """Of an address in the settings."""
    parts = split_server(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return ServerAddress(parts.hostname, parts.port, parts.scheme == "tls")


class ServerPool:
    """The servers in the order in which they are tried, round and round: after one comes the next, also where it was
    lost, since one that stands still would be waited for again."""

    def __init__(self, urls: Sequence[str], *, discovers: bool = True) -> None:
        """`discovers`: whether those are tried too that servers tell of."""
        self._configured = list(dict.fromkeys(server_address(url) for url in urls))
        self._discovers = discovers
        self._told: list[ServerAddress] = []
        self._last: ServerAddress | None = None

    def next(self) -> ServerAddress:
        """The one to try now."""
        servers = self._round()
        # One that is not there any more was at the end, where those are that servers tell of.
        at = servers.index(self._last) + 1 if self._last in servers else 0
        if at == len(servers):
            self._next_round()
            at = 0
        self._last = servers[at]
        return self._last

    def others(self, than: ServerAddress) -> list[ServerAddress]:
        """The others to try now, those behind this one first; itself where there are none, since behind the name of one
        address there may be several servers."""
        servers = self._round()
        at = servers.index(than) if than in servers else 0
        self._next_round()
        return [one for one in [*servers[at:], *servers[:at]] if one != than] or [than]

    def _round(self) -> list[ServerAddress]:
        return [*self._configured, *self._told[:_TOLD_TRIED_MAX]]

    def _next_round(self) -> None:
        """Others of those that servers tell of have their turn."""
        if len(self._told) > _TOLD_TRIED_MAX:
            self._told = [*self._told[_TOLD_TRIED_MAX:], *self._told[:_TOLD_TRIED_MAX]]

    def moved(self, to: ServerAddress) -> None:
        """A connection to this server was made, out of turn."""
        self._last = to

    def told(self, urls: Iterable[str], by: ServerAddress) -> None:
        """A server has told where others of its cluster are, as `HOST:PORT`; what cannot be read is left out, and so is
        what comes behind the first 256 of them.

        They mostly tell IP addresses, which no certificate is of. Then it is to be of the name of the server that has
        told, as the clients of NATS have it.
        """
        if not self._discovers:
            return
        known = {(server.host, server.port) for server in self._configured}
        uses_tls = any(server.tls for server in self._configured)
        tls_name = by.tls_name or (None if _is_ip(by.host) else by.host)
        found = []
        for url in islice(urls, _TOLD_LOOKED_AT_MAX):
            if len(url) > _TOLD_LENGTH_MAX:
                continue
            try:
                server = server_address(url)
            except ValueError:
                continue
            if (server.host, server.port) not in known:
                found.append(server._replace(tls=uses_tls, tls_name=tls_name if _is_ip(server.host) else None))
        self._told = list(dict.fromkeys(found))[:_TOLD_MAX]


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


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
