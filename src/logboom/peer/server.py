"""The listener for brokers: listens for the others, dials them, and ticks. Implements `broker.peers`.

What happens on a connection is in `connection`, on the way to another broker in `link`, with what others ask in
`inbound`.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.base.ids import BrokerId
from logboom.base.limits import LimitUsage
from logboom.base.ports import Bytes
from logboom.base.settings import join_address, split_address
from logboom.broker.peers import (
    LANES,
    ONE_WAY,
    Address,
    FrameKind,
    Lane,
    PartHandler,
    PartsRequestHandler,
    PeerIdentity,
    PostHandler,
    RequestHandler,
)
from logboom.broker.runtime import Runtime
from logboom.peer.config import PeerConfig
from logboom.peer.connection import TICK_S, UNSENT_BYTES_MAX, Connection
from logboom.peer.handshake import Introduction, Processes, Session, check_introduction
from logboom.peer.inbound import UNAUTHENTICATED_MAX, Inbound
from logboom.peer.key import ClusterKeys
from logboom.peer.link import CALLS_MAX, Link
from logboom.peer.metrics import PeerMetrics
from logboom.peer.services import make_services

_BACKLOG: Final = 256
_EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104  # compared with, not listened on


class PeerServer:
    """Life: `start`, `identify` once it is known who this broker is, `stop`; on one loop."""

    def __init__(self, config: PeerConfig, keys: ClusterKeys, *, runtime: Runtime, log: FilteringBoundLogger) -> None:
        """`config.listen` is set. `keys`: the cluster's, of `key.read_cluster_keys`."""
        assert config.listen is not None
        self._config = config
        self._listen = config.listen
        self._services = make_services(keys, runtime, log, seal_records=config.seal_records)
        self._inbound = Inbound(self._services, self._seen)
        self._links: dict[tuple[BrokerId, Lane], Link] = {}
        self._dialled: dict[Connection, None] = {}
        self._located: dict[BrokerId, Address] = {}
        self._addresses: dict[BrokerId, Address] = {}
        self._address: Address | None = None
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self.listening = ""
        """HOST:PORT that is listened on, once started."""

    @property
    def metrics(self) -> PeerMetrics:
        """What the server counts."""
        return self._services.metrics

    def limits(self) -> Iterator[LimitUsage]:
        """How much of each limit is used; for those of a link, by the one that is nearest to it."""
        links = self._links.values()
        yield LimitUsage("peer.unauthenticated_connections", UNAUTHENTICATED_MAX, self.metrics.unauthenticated)
        yield LimitUsage("peer.calls", CALLS_MAX, max((link.calls for link in links), default=0))
        yield LimitUsage("peer.unsent_bytes", UNSENT_BYTES_MAX, max((link.unsent_bytes for link in links), default=0))

    def limit_hits(self) -> dict[str, int]:
        """How often each limit was reached."""
        return dict(self._services.limit_hits)

    # --- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Raises OSError where the address cannot be had."""
        loop = asyncio.get_running_loop()
        host, port = split_address(self._listen)
        self._server = await loop.create_server(self._inbound.accept, host or None, port, backlog=_BACKLOG)
        bound = self._server.sockets[0].getsockname()
        self.listening = join_address(host or str(bound[0]), int(bound[1]))
        self._address = self._advertised(host, int(bound[1]))
        self._ticker = loop.call_later(TICK_S, self._tick)

    def _advertised(self, host: str, port: int) -> Address:
        advertised_port = port
        if self._config.advertised is not None:
            host, advertised_port = split_address(self._config.advertised)
        return Address(socket.gethostname() if host in _EVERYWHERE else host, advertised_port or port)

    def _tick(self) -> None:
        for connection in (*self._inbound.connections, *self._dialled):
            connection.tick()
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    async def stop(self) -> None:
        """Listen and speak no more. What waits for answers fails, and handlers that run are cancelled. Idempotent."""
        if self._server is not None:
            self._server.close()
        if self._ticker is not None:
            self._ticker.cancel()
        for link in self._links.values():
            link.close("this broker is stopping")
        await self._inbound.close("this broker is stopping")
        await asyncio.sleep(0)  # an aborted transport is closed by the next turn of the loop

    # --- broker.peers.Peers -------------------------------------------------------------------------------------

    @property
    def address(self) -> Address | None:
        """Where other brokers are to connect to this one; None before the start."""
        return self._address

    def identify(self, identity: PeerIdentity) -> None:
        """Who this broker is; see `Peers`. Raises HandshakeError where its ids are too long to be told."""
        assert self._address is not None
        own = Introduction(identity, self._address)
        check_introduction(own)
        before, self._services.own = self._services.own, own
        if before is not None and before != own:
            self._inbound.end_all("this broker has joined a cluster")
            for link in self._links.values():
                link.reconnect("this broker has joined a cluster")
        self._inbound.go_on()
        for link in self._links.values():
            link.hurry()

    def know_processes(self, registered: Callable[[PeerIdentity], str], check_noted: Callable[[str], None]) -> None:
        """See `Peers`."""
        self._services.processes = Processes(registered, check_noted)

    def serve(self, kind: FrameKind, handler: RequestHandler) -> None:
        """See `Peers`."""
        self._services.handlers.serve(kind, handler)

    def serve_in_parts(self, kind: FrameKind, handler: PartsRequestHandler) -> None:
        """See `Peers`."""
        self._services.handlers.serve_in_parts(kind, handler)

    def serve_posts(self, kind: FrameKind, handler: PostHandler) -> None:
        """See `Peers`."""
        self._services.handlers.serve_posts(kind, handler)

    def locate(self, addresses: Mapping[BrokerId, Address]) -> None:
        """See `Peers`. An address that was told before is not news: the broker may have told a newer one itself."""
        for broker_id, address in addresses.items():
            if self._located.get(broker_id) != address:
                self._located[broker_id] = address
                self._move(broker_id, address)

    def _seen(self, session: Session) -> None:
        """A broker has connected: it lives, and has told where it listens."""
        identity, address = session.other.identity, session.other.address
        if address.port:
            self._move(identity.broker_id, address)
        self._hurry(identity.broker_id)

    def _move(self, broker_id: BrokerId, address: Address) -> None:
        if self._addresses.get(broker_id) != address:
            self._addresses[broker_id] = address
            self._hurry(broker_id)

    def _hurry(self, broker_id: BrokerId) -> None:
        for lane in Lane:
            if (link := self._links.get((broker_id, lane))) is not None:
                link.hurry()

    def _link(self, to: BrokerId, kind: FrameKind) -> Link:
        key = to, LANES[kind]
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = self._make_link(to, key[1], None)
        return link

    def _make_link(self, to: BrokerId | None, lane: Lane, address: Address | None) -> Link:
        return Link(
            self._services,
            to,
            lane,
            (lambda: address) if to is None else (lambda: self._addresses.get(to)),
            opened=lambda connection: self._dialled.update({connection: None}),
            closed=lambda connection: self._dialled.pop(connection, None),
        )

    def lost_for_s(self, to: BrokerId) -> float | None:
        """See `Peers`."""
        lost_s = [link.lost_s for lane in Lane if (link := self._links.get((to, lane))) is not None]
        broken_s = [one for one in lost_s if one is not None]
        if not broken_s or len(broken_s) < len(lost_s):
            return None
        return asyncio.get_running_loop().time() - max(broken_s)

    def post(self, to: BrokerId, kind: FrameKind, body: Sequence[Bytes]) -> bool:
        """See `Peers`."""
        assert kind in ONE_WAY
        return self._link(to, kind).post(kind, body)

    async def call(
        self,
        to: BrokerId,
        kind: FrameKind,
        body: Sequence[Bytes],
        *,
        timeout_s: float,
        on_part: PartHandler | None = None,
    ) -> memoryview:
        """See `Peers`."""
        assert kind not in ONE_WAY
        return await self._link(to, kind).call(kind, body, timeout_s, on_part)

    async def call_address(
        self, address: Address, kind: FrameKind, body: Sequence[Bytes], *, timeout_s: float
    ) -> tuple[PeerIdentity, memoryview]:
        """See `Peers`. The connection serves this request alone."""
        assert kind not in ONE_WAY
        link = self._make_link(None, LANES[kind], address)
        try:
            answer = await link.call(kind, body, timeout_s)
        finally:
            link.close("the request has ended")
        assert link.other is not None
        return link.other, answer
