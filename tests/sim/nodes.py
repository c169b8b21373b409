"""What tests of simulated nodes share."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

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


def three_nodes(simulation: Simulation, nats: dict[str, Any] | None = None) -> list[SimNode]:
    """The machines of a cluster that `start_cluster` starts: n1 founds it, n2 and n3 join it there."""
    return [
        SimNode(
            simulation,
            f"n{number}",
            broker={"broker_id": number, "join": ["n1:9192"] if number > 1 else []},
            peer={},
            nats=nats,
        )
        for number in (1, 2, 3)
    ]


async def start_cluster(nodes: Sequence[SimNode]) -> None:
    """Until all are there. They may not be voters yet."""
    founder, *others = nodes
    founder.found_cluster()
    await founder.start()
    await asyncio.gather(*(node.start() for node in others))
