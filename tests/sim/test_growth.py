"""A cluster grows from one broker to three and shrinks to one of them, again and again, while brokers are killed, lose
their power and are cut off: whoever is left leads, votes alone, and has every acknowledged record."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import pytest

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId, Offset, StreamName
from logboom.broker.broker import Broker
from logboom.metadata import Image
from logboom.records import Record, build_batch
from logboom.sim.client import AskError, RefusedError, SimClient, TopicPartition
from logboom.sim.node import SimNode
from logboom.sim.process import ProcessEndedError
from logboom.sim.simulation import Simulation

STREAM = TopicPartition("s", 0)
ALL = (1, 2, 3)
CYCLES = 2
_STEP_MAX_S = 300
_FAILS = (LogboomError, ProcessEndedError, OSError, TimeoutError)


class GrowingCluster:
    """Three machines, of which some are brokers of the cluster."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.chance = simulation.fork("growth")
        self.nodes = {number: self._node(number) for number in ALL}
        self.members = {1}
        self.held: set[int] = set()
        """Nodes that are started or ended by somebody now."""
        self.acked: list[int] = []
        self.ends = False

    def _node(self, number: int) -> SimNode:
        join = [f"n{other}:9192" for other in ALL if other != number] if number > 1 else []
        return SimNode(
            self.simulation,
            f"n{number}",
            broker={"broker_id": number, "join": join, "replica_lag_max_ms": 3_000},
            peer={},
        )

    def brokers(self) -> list[tuple[SimNode, Broker]]:
        """Those that serve."""
        nodes = [self.nodes[number] for number in sorted(self.members)]
        return [(node, node.broker) for node in nodes if node.running and node.broker is not None]

    async def until(
        self, holds: Callable[[Broker], bool], command: Callable[[Broker], Awaitable[None]] | None = None
    ) -> None:
        """Have some broker execute a command, again and again, until something holds for the controller."""
        async with asyncio.timeout(_STEP_MAX_S):
            while not any(one.cluster.view.serving and holds(one) for _, one in self.brokers()):
                there = self.brokers()
                if there and command is not None:
                    node, broker = self.chance.choice(there)
                    assert node.process is not None
                    with suppress(*_FAILS):
                        async with asyncio.timeout(10):
                            await node.process.run(_as_coroutine(command(broker)))
                await asyncio.sleep(0.1)

    # --- steps ---------------------------------------------------------------------------------------------------

    async def grow(self) -> None:
        for number in sorted(set(ALL) - self.members):
            await self.nodes[number].start()
            self.members.add(number)
        wanted = self.chance.sample(ALL, 3)
        await self.until(
            lambda broker: set(_replicas(broker.cluster.state.image)) == set(ALL) and not _moves(broker),
            lambda broker: broker.cluster_admin.reassign(STREAM.stream, 0, wanted),
        )

    async def shrink_to(self, stay: int) -> None:
        for number in sorted(self.members - {stay}):
            await self._remove(number, stay)

    async def _remove(self, number: int, stay: int) -> None:
        """As an operator does: drain, stop, remove."""
        broker_id = BrokerId(number)
        await self.until(
            lambda broker: broker.cluster.state.image.brokers[broker_id].draining,
            lambda broker: broker.cluster_admin.drain_broker(number, draining=True),
        )
        await self.until(
            lambda broker: not _held(broker.cluster.state.image, number),
            lambda broker: _evacuate(broker, number, stay),
        )
        await self.until(lambda broker: not _is_needed_to_vote(broker, broker_id))
        while number in self.held:
            await asyncio.sleep(0.05)
        self.held.add(number)
        self.members.discard(number)
        if self.nodes[number].running:
            self.nodes[number].kill()
        await self.until(
            lambda broker: broker_id not in broker.cluster.state.image.brokers,
            lambda broker: broker.cluster_admin.unregister_broker(number),
        )
        self.nodes[number].wipe([f"n{other}:9192" for other in sorted(self.members)])
        self.held.discard(number)

    # --- meanwhile -----------------------------------------------------------------------------------------------

    async def trouble(self) -> None:
        while not self.ends:
            await asyncio.sleep(self.chance.uniform(0.1, 2.0))
            there = [number for number in sorted(self.members - self.held) if self.nodes[number].running]
            if there:
                await self._hurt(self.chance.choice(there))

    async def _hurt(self, number: int) -> None:
        node, network = self.nodes[number], self.simulation.network
        self.held.add(number)
        try:
            match self.chance.choice(("kill", "power", "cut")):
                case "cut":
                    network.split(node.name, f"n{self.chance.choice([one for one in ALL if one != number])}")
                    await asyncio.sleep(self.chance.uniform(0.2, 3.0))
                    network.heal([f"n{one}" for one in ALL])
                    return
                case "kill":
                    node.kill()
                case "power":
                    node.cut_power()
            await asyncio.sleep(self.chance.uniform(0, 1.0))
            await node.start()
        finally:
            self.held.discard(number)

    async def write(self) -> None:
        client, number = None, 0
        while not self.ends:
            there = self.brokers()
            try:
                if client is None and there:
                    client = await SimClient.connect(self.chance.choice(there)[0].address, "writer")
                if client is not None:
                    number += 1
                    await client.produce(STREAM, bytes(build_batch([Record(Offset(0), 0, None, b"%d" % number, ())])))
                    self.acked.append(number)
            except (AskError, RefusedError, OSError):
                if client is not None:
                    client.close()
                client = None
            await asyncio.sleep(self.chance.uniform(0, 0.05))
        if client is not None:
            client.close()

    async def records(self, number: int) -> set[int]:
        """What a broker has, once it leads."""
        async with asyncio.timeout(60):
            while True:
                try:
                    client = await SimClient.connect(self.nodes[number].address, "reader")
                    end = await client.end_offset(STREAM)
                    break
                except (AskError, RefusedError, OSError):
                    await asyncio.sleep(0.5)
        position, found = Offset(0), set[int]()
        while position < end:
            polled = await client.fetch(STREAM, position, 100)
            found |= {int(value) for _, value in polled.records}
            position = polled.next_offset
        client.close()
        return found


async def _as_coroutine(work: Awaitable[None]) -> None:
    await work


def _replicas(image: Image) -> Sequence[int]:
    return image.by_name[StreamName(STREAM.stream)].assignments[0].replicas


def _moves(broker: Broker) -> bool:
    return broker.cluster.state.image.by_name[StreamName(STREAM.stream)].assignments[0].reassigning


def _held(image: Image, number: int) -> list[tuple[str, int]]:
    """The partitions of which a broker has a replica."""
    return [
        (stream.name, index)
        for stream in image
        for index, one in enumerate(stream.assignments)
        if number in one.replicas
    ]


async def _evacuate(broker: Broker, number: int, stay: int) -> None:
    for name, index in _held(broker.cluster.state.image, number):
        if not broker.cluster.state.image.by_name[StreamName(name)].assignments[index].removing:
            await broker.cluster_admin.reassign(name, index, [stay])


def _is_needed_to_vote(broker: Broker, number: BrokerId) -> bool:
    """Whether there is no majority of the voters without a broker; `logboom cluster drain` waits for as much."""
    voters = [one.broker_id for one in broker.cluster.quorum().voters]
    return number in voters and len(voters) < 3


@pytest.mark.parametrize("seed", [4, 20, 108])
def test_a_cluster_grows_and_shrinks_while_brokers_are_killed_and_cut_off(seed: int) -> None:
    simulation = Simulation(seed)
    cluster = GrowingCluster(simulation)

    async def body() -> None:
        first = cluster.nodes[1]
        first.found_cluster()
        await first.start()
        assert first.broker is not None
        assert first.process is not None
        await first.process.run(first.broker.catalog.create_stream(STREAM.stream, config={}, assignments=((1,),)))
        meanwhile = [asyncio.ensure_future(cluster.trouble()), asyncio.ensure_future(cluster.write())]
        for _ in range(CYCLES):
            await cluster.grow()
            stay = cluster.chance.choice(ALL)
            await cluster.shrink_to(stay)
        cluster.ends = True
        await asyncio.gather(*meanwhile)
        assert cluster.acked
        assert set(cluster.acked) <= await cluster.records(stay)

    simulation.run(body(), max_s=3_600)
