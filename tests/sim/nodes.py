"""What tests of one simulated node share."""

from collections.abc import Awaitable, Callable

from logboom.sim.client import SimClient
from logboom.sim.device import DiskTiming
from logboom.sim.node import SimNode
from logboom.sim.simulation import Simulation


def on_node(body: Callable[[SimNode, Simulation], Awaitable[None]], timing: DiskTiming | None = None) -> None:
    """Run `body` with a node that has started."""
    simulation = Simulation(1)

    async def main() -> None:
        node = SimNode(simulation, "n1", timing=timing)
        await node.start()
        await body(node, simulation)

    simulation.run(main(), max_s=300)


async def connected(node: SimNode) -> SimClient:
    """A client of the node."""
    return await SimClient.connect(node.address, "test")
