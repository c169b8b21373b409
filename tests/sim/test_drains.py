"""A broker that votes is drained, and the power of all brokers fails at any change of their disks: once they are back
the vote goes over all the same, and the others decide without it. Of two brokers it was the only one that votes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.sim.last_change import LastChange, stands_still
from tests.sim.test_first_starts import two_nodes
from tests.support.thoroughness import TURN, part

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId
from logboom.broker.control.nodes import node_id_of
from logboom.sim.node import SimNode
from logboom.sim.process import ProcessEndedError
from logboom.sim.simulation import Simulation

_CHANGES = {2: 50, 4: 100}
"""By the number of brokers. A drain makes some 45 of two, and some 95 of four."""
_TURNS = {2: 10, 4: 50}


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


def several(simulation: Simulation, count: int) -> tuple[SimNode, ...]:
    if count == 2:
        return two_nodes(simulation)
    config = ({"broker_id": number, "join": ["n1:9192"] if number > 1 else []} for number in range(1, count + 1))
    return tuple(SimNode(simulation, f"n{one['broker_id']}", broker=one, peer={}) for one in config)


def voters(nodes: tuple[SimNode, ...]) -> set[BrokerId]:
    """Those that vote, as the controller knows them; nobody where there is none."""
    for node in nodes:
        if node.broker is not None and node.broker.cluster.view.serving:
            cluster = node.broker.cluster
            names = {node_id_of(one.id, one.directory_id): one.id for one in cluster.state.image.brokers.values()}
            return {names[one.node_id] for one in cluster.status.members if one.is_voter}
    return set()


def has_no_vote(nodes: tuple[SimNode, ...]) -> bool:
    """Whether the first one has given its vote to another one."""
    vote = voters(nodes)
    return bool(vote) and BrokerId(1) not in vote


async def drained_until(nodes: tuple[SimNode, ...], changes_max: int) -> None:
    first, second, *_ = nodes

    async def drain() -> None:
        assert second.broker is not None
        assert second.process is not None
        await second.process.run(second.broker.cluster_admin.drain_broker(BrokerId(1), draining=True))

    last = LastChange(changes_max)
    for node in nodes:
        stands_still(node.disk, last)
    draining = asyncio.ensure_future(patiently(drain))
    while not last.is_there and not has_no_vote(nodes):
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
        while not has_no_vote(nodes):
            await asyncio.sleep(0.1)
    await first.stop()


@pytest.mark.parametrize("count", [2, 4])
def test_a_drain_during_which_the_power_fails_anywhere_is_completed(count: int) -> None:
    async def live(simulation: Simulation, changes_max: int) -> None:
        nodes = several(simulation, count)
        first, second, *_ = nodes
        first.found_cluster()
        for node in nodes:
            await node.start()
        async with asyncio.timeout(60):
            while count > 2 and len(voters(nodes)) < 3:
                await asyncio.sleep(0.1)
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
        await asyncio.gather(*(node.stop() for node in nodes[1:]))
        await asyncio.gather(*(node.start() for node in nodes[1:]))
        assert second.broker is not None
        assert "t" in second.broker.catalog.image.by_name

    for changes_max in part(_CHANGES[count], TURN, _TURNS[count]):
        simulation = Simulation(changes_max)
        simulation.run(live(simulation, changes_max), max_s=600)
