"""Consumers are sent to observers, as many as their stream says, and to the leader where an observer is of no use."""

import asyncio
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.cluster import commit, fenced, placed, stream_of, three_brokers
from tests.kafka.door import Client, Running, batch, running
from tests.kafka.test_cluster_descriptions import partitions
from tests.kafka.test_hot_apis import fetched, first_offsets, produced
from tests.support.simulated import run

from logboom.base.ids import BrokerEpoch, BrokerId, Epoch, Offset
from logboom.kafka.apis import fetch
from logboom.metadata import Stream
from logboom.metadata.assignment import PartitionChange
from logboom.metadata.records import PartitionsChanged
from logboom.replication.leadership import FollowerFetched

NONE = ErrorCode.none
MINE, NEAR, FAR = BrokerId(1), BrokerId(2), BrokerId(3)
LEADER = -1
VERSION = fetch.HANDLER.max_version


async def observed(node: Running, *, reads: str = "rack", **config: str) -> Stream:
    """A stream that this broker leads, in rack a; brokers 2 and 3, in the racks b and c, observe it."""
    await three_brokers(node)
    settings = {"logboom.observers": "2", "logboom.observer.reads": reads, **config}
    stream = await stream_of(node, "s", placed((1,)))
    await node.broker.catalog.change_stream_config("s", settings)
    assert node.broker.catalog.image.by_id[stream.id].assignments[0].observers == (NEAR, FAR)
    return stream


def heard(node: Running, observer: BrokerId, end: int, *, now_s: float | None = None) -> None:
    """The leader hears of an observer that has everything below `end`."""
    partition = node.broker.replicas.find("s", 0)
    when_s = node.broker.clock.monotonic_s() if now_s is None else now_s
    seen = FollowerFetched(observer, BrokerEpoch(0), Offset(end), partition.log_end_offset, when_s)
    partition.role.leader.replication_step(seen)


async def sent_to(client: Client, stream: Stream, rack: str, offset: int = 0, *, version: int = VERSION) -> int:
    """Where a consumer is sent; LEADER where it gets the records at once."""
    (part,) = await fetched(client, version, stream, {0: offset}, rack_id=rack, min_bytes=0)
    assert part.error_code is NONE
    preferred: int = part.preferred_read_replica
    assert bool(first_offsets(part.records)) == (preferred == LEADER and offset == 0)
    return preferred


@pytest.mark.parametrize("version", range(11, VERSION + 1))
def test_consumers_in_the_rack_of_an_observer_are_sent_there(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            stream = await observed(node)
            assert (await produced(client, 3, stream, 0, batch(b"a"))).error_code is NONE
            assert await sent_to(client, stream, "b", version=version) == LEADER, "it has not been heard of"
            heard(node, NEAR, 0)
            heard(node, FAR, 1)
            assert await sent_to(client, stream, "b", 1, version=version) == LEADER, "it does not have that offset"
            assert await sent_to(client, stream, "c", 1, version=version) == FAR
            assert await sent_to(client, stream, "a", version=version) == LEADER, "the leader's own rack"
            assert await sent_to(client, stream, "", version=version) == LEADER
            async with node.client() as other:
                assert await sent_to(other, stream, "b", version=version) == LEADER, "nobody knows how old it is"
                heard(node, NEAR, 1)
                assert await sent_to(other, stream, "b", version=version) == NEAR

    run(body)


def test_one_that_comes_back_at_once_is_served_by_the_leader_for_a_while(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client, node.client() as other:
            stream = await observed(node)
            assert (await produced(client, 3, stream, 0, batch(b"a"))).error_code is NONE
            heard(node, NEAR, 1)
            assert await sent_to(client, stream, "b") == NEAR
            for _ in range(3):
                assert await sent_to(client, stream, "b") == LEADER
            assert await sent_to(other, stream, "b") == NEAR, "another client"
            await asyncio.sleep(61)
            assert await sent_to(client, stream, "b") == NEAR

    run(body)


def test_with_preferred_all_consumers_are_sent_to_observers_in_turn(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node:
            stream = await observed(node, reads="preferred")
            async with node.client() as client:
                assert (await produced(client, 3, stream, 0, batch(b"a"))).error_code is NONE
            heard(node, NEAR, 1)
            heard(node, FAR, 1)

            async def sent(rack: str) -> int:
                async with node.client() as client:
                    return await sent_to(client, stream, rack)

            assert {await sent("") for _ in range(4)} == {NEAR, FAR}
            assert [await sent("b") for _ in range(4)] == [NEAR] * 4, "its own rack"
            assert {await sent("a") for _ in range(4)} == {NEAR, FAR}, "the leader is spared"
            await commit(node, fenced(NEAR))
            assert [await sent("b"), await sent("")] == [FAR, FAR]
            await commit(node, fenced(FAR))
            assert [await sent("b"), await sent("")] == [LEADER, LEADER]

    run(body)


@pytest.mark.parametrize("bound", [{"logboom.observer.max.lag.records": "1"}, {"logboom.observer.max.lag.ms": "5000"}])
def test_nobody_is_sent_to_an_observer_that_is_too_far_behind(tmp_path: Path, bound: dict[str, str]) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            stream = await observed(node, **bound)
            for _ in range(3):
                assert (await produced(client, 3, stream, 0, batch(b"a"))).error_code is NONE
            heard(node, NEAR, 1)
            await asyncio.sleep(6)
            assert await sent_to(client, stream, "b") == LEADER
            heard(node, NEAR, 3)
            assert await sent_to(client, stream, "b") == NEAR

    run(body)


def test_an_observer_serves_what_it_shows_and_sends_back_whoever_it_cannot_serve(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="b", voters=1) as node, node.client() as client:
            await three_brokers(node)
            stream = await stream_of(node, "s", placed((1,)))
            assert (await produced(client, 3, stream, 0, batch(b"a"))).error_code is NONE
            elsewhere = PartitionChange(index=0, replicas=(NEAR,), isr=(NEAR,), leader=NEAR, observers=(MINE,))
            change = {"logboom.observers": "1", "logboom.observer.max.lag.ms": "5000"}
            await commit(node, PartitionsChanged(version=2, id=stream.id, changes=(elsewhere,)))
            await node.broker.catalog.change_stream_config("s", change)
            partition = node.broker.replicas.find("s", 0)
            assert partition.role.follower.freshness.observes
            (part,) = await fetched(client, VERSION, stream, {0: 0})
            assert part.error_code is ErrorCode.offset_not_available, "it has not heard of its leader"
            partition.role.follower.freshness.mark_received(Offset(1), node.broker.clock.monotonic_s())
            partition.role.follower.freshness.shows(Offset(1))
            (part,) = await fetched(client, VERSION, stream, {0: 0}, current_leader_epoch=Epoch(1))
            assert (part.error_code, first_offsets(part.records)) == (NONE, [0])
            (part,) = await fetched(client, 10, stream, {0: 0})
            assert part.error_code is ErrorCode.not_leader_or_follower, "an old client means the leader"
            await asyncio.sleep(6)
            (part,) = await fetched(client, VERSION, stream, {0: 0})
            assert part.error_code is ErrorCode.offset_not_available

    run(body)


def test_observers_are_copies_to_consumers_and_no_replicas_to_administrators(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await observed(node)
            (topic,) = (await client.metadata(12, ["s"])).topics
            assert topic.partitions[0].replica_nodes == (MINE, NEAR, FAR)
            assert topic.partitions[0].isr_nodes == (MINE,)
            (topic,) = (await partitions(client, "s")).topics
            assert topic.partitions[0].replica_nodes == (MINE,)
            await commit(node, fenced(FAR))
            (topic,) = (await client.metadata(12, ["s"])).topics
            assert topic.partitions[0].offline_replicas == (FAR,)
            (topic,) = (await partitions(client, "s")).topics
            assert topic.partitions[0].offline_replicas == ()

    run(body)
