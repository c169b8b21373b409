"""Whole clusters under a seed: three real nodes on simulated machines that crash, lose their power and cannot reach
each other, while clients write. At the end no acknowledged record is lost, and all replicas are the same."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.broker.replicated import bytes_of
from tests.sim.nodes import start_cluster, three_nodes
from tests.support.full_disk import full

from logboom.base.errors import StorageError
from logboom.base.ids import NO_BROKER, Offset, ProducerEpoch, ProducerId, StreamName
from logboom.kafka.wire.messages import milliseconds
from logboom.metadata.assignment import Assignment
from logboom.records import Record, build_batch
from logboom.sim.client import AskError, RefusedError, SimClient, TopicPartition
from logboom.sim.node import SimNode
from logboom.sim.pipelined_client import PipelinedClient
from logboom.sim.process import ProcessEndedError
from logboom.sim.simulation import Simulation

STREAM = "s"
PARTITIONS = 2
WRITERS = 3
AGAIN_S = 60
"""How long it may take, once nothing is broken any more, until every partition takes records."""


class Cluster:
    """Three brokers of one cluster, each its own machine. A node whose process ends is started again on its disk."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.chance = simulation.fork("cluster")
        self.nodes = three_nodes(simulation)
        self.acked: dict[tuple[int, int], bytes] = {}
        """Partition and offset of each record that was acknowledged, and its value."""
        self.leaders: dict[int, SimNode] = {}
        """Who took the last record of a partition."""
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Until all three are there, with a stream that has a replica on each."""
        await start_cluster(self.nodes)
        first = self.nodes[0]
        assert first.broker is not None
        assert first.process is not None
        await first.process.run(
            first.broker.catalog.create_stream(
                STREAM, partitions=PARTITIONS, replication_factor=3, config={"min.insync.replicas": "2"}
            )
        )

    def later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(_all_of(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def up(self, node: SimNode, after_s: float) -> None:
        """Start a node that is down, however often it is killed meanwhile."""
        await asyncio.sleep(after_s)
        try:
            if not node.running:
                await node.start()
        except ProcessEndedError:
            pass

    def crash(self, node: SimNode, *, power: bool, after_s: float) -> None:
        if node.running:
            (node.cut_power if power else node.kill)()
            self.later(self.up(node, after_s))

    # --- clients ------------------------------------------------------------------------------------------------

    async def write(self, writer: int, until: asyncio.Event) -> None:
        """Write unique values one after the other, to whichever node takes them."""
        number = 0
        while not until.is_set():
            number += 1
            partition = self.chance.randrange(PARTITIONS)
            await self.written(partition, b"%d-%d" % (writer, number))
            await asyncio.sleep(self.chance.expovariate(20))

    async def written(self, partition: int, value: bytes) -> bool:
        """Whether a value was acknowledged. One that was not is never sent again: it may be there, once."""
        node = self.leaders.get(partition) or self.chance.choice(self.nodes)
        batch = bytes(build_batch([Record(Offset(0), 0, None, value, ())]))
        try:
            client = await SimClient.connect(node.address, "writer")
            try:
                offset = await client.produce(TopicPartition(STREAM, partition), batch)
            finally:
                client.close()
        except (RefusedError, AskError):
            self.leaders.pop(partition, None)
            return False
        assert offset is not None
        assert self.acked.setdefault((partition, offset), value) == value, "two records at one offset"
        self.leaders[partition] = node
        return True

    # --- faults -------------------------------------------------------------------------------------------------

    def fault(self) -> None:
        """Something breaks."""
        network = self.simulation.network
        node = self.chance.choice(self.nodes)
        after_s = self.chance.choice([0.0, 0.5, 5.0])
        names = [one.name for one in self.nodes]
        match self.chance.randrange(8):
            case 0 | 1:
                self.crash(node, power=False, after_s=after_s)
            case 2:
                self.crash(node, power=True, after_s=after_s)
            case 3:
                for one in self.nodes:
                    self.crash(one, power=True, after_s=self.chance.uniform(0, 2))
            case 4:
                for name in names:
                    if name != node.name:
                        network.split(node.name, name)
            case 5:
                network.block(*self.chance.sample(names, 2))
            case 6:
                network.heal()
            case _:
                for link in self.chance.sample(network.links, len(network.links) // 3):
                    link.cut()

    # --- the end ------------------------------------------------------------------------------------------------

    async def mend(self) -> None:
        """Nothing is broken any more: all nodes are up, and every partition takes records again."""
        self.simulation.network.heal()
        async with asyncio.timeout(AGAIN_S):
            await asyncio.gather(*self.tasks)
            for node in self.nodes:
                await self.up(node, 0)
            for partition in range(PARTITIONS):
                number = 0
                while not await self.written(partition, b"last-%d-%d" % (partition, number)):
                    number += 1
                    await asyncio.sleep(0.05)

    async def check(self) -> None:
        """Replicas become the same, and have every record that was acknowledged."""
        for partition in range(PARTITIONS):
            async with asyncio.timeout(AGAIN_S):
                while not await self.are_the_same(partition):
                    await asyncio.sleep(0.1)
            values = await self.values(partition)
            for (where, offset), value in self.acked.items():
                if where == partition:
                    assert values.get(offset) == value, f"record {value!r} at {offset} of partition {partition} is lost"
            assert len(set(values.values())) == len(values), "a record is there twice"

    async def are_the_same(self, partition: int) -> bool:
        """Whether all replicas have the same bytes."""
        try:
            return len(set(await self.logs(partition))) == 1
        except StorageError:  # a replica that still finds out where its leader's log goes on was cut while it was read
            return False

    async def logs(self, partition: int) -> list[bytes]:
        """The bytes of each replica."""
        found = []
        for node in self.nodes:
            assert node.broker is not None
            assert node.process is not None
            log = node.broker.replicas.find(STREAM, partition).log
            found.append(await node.process.run(asyncio.to_thread(bytes_of, log)))
        return found

    async def values(self, partition: int) -> dict[int, bytes]:
        """All committed records, from whichever node leads."""
        where = TopicPartition(STREAM, partition)
        for node in self.nodes:
            client = await SimClient.connect(node.address, "reader")
            try:
                found: dict[int, bytes] = {}
                end = await client.end_offset(where)
                while len(found) < end:
                    found |= dict((await client.fetch(where, Offset(len(found)), 1_000)).records)
            except RefusedError:
                continue
            else:
                return found
            finally:
                client.close()
        raise AssertionError("nobody leads")


async def _all_of(work: Awaitable[None]) -> None:
    await work


def run(seed: int, break_it: Callable[[Cluster], Awaitable[None]]) -> Cluster:
    """One life of a cluster: `break_it` returns when enough was broken."""
    simulation = Simulation(seed)
    cluster = Cluster(simulation)

    async def main() -> None:
        await cluster.start()
        until = asyncio.Event()
        writers = [asyncio.ensure_future(cluster.write(number, until)) for number in range(WRITERS)]
        await break_it(cluster)
        until.set()
        await asyncio.gather(*writers)
        await cluster.mend()
        await cluster.check()

    simulation.run(main(), max_s=600)
    return cluster


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("seed", [Random(n).getrandbits(32) for n in range(4)])
def test_no_acknowledged_record_is_lost_whatever_breaks(seed: int) -> None:
    async def break_it(cluster: Cluster) -> None:
        for _ in range(10):
            await asyncio.sleep(cluster.chance.uniform(0.2, 4))
            cluster.fault()

    assert len(run(seed, break_it).acked) > 10


def test_brokers_keep_their_leases_over_links_on_which_an_answer_takes_most_of_one() -> None:
    """Each round trip takes up to 0.4 s, of which the answer to a heartbeat takes two. Found by seed 310029."""
    simulation = Simulation(310029)
    cluster = Cluster(simulation)
    simulation.network.config = replace(simulation.network.config, latency_min_s=0.01, latency_max_s=0.2)

    async def main() -> float:
        """In which share of the time brokers had a lease."""
        await cluster.start()
        await asyncio.sleep(5)  # for the second and the third to be voters
        held: list[bool] = []
        for _ in range(600):
            await asyncio.sleep(0.05)
            held.extend(
                node.broker is not None and node.broker.cluster.registration.holds_lease for node in cluster.nodes
            )
        return sum(held) / len(held)

    assert simulation.run(main(), max_s=600) > 0.99


def test_leaders_of_many_partitions_are_elected_at_once_over_slow_links() -> None:
    """A change is a round trip of 0.2 s between voters: one for each partition would be half a minute for 139."""
    simulation = Simulation(5)
    cluster = Cluster(simulation)
    simulation.network.config = replace(simulation.network.config, latency_min_s=0.1, latency_max_s=0.101)
    many = 139

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await cluster.start()
        await asyncio.sleep(6)  # for the second and the third to be voters
        deciding, *_ = sorted(cluster.nodes, key=lambda one: one.broker is None or not one.broker.cluster.view.serving)
        assert deciding.broker is not None
        assert deciding.process is not None
        catalog = deciding.broker.catalog
        await deciding.process.run(catalog.create_stream("many", partitions=many, replication_factor=3))

        def assignments() -> Sequence[Assignment]:
            return catalog.image.by_name[StreamName("many")].assignments

        victim = next(node for node in cluster.nodes if node is not deciding)
        assert sum(one.leader == victim.broker_id for one in assignments()) > many / 4
        killed_s = loop.time()
        victim.kill()
        while any(one.leader in (victim.broker_id, NO_BROKER) for one in assignments()):
            await asyncio.sleep(0.02)
        assert loop.time() - killed_s < 2.5, "a lease and a tenth, and a change or two"
        await victim.start()
        while any(len(one.isr) < 3 for one in assignments()):
            await asyncio.sleep(0.02)
        client = await SimClient.connect(deciding.address, "operator")
        asked_s = loop.time()
        asked = [{"topic": "many", "partitions": tuple(range(many))}]
        await client.ask((43, 1), election_type=0, topic_partitions=asked, timeout=milliseconds(60_000), answer_s=100)
        assert loop.time() - asked_s < 1.5
        client.close()

    simulation.run(main(), max_s=600)


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
def test_another_broker_leads_when_one_is_gone(power: bool) -> None:
    async def break_it(cluster: Cluster) -> None:
        await asyncio.sleep(1)
        before = len(cluster.acked)
        cluster.crash(cluster.nodes[0], power=power, after_s=30)
        await asyncio.sleep(10)
        assert len(cluster.acked) > before + 50

    run(1, break_it)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_broker_that_has_stopped_is_fenced_and_keeps_nobody_waiting(seed: int) -> None:
    """The controller too, which another one fences; and the last two, of which no majority is left in the end."""
    simulation = Simulation(seed)
    cluster = Cluster(simulation)

    async def create(node: SimNode, name: str) -> None:
        assert node.broker is not None
        assert node.process is not None
        await node.process.run(node.broker.catalog.create_stream(name, replication_factor=3))

    async def main() -> None:
        await cluster.start()
        await asyncio.sleep(5)  # for the second and the third to be voters
        for number in range(4):
            deciding = next(node for node in cluster.nodes if node.broker and node.broker.cluster.view.serving)
            await deciding.stop()
            rest = [node for node in cluster.nodes if node.running]
            await asyncio.sleep(0.2)  # less than a fifth of a lease, for all to have applied it
            for node in rest:
                assert node.broker is not None
                assert node.broker.catalog.image.brokers[deciding.broker_id].fenced
                await create(node, f"made-{number}-by-{node.name}")
            await deciding.start()
        begun_s = asyncio.get_running_loop().time()
        for node in cluster.nodes:
            await node.stop()
        assert asyncio.get_running_loop().time() - begun_s < 5

    simulation.run(main(), max_s=600)


def test_what_one_producer_sees_of_a_full_disk_is_in_the_order_in_which_it_sent() -> None:
    """The leader knows that it refuses the second request before the first one is committed. The first one is answered
    first, nevertheless: a client takes answers for those of its requests in their order."""
    simulation = Simulation(1)
    cluster = Cluster(simulation)
    where = TopicPartition("two", 0)

    def sent(client: PipelinedClient, sequence: int) -> "asyncio.Future[Any]":
        records = [Record(Offset(0), 0, None, b"%d" % sequence * 8_000, ())]
        return client.begin_produce(
            where,
            bytes(
                build_batch(records, producer_id=ProducerId(7), producer_epoch=ProducerEpoch(0), base_sequence=sequence)
            ),
        )

    told: list[tuple[int, ErrorCode, int]] = []

    def answered(number: int, done: "asyncio.Future[Any]") -> None:
        told.append((number, done.result().error_code, done.result().base_offset))

    async def main() -> None:
        await cluster.start()
        one, two, _ = cluster.nodes
        assert one.broker is not None
        assert one.process is not None
        await asyncio.sleep(5)  # for the second and the third to be voters
        create = one.broker.catalog.create_stream
        await one.process.run(create("two", config={"min.insync.replicas": "2"}, assignments=[[1, 2]]))
        client = await PipelinedClient.connect(one.address, "producer")
        answer = await sent(client, 0)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
        simulation.network.split(one.name, two.name)
        futures = [sent(client, 1)]
        log = one.broker.replicas.find("two", 0).log
        while log.written_end < 2:
            await asyncio.sleep(0.001)
        with full(one.disk, ".log"):
            futures += [sent(client, 2), sent(client, 3)]
            for number, future in enumerate(futures, 1):
                future.add_done_callback(partial(answered, number))
            await asyncio.sleep(0.2)
            assert told == []
        simulation.network.heal()
        await asyncio.gather(*futures)
        refused = ErrorCode.kafka_storage_error
        assert told == [(1, ErrorCode.none, 1), (2, refused, -1), (3, refused, -1)]
        again = [sent(client, sequence) for sequence in (2, 3)]
        assert [(one.error_code, one.base_offset) for one in await asyncio.gather(*again)] == [
            (ErrorCode.none, 2),
            (ErrorCode.none, 3),
        ]
        client.close()

    simulation.run(main(), max_s=600)


def test_the_broker_that_founded_a_cluster_of_two_is_drained_stopped_and_removed() -> None:
    """It is the only voter, so without its vote going to the other one nobody could remove it."""
    simulation = Simulation(1)
    first = SimNode(simulation, "n1", broker={"broker_id": 1}, peer={})
    second = SimNode(simulation, "n2", broker={"broker_id": 2, "join": ["n1:9192"]}, peer={})

    async def body() -> None:
        first.found_cluster()
        await first.start()
        await second.start()
        broker, process = second.broker, second.process
        assert broker is not None
        assert process is not None
        await process.run(broker.catalog.create_stream(STREAM, config={}, assignments=((2,),)))
        for stream in tuple(broker.cluster.state.image):
            for index in range(stream.partitions):
                await process.run(broker.cluster_admin.reassign(stream.name, index, [2]))
        await process.run(broker.cluster_admin.drain_broker(1, draining=True))
        async with asyncio.timeout(30):
            while broker.controller != 2 or any(
                set(one.replicas) != {2} for stream in broker.cluster.state.image for one in stream.assignments
            ):
                await asyncio.sleep(0.1)
            await asyncio.sleep(2)  # the new controller takes the vote of the one before
        await first.stop()
        await process.run(broker.cluster_admin.unregister_broker(1))
        assert list(broker.cluster.state.image.brokers) == [2]
        await process.run(broker.catalog.create_stream("more", config={}, assignments=((2,),)))

    simulation.run(body(), max_s=300)
