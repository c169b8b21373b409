"""What goes wrong in a cluster: each node has its own trouble (`faults`), and the network between them has some too.

They come at the same time, so a majority may be gone for a while. What is cut is joined again, and who was stopped goes
on, before the next fault of the same kind is drawn.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from logboom.sim.faults import FAULTS, Fault, Trouble
from logboom.sim.node import SimNode
from logboom.sim.simulation import Simulation
from logboom.sim.transport import LinkConfig

_HOUR_MS: Final = 3_600_000
_PAUSE_MAX_S: Final = 4.0
"""Several times the lease."""
_CUT_MAX_S: Final = 6.0
_SLOW: Final = LinkConfig(latency_min_s=10e-3, latency_max_s=200e-3)


async def _pause(trouble: Trouble) -> None:
    """SIGSTOP, and SIGCONT some time later."""
    process = trouble.node.process
    assert process is not None
    await trouble.sync_under_way()
    process.pause()
    await trouble.pause(_PAUSE_MAX_S)
    process.resume()


async def _clock_jumps(trouble: Trouble) -> None:
    """Somebody sets the wall clock, which nothing about leaders may depend on."""
    trouble.node.clock.wall_offset_ms += trouble.chance.randint(-_HOUR_MS, _HOUR_MS)


NODE_FAULTS: Final[dict[str, Fault]] = {
    **{name: FAULTS[name] for name in ("kill", "power", "stop", "eio", "full", "hang", "slow")},
    "pause": _pause,
    "clock": _clock_jumps,
}
"""What happens to one node, by name."""


class NetworkTrouble:
    """The faults of the network of one run. Life: that of the run."""

    def __init__(self, simulation: Simulation, nodes: Sequence[SimNode], chance: Random) -> None:
        self.simulation = simulation
        self.names = [node.name for node in nodes]
        self.chance = chance
        self.counts: dict[str, int] = {}
        """How often each fault came."""

    async def run(self, until_s: float, kinds: dict[str, "NetworkFault"], pause_max_s: float) -> None:
        """One fault after the other until a time; all is whole at the end."""
        loop = asyncio.get_running_loop()
        whole = self.simulation.network.config
        while loop.time() < until_s:
            await asyncio.sleep(self.chance.uniform(0, pause_max_s))
            name = self.chance.choice(tuple(kinds))
            self.counts[name] = self.counts.get(name, 0) + 1
            self.simulation.scheduler.record("trouble", name)
            await kinds[name](self)
            await asyncio.sleep(self.chance.uniform(0, _CUT_MAX_S))
            self.simulation.network.heal()
            self.simulation.network.config = whole

    def pair(self) -> tuple[str, str]:
        """Two brokers."""
        one, other = self.chance.sample(self.names, 2)
        return one, other


NetworkFault = Callable[[NetworkTrouble], Awaitable[None]]


async def _one_way(trouble: NetworkTrouble) -> None:
    trouble.simulation.network.block(*trouble.pair())


async def _split(trouble: NetworkTrouble) -> None:
    trouble.simulation.network.split(*trouble.pair())


async def _isolate(trouble: NetworkTrouble) -> None:
    """No other broker reaches one; clients do."""
    one = trouble.chance.choice(trouble.names)
    for other in trouble.names:
        if other != one:
            trouble.simulation.network.split(one, other)


async def _deafen(trouble: NetworkTrouble) -> None:
    """One broker hears no other one, and is heard."""
    one = trouble.chance.choice(trouble.names)
    for other in trouble.names:
        if other != one:
            trouble.simulation.network.block(other, one)


async def _slow_links(trouble: NetworkTrouble) -> None:
    """Connections that are made from now on are slow; about half of the others are broken, so that there are some."""
    network = trouble.simulation.network
    whole = network.config
    network.config = replace(whole, latency_min_s=_SLOW.latency_min_s, latency_max_s=_SLOW.latency_max_s)
    await _cut(trouble)


async def _cut(trouble: NetworkTrouble) -> None:
    """Connections break, and can be made anew at once."""
    for link in tuple(trouble.simulation.network.links):
        if trouble.chance.random() < 0.5:
            link.cut()


NETWORK_FAULTS: Final[dict[str, NetworkFault]] = {
    "one-way": _one_way,
    "split": _split,
    "isolate": _isolate,
    "deafen": _deafen,
    "slow-links": _slow_links,
    "cut": _cut,
}
"""What happens to the network, by name."""
