"""What goes wrong between NATS and a cluster: its servers die, stand still, leave and are replaced, brokers are cut off
from them, or read too slowly, and they are cut off from each other."""

import asyncio
from collections.abc import Sequence
from itertools import permutations
from typing import Final

from logboom.sim.coverage import NATS_REPLACED
from logboom.sim.nats_cluster import NAME, SimNats
from logboom.sim.nats_server import SimNatsServer
from logboom.sim.node import SimNode
from logboom.sim.schedule import FaultKind, Lane
from logboom.sim.simulation import Simulation

NATS_LANE: Final = NAME
_DOWN_MAX_S: Final = 2.0
_CUT_MAX_S: Final = 5.0
_PAUSE_MAX_S: Final = 4.0
"""Longer than brokers wait for an answer to their pings, and servers for each other."""
_GRACE_MAX_S: Final = 3.0
"""Down to less than a broker needs to go, since it does so at most once a second."""


class NatsTrouble(Lane):
    """The faults of the simulated nats-servers of one run. Life: that of the run."""

    def __init__(self, simulation: Simulation, nats: SimNats, nodes: Sequence[SimNode]) -> None:
        super().__init__(simulation, NATS_LANE)
        self.nats = nats
        self.names = [node.name for node in nodes]

    def server(self) -> SimNatsServer:
        """One of the servers."""
        return self.chance.choice(self.nats.servers)


NatsFault = FaultKind[NatsTrouble]


async def _restart(trouble: NatsTrouble) -> None:
    """A server is killed, with all that waits in it, and comes back knowing nobody."""
    server = trouble.server()
    server.kill()
    await trouble.last()
    await trouble.nats.start_one(server)


async def _slow_consumer(trouble: NatsTrouble) -> None:
    """The servers cut a broker off, with all that waits for it there."""
    name = trouble.chance.choice(trouble.names)
    for server in trouble.nats.servers:
        server.cut_off(name)
    await asyncio.sleep(0)


async def _cut(trouble: NatsTrouble) -> None:
    """Nothing passes between one broker and a server, or all of them, in one direction or in both."""
    network, one = trouble.simulation.network, trouble.chance.choice(trouble.names)
    names = [server.name for server in trouble.chance.choice([trouble.nats.servers, [trouble.server()]])]
    to_broker, from_broker = [(name, one) for name in names], [(one, name) for name in names]
    for sender, receiver in trouble.chance.choice([to_broker, from_broker, to_broker + from_broker]):
        network.block(sender, receiver)
    await trouble.last()
    network.heal({*names, one})


async def _leave(trouble: NatsTrouble) -> None:
    """A server leaves in good order, and is back soon."""
    server = trouble.server()
    await server.leave(trouble.length_s)
    await trouble.pause(_DOWN_MAX_S)
    await trouble.nats.start_one(server)


async def _pause(trouble: NatsTrouble) -> None:
    """A server stands still: connections to it are taken, and nothing is answered."""
    server = trouble.server()
    server.pause()
    await trouble.last()
    server.resume()


async def _replace(trouble: NatsTrouble) -> None:
    """Another server joins the cluster, then one leaves for good, or is killed."""
    nats = trouble.nats
    # The settings of brokers go on to name one that is there.
    last = [one for one in nats.servers if one in nats.configured]
    server = trouble.chance.choice([one for one in nats.servers if [one] != last])
    await nats.add()
    if trouble.chance.random() < 0.5:
        await server.leave(trouble.length_s)
    else:
        server.kill()
    nats.forget(server)
    trouble.simulation.trace.met[NATS_REPLACED] += 1


async def _split(trouble: NatsTrouble) -> None:
    """Nothing passes between a server and one other, or all others, in one direction or in both."""
    network, one = trouble.simulation.network, trouble.server()
    others = [server for server in trouble.nats.servers if server is not one]
    cut_off = trouble.chance.choice([others, [trouble.chance.choice(others)]])
    both_ways = trouble.chance.random() < 0.5
    for other in cut_off:
        for sender, receiver in permutations((one.name, other.name), 2) if both_ways else [(one.name, other.name)]:
            network.block(sender, receiver)
    await trouble.last()
    network.heal({one.name, *(other.name for other in cut_off)})


NATS_CLUSTER_FAULTS: Final[dict[str, NatsFault]] = {
    "nats-replace": NatsFault(_replace, lasts_max_s=_GRACE_MAX_S),
    "nats-split": NatsFault(_split, lasts_max_s=_CUT_MAX_S),
}
"""What happens where there are several servers, by name."""

NATS_FAULTS: Final[dict[str, NatsFault]] = {
    "nats-restart": NatsFault(_restart, lasts_max_s=_DOWN_MAX_S),
    "nats-slow": NatsFault(_slow_consumer),
    "nats-cut": NatsFault(_cut, lasts_max_s=_CUT_MAX_S),
    "nats-leave": NatsFault(_leave, lasts_max_s=_GRACE_MAX_S),
    "nats-pause": NatsFault(_pause, lasts_max_s=_PAUSE_MAX_S),
    **NATS_CLUSTER_FAULTS,
}
"""What happens to the way from NATS, by name."""
