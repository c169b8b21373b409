"""A broker that votes alone is drained, and the power of both brokers fails at any change of their disks: once both are
back the vote goes over all the same, and the other one decides alone."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.sim.last_change import LastChange, stands_still
from tests.sim.test_first_starts import two_nodes
from tests.support.thoroughness import TURN, part

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId
from logboom.broker.control.nodes import node_id_of
from logboom.sim.node import SimNode
from logboom.sim.process import ProcessEndedError
from logboom.sim.simulation import Simulation

_CHANGES = 50
"""A drain makes some 45."""
_TURNS = 10


async def patiently(work: Callable[[], Awaitable[object]]) -> None:
    """As an operator, who tries again."""
    async with asyncio.timeout(60):
        while True:
            try:
                await work()
            except (LogboomError, ProcessEndedError, AssertionError):
                await asyncio.sleep(0.3)
            else:
                return


def voters(nodes: tuple[SimNode, SimNode]) -> set[BrokerId]:
    """Those that vote, as the controller knows them; nobody where there is none."""
    for node in nodes:
        if node.broker is not None and node.broker.cluster.view.serving:
            cluster = node.broker.cluster
            names = {node_id_of(one.id, one.directory_id): one.id for one in cluster.state.image.brokers.values()}
            return {names[one.node_id] for one in cluster.status.members if one.is_voter}
    return set()


async def drained_until(nodes: tuple[SimNode, SimNode], changes_max: int) -> None:
    first, second = nodes

    async def drain() -> None:
        assert second.broker is not None
        assert second.process is not None
        await second.process.run(second.broker.cluster_admin.drain_broker(BrokerId(1), draining=True))

    last = LastChange(changes_max)
    for node in nodes:
        stands_still(node.disk, last)
    draining = asyncio.ensure_future(patiently(drain))
    while not last.is_there and voters(nodes) != {2}:
        await asyncio.sleep(0.001)
    if last.is_there:
        for node in nodes:
            node.cut_power()
        for node in nodes:
            node.disk.fault = lambda operation, path: None
        await asyncio.gather(*(node.start() for node in nodes))
    last.never_comes()
    await draining
    async with asyncio.timeout(60):
        while voters(nodes) != {2}:
            await asyncio.sleep(0.1)
    await first.stop()


def test_a_drain_during_which_the_power_fails_anywhere_is_completed() -> None:
    async def live(simulation: Simulation, changes_max: int) -> None:
        nodes = first, second = two_nodes(simulation)
        first.found_cluster()
        await first.start()
        await second.start()
        assert first.broker is not None
        assert first.process is not None
        making = first.broker.catalog.create_stream("s", config={"min.insync.replicas": "2"}, assignments=((1, 2),))
        await first.process.run(making)
        await drained_until(nodes, changes_max)

        async def make() -> None:
            assert second.broker is not None
            assert second.process is not None
            making = second.broker.catalog.create_stream("t", config={}, assignments=((2,),))
            await second.process.run(making)

        await patiently(make)
        await second.stop()
        await second.start()
        assert second.broker is not None
        assert "t" in second.broker.catalog.image.by_name

    for changes_max in part(_CHANGES, TURN, _TURNS):
        simulation = Simulation(changes_max)
        simulation.run(live(simulation, changes_max), max_s=600)
