"""A broker whose wall clock is wrong from its start on deletes nothing by it: the others' clocks show that it is."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.sim.nodes import start_cluster, three_nodes

from logboom.base.ids import Offset
from logboom.base.units import DAY_MS
from logboom.broker.broker import Broker
from logboom.records import Record, build_batch
from logboom.sim.client import SimClient, TopicPartition
from logboom.sim.node import SimNode
from logboom.sim.simulation import Simulation

YEARS_MS = 10 * 365 * DAY_MS
STREAM = "s"


def nodes_of(simulation: Simulation, offsets_ms: Sequence[int]) -> list[SimNode]:
    """Three brokers with wall clocks that are off by this much."""
    nodes = three_nodes(simulation)
    for node, offset_ms in zip(nodes, offsets_ms, strict=True):
        node.clock.wall_offset_ms = offset_ms
    return nodes


async def led_by(nodes: Sequence[SimNode], leader: SimNode) -> Broker:
    """The broker of `leader`, once it leads a stream of six segments with records of this moment."""
    await start_cluster(nodes)
    broker, process = leader.broker, leader.process
    assert broker is not None
    assert process is not None
    others = tuple(node.broker_id for node in nodes if node is not leader)
    config = {"segment.bytes": "16384", "retention.ms": str(DAY_MS)}
    assignment = ((leader.broker_id, *others),)
    await process.run(broker.catalog.create_stream(STREAM, config=config, assignments=assignment))
    client = await SimClient.connect(leader.address, "writer")
    now_ms = leader.clock.wall_ms() - leader.clock.wall_offset_ms
    for number in range(12):
        batch = bytes(build_batch([Record(Offset(0), now_ms, None, b"%d" % number * 5_000, ())]))
        await client.produce(TopicPartition(STREAM, 0), batch)
    client.close()
    return broker


@pytest.mark.parametrize("wrong", [0, 1], ids=["the controller", "another broker"])
def test_a_leader_whose_clock_is_years_ahead_deletes_no_record(wrong: int) -> None:
    simulation = Simulation(1)
    nodes = nodes_of(simulation, [YEARS_MS if place == wrong else 0 for place in range(3)])

    async def main() -> None:
        broker = await led_by(nodes, nodes[wrong])
        process = nodes[wrong].process
        assert process is not None
        partition = broker.replicas.find(STREAM, 0)
        assert len(partition.log.segments) > 3
        assert await process.run(partition.deletion.enforce_retention(partition.config)) == 0
        assert broker.runtime.settled_clock.held_back_ms() >= YEARS_MS - 1_000

    simulation.run(main(), max_s=600)


def test_what_is_old_is_deleted_by_the_clocks_of_most_brokers() -> None:
    """One that is ahead of them deletes nothing sooner, one that is behind does not keep it longer, and none of them
    deletes by a jump of all."""
    simulation = Simulation(2)
    nodes = nodes_of(simulation, [-YEARS_MS, 0, YEARS_MS])

    async def main() -> None:
        broker = await led_by(nodes, nodes[2])
        process = nodes[2].process
        assert process is not None
        partition = broker.replicas.find(STREAM, 0)
        settled, old = broker.runtime.settled_clock, replace(partition.config, retention_ms=1)
        assert abs(settled.now_ms() - nodes[1].clock.wall_ms()) < 1_000
        for node in nodes:
            node.clock.wall_offset_ms += 2 * DAY_MS
        await asyncio.sleep(2)
        assert await process.run(partition.deletion.enforce_retention(partition.config)) == 0, "the jump is new"
        assert await process.run(partition.deletion.enforce_retention(old)) > 0

    simulation.run(main(), max_s=600)


def test_most_brokers_that_start_with_clocks_that_are_years_ahead_delete_no_record() -> None:
    """Each of them has noted what time it was before."""
    simulation = Simulation(3)
    nodes = nodes_of(simulation, [0, 0, 0])

    async def main() -> None:
        await led_by(nodes, nodes[1])
        for node in nodes:
            await node.stop()
        for node in nodes[1:]:
            node.clock.wall_offset_ms = YEARS_MS
        await asyncio.gather(*(node.start() for node in nodes))
        leader = nodes[2]  # it was the last one in sync
        broker, process = leader.broker, leader.process
        assert broker is not None
        assert process is not None
        partition = broker.replicas.find(STREAM, 0)
        async with asyncio.timeout(60):
            while not partition.leads:
                await asyncio.sleep(0.1)
        await asyncio.sleep(10)  # the controller hears all three clocks
        assert len(partition.log.segments) > 3
        assert await process.run(partition.deletion.enforce_retention(partition.config)) == 0
        assert broker.runtime.settled_clock.held_back_ms() >= YEARS_MS - DAY_MS

    simulation.run(main(), max_s=600)
