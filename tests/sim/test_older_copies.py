"""An older copy of a voter's data directory, put in its place: it says nothing of the metadata group before it is
refused, since it could vote a second time and would count as having what it has lost."""

import asyncio

import pytest
from tests.sim.nodes import start_cluster, three_nodes

from logboom.base.errors import LogboomError
from logboom.broker.peers import FrameKind, PeerIdentity
from logboom.sim.node import SimNode
from logboom.sim.simulation import Simulation


def listen_for(node: SimNode, other: int, said: list[int]) -> None:
    """Note what a broker says of the metadata group to this node."""
    assert node.broker is not None
    handlers = node.broker.peers._services.handlers.posts  # type: ignore[attr-defined]
    take = handlers[FrameKind.RAFT]

    def taken(peer: PeerIdentity, body: memoryview) -> None:
        if peer.broker_id == other:
            said.append(len(body))
        take(peer, body)

    handlers[FrameKind.RAFT] = taken


def voters(node: SimNode) -> int:
    assert node.broker is not None
    return len(node.broker.cluster.quorum().voters)


@pytest.mark.parametrize("others", ["run", "are one alone"])
def test_an_older_copy_of_a_voter_says_nothing_before_it_is_refused(others: str) -> None:
    simulation = Simulation(11)

    async def scenario() -> None:
        one, two, three = nodes = three_nodes(simulation)
        await start_cluster(nodes)
        async with asyncio.timeout(60):
            while voters(one) < 3:
                await asyncio.sleep(0.1)
        three.kill()
        older = three.disk.copy()
        await three.start()
        three.kill()
        three.disk = older
        if others == "are one alone":
            two.kill()
        await asyncio.sleep(2)  # what the processes said that were killed has come by then
        said: list[int] = []
        for node in nodes[:2]:
            if node.running:
                listen_for(node, 3, said)
        async with asyncio.timeout(120):
            with pytest.raises(LogboomError, match="is an older copy"):
                await three.start()
        assert said == []

    simulation.run(scenario(), max_s=600)
