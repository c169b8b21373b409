"""Leases that end and come back soon, while streams are made: brokers stand still or are cut off for about as long as a
lease.

A controller that is new, or back, has no lease yet and decides already; what it begins then goes on under the lease
that it gets a moment later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from typing import Any, Final

from logboom.sim.administration import Operator
from logboom.sim.client import SimClient
from logboom.sim.made_streams import MadeStreams
from logboom.sim.node import SimNode
from logboom.sim.schedule import FaultKind, Lane
from logboom.sim.session import ask_once
from logboom.sim.simulation import Simulation

LEASES_LANE: Final = "leases"
_LASTS_MAX_S: Final = 8.0
_FLAP_S: Final = (0.3, 2.0)
"""From less than an election takes to twice a lease."""
_REST_MAX_S: Final = 1.5
_MADE_SIDE_BY_SIDE: Final = 4


class LeaseTrouble(Lane):
    """The flaps of one run, and who makes streams meanwhile. Life: that of the run."""

    def __init__(self, simulation: Simulation, operator: Operator, config: Mapping[str, str]) -> None:
        """`operator`: who knows which brokers there are; `config`: of the streams that are made."""
        super().__init__(simulation, LEASES_LANE)
        self.made = MadeStreams(self._attempt, operator.replicas, config)
        self._operator = operator
        self._kinds = (self._stand_still, self._cut_off_controller, self._cut_all)

    async def _attempt(self, work: Callable[[SimClient], Awaitable[Any]]) -> bool:
        async def done(client: SimClient) -> bool:
            await work(client)
            return True

        return await ask_once(self._operator.addresses, self.name, self.chance, done) is not None

    async def flap(self) -> None:
        """Have leases end and come back for as long as the fault is to last, and streams be made; then all goes on."""
        until_s = asyncio.get_running_loop().time() + self.length_s
        makers = [self.made.run(self.chance, until_s) for _ in range(_MADE_SIDE_BY_SIDE)]
        await asyncio.gather(self._end_leases(until_s), *makers)

    async def _end_leases(self, until_s: float) -> None:
        loop = asyncio.get_running_loop()
        while (left_s := until_s - loop.time()) > 0:
            await self.chance.choice(self._kinds)(min(self.chance.uniform(*_FLAP_S), left_s))
            await self.pause(_REST_MAX_S)

    async def _stand_still(self, seconds: float) -> None:
        """The controller gets SIGSTOP, and SIGCONT soon."""
        process = self._controller().process
        if process is not None and process.loop.life.alive:
            process.pause()
            await asyncio.sleep(seconds)
            process.resume()

    async def _cut_off_controller(self, seconds: float) -> None:
        """The controller and the others do not hear each other; clients reach all."""
        controller = self._controller()
        with self._cut((controller.name, one.name) for one in self._nodes if one is not controller):
            await asyncio.sleep(seconds)

    async def _cut_all(self, seconds: float) -> None:
        """No broker hears another one: there is no controller, and whoever is it next has lost its lease before."""
        with self._cut(combinations([one.name for one in self._nodes], 2)):
            await asyncio.sleep(seconds)

    @contextmanager
    def _cut(self, pairs: Iterable[tuple[str, str]]) -> Iterator[None]:
        network, there = self.simulation.network, list(pairs)
        for pair in there:
            network.split(*pair)
        try:
            yield
        finally:
            for pair in there:
                network.heal(pair)

    @property
    def _nodes(self) -> list[SimNode]:
        """The brokers that hold replicas."""
        return [self._operator.members[broker] for broker in self._operator.holders]

    def _controller(self) -> SimNode:
        """Any broker where nobody is it."""
        nodes = self._nodes
        serving = [one for one in nodes if one.broker is not None and one.broker.cluster.view.serving]
        return self.chance.choice(serving or nodes)


LEASE_FAULTS: Final[dict[str, FaultKind[LeaseTrouble]]] = {
    "leases": FaultKind(LeaseTrouble.flap, lasts_max_s=_LASTS_MAX_S),
}
"""What happens to leases, by name."""
