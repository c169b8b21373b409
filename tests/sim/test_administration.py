"""What the simulated operator asks for, whatever else was asked for meanwhile."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from logboom.base.errors import UnknownBrokerError
from logboom.base.ids import BrokerId
from logboom.client.messages import Api
from logboom.sim.administration import Operator
from logboom.sim.node import SimNode
from logboom.sim.simulation import Simulation

METADATA, REASSIGN, LIST_REASSIGNMENTS = 3, 45, 46


class Asked(Operator):
    """An operator of brokers 2 to 4 and 6; each partition is as the test says, and what is asked for is noted."""

    def __init__(self, partitions: Mapping[int, tuple[Sequence[int], Sequence[int]]]) -> None:
        """`partitions`: replicas, and those of them that a move takes away."""
        simulation = Simulation(1)
        nodes = [SimNode(simulation, f"n{number}", broker={"broker_id": number}, peer={}) for number in (2, 3, 4, 6)]
        super().__init__(simulation, nodes[:3], nodes[3], "s")
        self.members = {BrokerId(node.broker_id): node for node in nodes}
        self._partitions = partitions
        self.moves: dict[int, list[int]] = {}

    async def ask(self, api: Api, **fields: Any) -> Any:
        if api[0] == METADATA:
            return topics_of(
                {"partition_index": index, "replica_nodes": replicas}
                for index, (replicas, _) in self._partitions.items()
            )
        if api[0] == LIST_REASSIGNMENTS:
            return topics_of(
                {"partition_index": index, "removing_replicas": going}
                for index, (_, going) in self._partitions.items()
                if going
            )
        assert api[0] == REASSIGN
        for one in fields["topics"][0]["partitions"]:
            self.moves[one["partition_index"]] = list(one["replicas"])
        return None


def topics_of(partitions: Any) -> SimpleNamespace:
    return SimpleNamespace(
        topics=[SimpleNamespace(name="s", partitions=[SimpleNamespace(**one) for one in partitions])]
    )


@pytest.mark.parametrize(
    ("replicas", "going", "moved"),
    [
        ([2, 3, 4], [], [6, 3, 4]),
        ([3, 4, 6], [], None),
        ([6, 3, 4, 1, 2], [1, 2], None),
        ([2, 3, 4, 1], [1], [6, 3, 4]),
        ([6, 4, 3, 2], [], [6, 4, 3]),
    ],
    ids=["it has a copy", "it has none", "it goes", "another one goes", "there is one more than wanted"],
)
def test_who_is_to_hold_nothing_is_replaced_where_each_partition_is_to_be(
    replicas: list[int], going: list[int], moved: list[int] | None
) -> None:
    """The operator asked for what a partition had on the move: for more replicas each time, among them one that was
    lost. Found by seed 310096 of three nodes, 60 s."""
    operator = Asked({0: (replicas, going)})
    asyncio.run(operator.evacuate(BrokerId(2)))
    assert operator.moves.get(0) == moved


def test_a_broker_that_the_cluster_has_forgotten_is_removed_whether_that_was_answered_or_not() -> None:
    """The operator started it again after 10 s without an answer, and took its refusal for the end of the run. Found by
    seed 641002 of five nodes, 60 s."""

    class Unanswered(Asked):
        async def remove(self, broker: BrokerId) -> None:
            await asyncio.Event().wait()

    class Forgotten(SimNode):
        async def start(self) -> None:
            raise UnknownBrokerError("broker 6 was removed from this cluster")

        async def stop(self) -> None:
            pass

    simulation = Simulation(1)
    node = Forgotten(simulation, "n6", broker={"broker_id": 6}, peer={})
    simulation.run(Unanswered({}).stop_and_remove(node), max_s=60)
