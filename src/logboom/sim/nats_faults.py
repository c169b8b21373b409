"""What goes wrong between NATS and a cluster: its server dies, brokers are cut off from it, or read too slowly."""

import asyncio
from collections.abc import Sequence
from typing import Final

from logboom.sim.nats_server import NAME, SimNatsServer
from logboom.sim.node import SimNode
from logboom.sim.schedule import FaultKind, Lane
from logboom.sim.simulation import Simulation

NATS_LANE: Final = NAME
_DOWN_MAX_S: Final = 2.0
_CUT_MAX_S: Final = 5.0


class NatsTrouble(Lane):
    """The faults of the simulated nats-server of one run. Life: that of the run."""

    def __init__(self, simulation: Simulation, server: SimNatsServer, nodes: Sequence[SimNode]) -> None:
        super().__init__(simulation, NATS_LANE)
        self.server = server
        self.names = [node.name for node in nodes]


NatsFault = FaultKind[NatsTrouble]


async def _restart(trouble: NatsTrouble) -> None:
    """The server is killed, with all that waits in it, and comes back knowing nobody."""
    trouble.server.kill()
    await trouble.last()
    await trouble.server.start()


async def _slow_consumer(trouble: NatsTrouble) -> None:
    """The server cuts a broker off, with all that waits for it there."""
    trouble.server.cut_off(trouble.chance.choice(trouble.names))
    await asyncio.sleep(0)


async def _cut(trouble: NatsTrouble) -> None:
    """Nothing passes between the server and one broker, in one direction or in both."""
    network, one = trouble.simulation.network, trouble.chance.choice(trouble.names)
    directions = [(NAME, one), (one, NAME)]
    blocked = trouble.chance.choice([directions[:1], directions[1:], directions])
    for sender, receiver in blocked:
        network.block(sender, receiver)
    await trouble.last()
    network.heal({NAME, one})


NATS_FAULTS: Final[dict[str, NatsFault]] = {
    "nats-restart": NatsFault(_restart, lasts_max_s=_DOWN_MAX_S),
    "nats-slow": NatsFault(_slow_consumer),
    "nats-cut": NatsFault(_cut, lasts_max_s=_CUT_MAX_S),
}
"""What happens to the way from NATS, by name."""
