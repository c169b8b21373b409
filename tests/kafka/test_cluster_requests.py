"""Requests to a broker that does not lead: whom to ask instead (KIP-951), what followers serve (KIP-392)."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.cluster import NOBODY, commit, fenced, placed, stream_of, three_brokers
from tests.kafka.door import Client, Running, batch, running, until
from tests.kafka.test_hot_apis import fetch_request, fetched, first_offsets, looked_up, produce_request, produced
from tests.support.simulated import run

from logboom.base.errors import StorageError
from logboom.base.ids import BrokerId, Epoch, Offset
from logboom.broker.partition.leader import Leading
from logboom.kafka.apis import fetch, list_offsets, load_handlers, offset_for_leader_epoch, produce
from logboom.kafka.wire.messages import make, milliseconds, nested
from logboom.metadata import Stream
from logboom.metadata.assignment import PartitionChange
from logboom.metadata.records import PartitionsChanged

NONE, NOT_LEADER = ErrorCode.none, ErrorCode.not_leader_or_follower
FENCED, OUT_OF_RANGE = ErrorCode.fenced_leader_epoch, ErrorCode.offset_out_of_range
MINE, OTHER = BrokerId(1), BrokerId(2)
EPOCH = Epoch(5)
WAIT = milliseconds(5_000)


def versions(handler: Any) -> range:
    return range(handler.min_version, handler.max_version + 1)


async def followed(node: Running, client: Client, *, committed: int = 2) -> Stream:
    """A stream of two batches, which broker 2 leads from now on. So many of them this one knows to be committed."""
    if len(node.broker.catalog.image.brokers) == 1:
        await three_brokers(node)
    stream = await stream_of(node, "s", placed((2, 1, 3), epoch=EPOCH))
    role = node.broker.replicas.find("s", 0).role
    role.rest()
    role.lead(Leading(Epoch(EPOCH - 1), frozenset({MINE})))
    for value in (b"a", b"b"):
        assert (await produced(client, 3, stream, 0, batch(value))).error_code is NONE
    role.rest()
    node.broker.replicas.find("s", 0).reads.high_watermark = Offset(committed)
    role.follow(OTHER, EPOCH)
    return stream


def endpoints(reply: Any) -> list[tuple[int, str, int, str | None]]:
    return [(one.node_id, one.host, one.port, one.rack) for one in reply.node_endpoints]


@pytest.mark.parametrize("version", versions(produce.HANDLER))
def test_a_producer_is_told_the_leader(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await three_brokers(node)
            there = await stream_of(node, "t", placed((3, 2), epoch=7), placed((3, 2), leader=NOBODY))
            mine = await followed(node, client)
            for stream, index, leader in ((there, 0, (3, 7)), (there, 1, (-1, -1)), (mine, 0, (2, EPOCH))):
                for _ in range(3):  # the first request by its reader, later ones by comparing bytes
                    client.send(0, version, produce_request(version, stream, {index: batch(b"x")}))
                    reply = await client.reply()
                    (part,) = reply.responses[0].partition_responses
                    assert part.error_code is NOT_LEADER
                    if version >= 10:
                        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == leader
                        id_ = leader[0]
                        known = [(id_, f"host-{id_}", 9000 + id_, "abc"[id_ - 1])] if id_ >= 0 else []
                        assert endpoints(reply) == known
            unknown = await produced(client, version, mine, 7, batch(b"x"))
            assert unknown.error_code is ErrorCode.unknown_topic_or_partition
            await commit(node, fenced(3))
            client.send(0, version, produce_request(version, there, {0: batch(b"x")}))
            reply = await client.reply()
            assert reply.responses[0].partition_responses[0].error_code is NOT_LEADER
            if version >= 10:
                assert endpoints(reply) == [], "a broker that is gone is no help"

    run(body)


@pytest.mark.parametrize("version", versions(fetch.HANDLER))
def test_a_consumer_is_told_the_leader(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await three_brokers(node)
            there = await stream_of(node, "t", placed((3, 2), epoch=7))
            mine = await followed(node, client)
            client.send(1, version, fetch_request(version, there, {0: 0}))
            reply = await client.reply()
            (part,) = reply.responses[0].partitions
            assert part.error_code is NOT_LEADER
            if version >= 16:
                assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (3, 7)
                assert endpoints(reply) == [(3, "host-3", 9003, "c")]
            if version >= 9:
                client.send(1, version, fetch_request(version, mine, {0: 0}, current_leader_epoch=EPOCH - 1))
                reply = await client.reply()
                (part,) = reply.responses[0].partitions
                assert part.error_code is (NOT_LEADER if version < 11 else FENCED)
                if version >= 16:
                    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, EPOCH)
                    assert endpoints(reply) == [(2, "host-2", 9002, "b")]

    run(body)


@pytest.mark.parametrize("version", versions(fetch.HANDLER))
def test_a_follower_serves_what_it_knows_to_be_committed(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            stream = await followed(node, client, committed=1)
            if version < 11:
                (part,) = await fetched(client, version, stream, {0: 0})
                assert part.error_code is NOT_LEADER, "an old client means the leader"
                return
            for epoch in (-1, EPOCH):
                (part,) = await fetched(client, version, stream, {0: 0}, current_leader_epoch=epoch)
                assert (part.error_code, part.high_watermark) == (NONE, 1)
                assert first_offsets(part.records) == [0]
                (part,) = await fetched(client, version, stream, {0: 2}, current_leader_epoch=epoch)
                assert (part.error_code, part.records) == (NONE, b""), "here, and perhaps not committed"
                (part,) = await fetched(client, version, stream, {0: 3}, current_leader_epoch=epoch)
                beyond = NOT_LEADER if epoch < 0 else OUT_OF_RANGE  # the leader may have given it that offset
                assert (part.error_code, part.records) == (beyond, b"")
            (part,) = await fetched(client, version, stream, {0: 0}, current_leader_epoch=EPOCH + 1)
            assert part.error_code is ErrorCode.unknown_leader_epoch

    run(body)


@pytest.mark.parametrize("version", range(11, fetch.HANDLER.max_version + 1))
def test_the_leader_sends_consumers_to_their_own_rack(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await three_brokers(node)
            stream = await stream_of(node, "s", placed((1, 2, 3), isr=(1,)))
            assert (await produced(client, 3, stream, 0, batch(b"a"))).error_code is NONE
            joined = PartitionChange(index=0, isr=(MINE, OTHER))
            await commit(node, PartitionsChanged(id=stream.id, changes=(joined,)))

            async def sent_to(rack: str, offset: int = 0) -> tuple[int, list[int]]:
                (part,) = await fetched(client, version, stream, {0: offset}, rack_id=rack, min_bytes=0)
                assert part.error_code is (NONE if offset <= 1 else OUT_OF_RANGE)
                if part.preferred_read_replica >= 0:
                    assert (part.high_watermark, part.log_start_offset) == (1, 0)
                return part.preferred_read_replica, first_offsets(part.records)

            assert await sent_to("b") == (2, [])
            assert await sent_to("b", 1) == (2, []), "there is nothing to wait for here"
            assert await sent_to("b", 2) == (-1, []), "what is out of range there too is refused by the leader"
            assert await sent_to("a") == (-1, [0]), "the leader's own rack"
            assert await sent_to("") == (-1, [0])
            assert await sent_to("c") == (-1, [0]), "a replica that is not in sync"
            assert await sent_to("elsewhere") == (-1, [0])
            await commit(node, fenced(2))
            assert await sent_to("b") == (-1, [0]), "a broker that is not there"

    run(body)


def test_a_session_tells_every_time_where_to_read(tmp_path: Path) -> None:
    """An incremental answer names changes alone, and where to read is one each time (KIP-392)."""

    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await three_brokers(node)
            stream = await stream_of(node, "s", placed((1, 2)))
            client.send(1, 12, fetch_request(12, stream, {0: 0}, rack_id="b", session_epoch=0))
            reply = await client.reply()
            assert reply.session_id > 0
            for epoch in (1, 2):
                assert reply.responses[0].partitions[0].preferred_read_replica == 2
                nothing = make(
                    load_request_schema(1, 12),
                    max_wait=WAIT,
                    min_bytes=1,
                    session_id=reply.session_id,
                    session_epoch=epoch,
                    topics=(),
                    forgotten_topics_data=(),
                    rack_id="b",
                    replica_id=BrokerId(-1),
                    isolation_level=0,
                )
                client.send(1, 12, nothing)
                before, reply = reply.session_id, await client.reply()
                assert reply.session_id == before

    run(body)


def loses(node: Running, stream: Stream) -> None:
    node.broker.replicas.find(stream.name, 0).role.follow(OTHER, EPOCH)


def rests(node: Running, stream: Stream) -> None:
    node.broker.replicas.find(stream.name, 0).role.rest()


@pytest.mark.parametrize(
    ("version", "epoch", "change", "code"),
    [(10, -1, loses, NOT_LEADER), (10, -1, rests, NOT_LEADER), (12, 0, loses, FENCED), (18, 0, loses, FENCED)],
)
def test_a_fetch_that_waits_ends_with_the_leadership(
    tmp_path: Path, version: int, epoch: int, change: Callable[[Running, Stream], None], code: ErrorCode
) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            wait = milliseconds(1 << 30)
            client.send(1, version, fetch_request(version, stream, {0: 0}, max_wait=wait, current_leader_epoch=epoch))
            await until(lambda: node.metrics.waiting_fetches)
            change(node, stream)
            longest_s = node.services.server.config.now.max_fetch_wait_ms / 1_000
            async with asyncio.timeout(longest_s / 2):  # of simulated time
                reply = await client.reply()
            assert reply.responses[0].partitions[0].error_code is code

    run(body)


@pytest.mark.parametrize("version", versions(list_offsets.HANDLER))
def test_offsets_are_looked_up_by_the_leader(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await three_brokers(node)
            await stream_of(node, "t", placed((3, 2)))
            await followed(node, client, committed=1)
            for name in ("s", "t"):
                for timestamp in (-1, -2, 0):
                    assert (await looked_up(client, version, name, timestamp)).error_code is NOT_LEADER
            # It leads again, and cannot know yet how much an earlier leader has shown (KIP-207).
            role = node.broker.replicas.find("s", 0).role
            both = frozenset({MINE, OTHER})
            role.lead(Leading(Epoch(EPOCH + 1), both, replicas=both))
            unknown = ErrorCode.offset_not_available if version >= 5 else ErrorCode.leader_not_available
            assert (await looked_up(client, version, "s", -1)).error_code is unknown
            assert (await looked_up(client, version, "s", 5_000)).error_code is unknown
            earliest = await looked_up(client, version, "s", -2)
            assert (earliest.error_code, earliest.offset) == (NONE, 0)
            role.leader.isr_changed(Leading(Epoch(EPOCH + 1), frozenset({MINE}), replicas=frozenset({MINE})))
            latest = await looked_up(client, version, "s", -1)
            assert (latest.error_code, latest.offset) == (NONE, 2)

    run(body)


def test_records_are_deleted_by_the_leader(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            stream = await followed(node, client)
            cls = load_request_schema(21, 2)
            part = make(nested(cls, "topics", "partitions"), partition_index=0, offset=1)
            topic = make(nested(cls, "topics"), name=stream.name, partitions=(part,))
            reply = await client.ask(21, 2, topics=(topic,), timeout=WAIT)
            assert reply.topics[0].partitions[0].error_code is NOT_LEADER
            assert node.broker.replicas.find("s", 0).log_start_offset == 0

    run(body)


# --- what only brokers ask of each other ---------------------------------------------------------------------------

REFUSED = ErrorCode.cluster_authorization_failed


@pytest.mark.parametrize("version", versions(list_offsets.HANDLER))
def test_who_claims_to_be_a_replica_is_told_the_offsets_of_a_consumer(tmp_path: Path, version: int) -> None:
    """As by Kafka: a client that leaves the field at 0 looks up where to begin (kafka-python 3.1.0.dev does)."""

    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            await produced(client, 9, stream, 0, batch(b"x"))
            cls = load_request_schema(2, version)
            part = make(nested(cls, "topics", "partitions"), partition_index=0, current_leader_epoch=-1, timestamp=-1)
            topic = make(nested(cls, "topics"), name="s", partitions=(part,))
            reply = await client.ask(2, version, replica_id=2, isolation_level=0, topics=(topic,), timeout=WAIT)
            (told,) = reply.topics[0].partitions
            assert (told.error_code, told.offset) == (ErrorCode.none, 1)

    run(body)


@pytest.mark.parametrize("version", range(3, offset_for_leader_epoch.HANDLER.max_version + 1))
def test_a_replica_does_not_ask_for_epochs_here(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await node.broker.catalog.create_stream("s")
            cls = load_request_schema(23, version)
            part = make(nested(cls, "topics", "partitions"), partition=0, current_leader_epoch=-1, leader_epoch=0)
            topic = make(nested(cls, "topics"), topic="s", partitions=(part,))
            reply = await client.ask(23, version, replica_id=2, topics=(topic,))
            (told,) = reply.topics[0].partitions
            assert (told.error_code, told.end_offset) == (REFUSED, -1)

    run(body)


BETWEEN_BROKERS = {
    "LeaderAndIsr": 4,
    "StopReplica": 5,
    "UpdateMetadata": 6,
    "ControlledShutdown": 7,
    "WriteTxnMarkers": 27,
    "Vote": 52,
    "BeginQuorumEpoch": 53,
    "EndQuorumEpoch": 54,
    "AlterPartition": 56,
    "Envelope": 58,
    "FetchSnapshot": 59,
    "BrokerRegistration": 62,
    "BrokerHeartbeat": 63,
    "AllocateProducerIds": 67,
    "ControllerRegistration": 70,
    "AssignReplicasToDirs": 73,
}


def test_no_api_for_brokers_alone_is_served() -> None:
    assert not set(BETWEEN_BROKERS.values()) & load_handlers().keys()


@pytest.mark.parametrize("leads", [True, False])
def test_without_a_lease_nobody_waits_for_new_records(tmp_path: Path, leads: bool) -> None:
    """A broker that is cut off from the controller does not learn who leads: consumers must ask another one."""

    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await three_brokers(node)
            if leads:
                stream = await stream_of(node, "s", placed((1,), epoch=EPOCH))
                assert (await produced(client, 3, stream, 0, batch(b"a"))).error_code is NONE
                assert (await produced(client, 3, stream, 0, batch(b"b"))).error_code is NONE
            else:
                stream = await followed(node, client)
            node.broker.replica_manager.lease_changed(False)
            (known,) = await fetched(client, 11, stream, {0: 1})
            assert (known.error_code, first_offsets(known.records)) == (NONE, [1])
            (more,) = await fetched(client, 11, stream, {0: 2}, max_wait=WAIT)
            assert more.error_code is NOT_LEADER
            (beyond,) = await fetched(client, 11, stream, {0: 7})
            assert beyond.error_code is NOT_LEADER, "another leader may have given that offset"
            node.broker.replica_manager.lease_changed(True)
            (beyond,) = await fetched(client, 11, stream, {0: 7})
            assert beyond.error_code is (ErrorCode.offset_out_of_range if leads else NOT_LEADER)
            (more,) = await fetched(client, 11, stream, {0: 2})
            assert more.error_code is NONE

    run(body)


def test_a_leader_whose_disk_failed_calls_no_offset_out_of_range_once_its_lease_is_over(tmp_path: Path) -> None:
    """Others lead by then, and have given offsets that it has not: its consumers would begin anew elsewhere."""

    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await three_brokers(node)
            stream = await stream_of(node, "s", placed((1,), epoch=EPOCH))
            assert (await produced(client, 3, stream, 0, batch(b"a"))).error_code is NONE
            node.broker.replica_manager.go_offline(StorageError("the disk fails"))
            node.broker.replica_manager.lease_changed(False)
            for position in (1, 7):
                (beyond,) = await fetched(client, 11, stream, {0: position})
                assert beyond.error_code is ErrorCode.kafka_storage_error
            (known,) = await fetched(client, 11, stream, {0: 0})
            assert (known.error_code, first_offsets(known.records)) == (NONE, [0])

    run(body)
