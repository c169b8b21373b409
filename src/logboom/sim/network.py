"""Listeners and connections between simulated processes.

A connection is a transport at each end, and what is on the way between them. Addresses are names and ports; there is
no resolver. How long bytes take and into how many pieces they are cut is drawn from the seed; so is, where a test asks
for it, when a connection breaks. Directions between two machines can be blocked: nothing that is sent there arrives,
and nobody is told. Knows asyncio's protocols; not what the bytes say.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Final

from logboom.sim.link_config import LinkConfig
from logboom.sim.loop import SimLoop
from logboom.sim.scheduler import Scheduler
from logboom.sim.transport import SimTransport, SimulatedConnection

_FIRST_FREE_PORT: Final = 20_000
_DIAL_AGAIN_S: Final = 1.0
"""How often a connection is tried while the way is blocked."""
_ANY_HOSTS: Final = ("", "0.0.0.0", "::")  # noqa: S104 - simulated


@dataclass(frozen=True, slots=True)
class Address:
    """What stands for a listening socket where code asks it for its name."""

    host: str
    port: int

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port


class SimServer:
    """A listener, as `loop.create_server` gives it."""

    def __init__(
        self, network: "SimNetwork", loop: SimLoop, factory: Callable[[], asyncio.BaseProtocol], address: Address
    ) -> None:
        self.sockets = (address,)
        self.loop = loop
        self.factory = factory
        self._network = network
        self._serving = False

    async def start_serving(self) -> None:
        """Take connections from now on."""
        self._serving = True

    def is_serving(self) -> bool:
        """Whether connections are taken."""
        return self._serving

    def close(self) -> None:
        """Take no more connections; those there are stay."""
        self._serving = False
        self._network.forget(self)

    async def wait_closed(self) -> None:
        """Returns at once: a server is closed when `close` returns."""


class SimNetwork:
    """All listeners and connections of one simulation."""

    def __init__(self, scheduler: Scheduler, chance: Random, config: LinkConfig | None = None) -> None:
        self.config = config or LinkConfig()
        """How connections that are made from now on behave."""
        self.links: list[SimulatedConnection] = []
        """Connections that are open, the oldest first."""
        self._scheduler = scheduler
        self._chance = chance
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._next_port = _FIRST_FREE_PORT
        self._connections = 0
        self._blocked: dict[tuple[str, str], float] = {}
        """Directions between two machines, sender first, in which nothing arrives; and since when."""

    def listen(self, loop: SimLoop, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> SimServer:
        """A listener on a name and a port, or a free one. Raises OSError where somebody listens there."""
        name = loop.life.host if host in _ANY_HOSTS else host
        if not port:
            port = self._free_port()
        if (name, port) in self._servers:
            raise OSError(98, "address already in use")
        server = self._servers[name, port] = SimServer(self, loop, factory, Address(name, port))
        loop.life.at_end(lambda: self.forget(server))
        return server

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def forget(self, server: SimServer) -> None:
        """Nobody listens there any more."""
        address = server.sockets[0]
        if self._servers.get((address.host, address.port)) is server:
            del self._servers[address.host, address.port]

    def block(self, sender: str, receiver: str) -> None:
        """From now on nothing arrives that one machine sends the other; the opposite direction is another matter."""
        self._blocked.setdefault((sender, receiver), self._scheduler.now_s)

    def split(self, one: str, other: str) -> None:
        """Block both directions between two machines."""
        self.block(one, other)
        self.block(other, one)

    def heal(self, among: Collection[str] | None = None) -> None:
        """Block nothing any more, or nothing between these machines.

        What was sent meanwhile on connections that are still there arrives when TCP tries again, which it does ever
        more rarely: that may take as long as the direction was blocked.
        """
        blocked = {
            ends: since_s
            for ends, since_s in self._blocked.items()
            if among is None or (ends[0] in among and ends[1] in among)
        }
        for ends in blocked:
            del self._blocked[ends]
        for link in self.links:
            link.healed(blocked)

    def passes(self, sender: str, receiver: str) -> bool:
        """Whether what one machine sends the other arrives."""
        return (sender, receiver) not in self._blocked

    def in_touch(self) -> Callable[[str, str], bool]:
        """Whether two machines hear each other at this moment, and nothing that one has sent waits to be sent again."""
        waits = {ends for link in self.links for ends in link.kept}
        return lambda one, other: (
            one == other
            or (self.passes(one, other) and self.passes(other, one) and frozenset((one, other)) not in waits)
        )

    def _machine(self, host: str, port: int) -> str:
        """The machine that a connection to an address reaches: a name need not be that of the machine."""
        server = self._servers.get((host, port))
        return host if server is None else server.loop.life.host

    async def connect(
        self, loop: SimLoop, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to the listener of a name and a port. Raises ConnectionRefusedError where there is none."""
        await asyncio.sleep(self.config.latency_s(self._chance))
        there = self._machine(host, port)
        while not (self.passes(loop.life.host, there) and self.passes(there, loop.life.host)):
            await asyncio.sleep(_DIAL_AGAIN_S)
        server = self._servers.get((host, port))
        if server is None or not server.is_serving():
            raise ConnectionRefusedError(111, f"nobody listens on {host}:{port}")
        self._connections += 1
        name = f"{loop.life.name}-{self._connections}"
        link = SimulatedConnection(name, self._scheduler, self._chance, self.config, self.links, self.passes)
        near = SimTransport(link, loop, (loop.life.host, self._free_port()), (host, port))
        far = SimTransport(link, server.loop, (host, port), near.sockname)
        link.open(near, far)
        self.links.append(link)
        server.loop.call_soon(far.attach, server.factory)
        protocol = factory()
        near.set_protocol(protocol)
        protocol.connection_made(near)
        near.start()
        return near, protocol
