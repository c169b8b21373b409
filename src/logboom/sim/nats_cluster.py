"""The simulated nats-servers of one run: one, or several that are a cluster, of which others may take the place."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from logboom.sim.nats_routes import Unsettled
from logboom.sim.nats_server import SimNatsServer
from logboom.sim.simulation import Simulation

NAME: Final = "nats"
_JOIN_MAX_S: Final = 3.0
_LOOK_S: Final = 0.05


class SimNats:
    """Life: made; `start`, once; then servers are killed, started, added and removed."""

    def __init__(self, simulation: Simulation, count: int) -> None:
        self.unsettled = Unsettled()
        self.servers: list[SimNatsServer] = []
        """Those that are members of the cluster, whether they run or not, in the order in which they joined."""
        self.addresses: list[tuple[str, int]] = []
        """Where clients connect: to those that the others know, whether they run or not."""
        self.is_cluster = count > 1
        self._simulation = simulation
        self._made = 0
        for _ in range(count):
            self._make()
        self.configured: Sequence[SimNatsServer] = tuple(self.servers)
        """Those that brokers know from their settings."""

    def _make(self) -> SimNatsServer:
        self._made += 1
        name = NAME if self._made == 1 else f"{NAME}-{self._made}"
        server = SimNatsServer(self._simulation, name, self.unsettled, is_clustered=self.is_cluster)
        self.servers.append(server)
        return server

    def urls(self, number: int) -> list[str]:
        """For the settings of a broker: each one's begin with another server."""
        first = number % len(self.configured)
        return [server.url for server in (*self.configured[first:], *self.configured[:first])]

    async def start(self) -> None:
        """Start all of them."""
        await asyncio.gather(*map(self.start_one, self.servers))

    async def start_one(self, server: SimNatsServer) -> None:
        """Start one that does not run, and return once the others know it, if they do soon; clients come to it from
        then on. It makes routes to those that joined before it, and the others to it."""
        if server.address in self.addresses:
            self.addresses.remove(server.address)
        before = [one.name for one in self.servers[: self.servers.index(server)]]
        await server.start(before, self._running)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_JOIN_MAX_S):
                while not {name for name, runs in self._running().items() if runs} <= {server.name, *server.knows}:
                    await asyncio.sleep(_LOOK_S)
        self.addresses.append(server.address)

    def _running(self) -> dict[str, bool]:
        return {server.name: server.running for server in self.servers}

    async def add(self) -> SimNatsServer:
        """One more joins, which no broker's settings name."""
        server = self._make()
        await self.start_one(server)
        return server

    def forget(self, server: SimNatsServer) -> None:
        """This one has gone for good."""
        self.servers.remove(server)
        self.addresses.remove(server.address)
