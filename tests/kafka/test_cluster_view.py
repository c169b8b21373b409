"""What clients are told of a cluster: its brokers, who leads, whose replicas are offline, who coordinates a group."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.cluster import NOBODY, commit, fenced, placed, registered, stream_of, three_brokers
from tests.kafka.door import Client, running
from tests.support.simulated import run

from logboom.base.errors import LogboomError, NotControllerError, OutcomeUnknownError
from logboom.base.ids import NO_BROKER, BrokerId
from logboom.broker.groups.service import OFFSETS_STREAM
from logboom.broker.peers import NoPeers
from logboom.groups import partition_of_group
from logboom.kafka.apis import describe_cluster, find_coordinator, metadata
from logboom.kafka.handlers import paced_work
from logboom.kafka.wire.messages import milliseconds
from logboom.metadata.assignment import PartitionChange
from logboom.metadata.records import BrokerUnregistered, PartitionsChanged, StreamDeleted

NONE = ErrorCode.none


def versions(handler: Any) -> range:
    return range(handler.min_version, handler.max_version + 1)


@pytest.mark.parametrize("version", versions(metadata.HANDLER))
def test_metadata_names_the_brokers_and_the_leaders(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await three_brokers(node)
            await stream_of(node, "mine", placed((1, 2, 3), isr=(1, 3), epoch=4))
            await stream_of(node, "theirs", placed((2, 3), epoch=7), placed((3, 2), leader=NOBODY, isr=(3,)))
            reply = await client.metadata(version, ["mine", "theirs"])
            assert [(one.node_id, one.host, one.port) for one in reply.brokers] == [
                (1, *node.address),
                (2, "host-2", 9002),
                (3, "host-3", 9003),
            ]
            if version >= 1:
                assert [one.rack for one in reply.brokers] == ["a", "b", "c"]
                assert reply.controller_id == 1
            mine, theirs = reply.topics
            (part,) = mine.partitions
            assert (part.error_code, part.leader_id, part.replica_nodes, part.isr_nodes) == (NONE, 1, (1, 2, 3), (1, 3))
            led, headless = theirs.partitions
            assert (led.error_code, led.leader_id) == (NONE, 2)
            assert (headless.error_code, headless.leader_id) == (ErrorCode.leader_not_available, -1)
            if version >= 5:
                assert (part.offline_replicas, led.offline_replicas) == ((), ())
            if version >= 7:
                assert (part.leader_epoch, led.leader_epoch, headless.leader_epoch) == (4, 7, 0)

    run(body)


def test_metadata_follows_brokers_that_come_and_go(tmp_path: Path) -> None:
    """What is encoded once is encoded anew when a broker is fenced, though the stream has not changed."""

    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await three_brokers(node)
            stream = await stream_of(node, "s", placed((2, 3)))

            async def told() -> tuple[list[int], Any]:
                reply = await client.metadata(12, ["s"])
                return [one.node_id for one in reply.brokers], reply.topics[0].partitions[0]

            brokers, part = await told()
            assert (brokers, part.leader_id, part.offline_replicas) == ([1, 2, 3], 2, ())
            await commit(node, fenced(3))
            brokers, part = await told()
            assert (brokers, part.leader_id, part.offline_replicas) == ([1, 2, 3], 2, (3,))
            await asyncio.sleep(6)
            brokers, part = await told()
            assert (brokers, part.leader_id, part.offline_replicas) == ([1, 2], 2, (3,))
            await commit(node, fenced(2))
            brokers, part = await told()
            assert (brokers, part.leader_id, part.offline_replicas) == ([1, 2], -1, (2, 3))
            assert part.error_code is ErrorCode.leader_not_available
            await commit(node, fenced(3, False), BrokerUnregistered(id=BrokerId(2)))
            change = PartitionChange(index=0, leader=BrokerId(3), isr=(BrokerId(3),))
            await commit(node, PartitionsChanged(id=stream.id, changes=(change,)))
            brokers, part = await told()
            assert (brokers, part.leader_id, part.leader_epoch, part.offline_replicas) == ([1, 3], 3, 1, (2,))
            assert part.isr_nodes == (3,)

    run(body)


def test_a_leader_whose_connection_broke_is_none_until_the_metadata_must_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_s: dict[int, float] = {}

    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            monkeypatch.setattr(node.broker.cluster.suspected, "_peers", Peers())
            await three_brokers(node)
            await stream_of(node, "s", placed((2, 3)))

            async def told(names: Sequence[str] = ("s",)) -> tuple[list[int], ErrorCode, int, Any]:
                reply = await client.metadata(12, names)
                (part,) = reply.topics[0].partitions
                brokers = [one.node_id for one in reply.brokers]
                return brokers, part.error_code, part.leader_id, part.offline_replicas

            leads, none = ([1, 2, 3], NONE, 2, ()), ([1, 2, 3], ErrorCode.leader_not_available, -1, ())
            assert await told() == leads
            lost_s[3] = 0.1
            assert await told() == leads
            lost_s[2] = 0.1
            assert await told() == none
            lost_s[2] = 2.5
            assert await told() == leads
            lost_s[2] = 0.1
            assert await told() == none
            lost_s.clear()
            assert await told() == leads

    class Peers(NoPeers):
        def lost_for_s(self, to: BrokerId) -> float | None:
            return lost_s.get(to)

    run(body)


@pytest.mark.parametrize("version", [9, 12])
def test_who_asks_for_a_leader_that_has_just_gone_waits_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """librdkafka asks once a second: told none a moment before there is one, it would stand still for another."""

    class Peers(NoPeers):
        def lost_for_s(self, to: BrokerId) -> float | None:
            return 0.9 if to == 2 else None

    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            monkeypatch.setattr(node.broker.cluster.suspected, "_peers", Peers())
            await three_brokers(node)
            stream = await stream_of(node, "s", placed((2, 3)), placed((3, 2)))
            await stream_of(node, "well", placed((3, 1)))
            clock = asyncio.get_running_loop()

            async def leader_of(name: str) -> tuple[int, float]:
                began_s = clock.time()
                reply = await client.metadata(version, [name])
                return reply.topics[0].partitions[0].leader_id, clock.time() - began_s

            leader, took_s = await leader_of("well")
            assert (leader, took_s < 0.1) == (3, True)
            leader, took_s = await leader_of("s")
            assert (leader, metadata.LEADER_WAIT_S <= took_s < metadata.LEADER_WAIT_S + 0.1) == (NOBODY, True)
            asked = asyncio.create_task(leader_of("s"))
            await asyncio.sleep(0.1)
            await commit(node, registered(node, 4))  # a change that says nothing of the leader
            await asyncio.sleep(0.1)
            change = PartitionChange(index=0, leader=BrokerId(3), isr=(BrokerId(3),))
            await commit(node, PartitionsChanged(id=stream.id, changes=(change,)))
            leader, took_s = await asked
            assert (leader, 0.2 <= took_s < 0.3) == (3, True)

    run(body)


def test_many_that_wait_for_one_leader_are_not_answered_in_one_turn_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two thousand kept the loop for a third of a lease, in which it sent no heartbeat."""
    described_in = [0]
    """How many were in each turn, or in two of them."""
    describe = metadata._describe
    monkeypatch.setattr(paced_work, "AT_ONCE", 10)

    def noted(*args: Any) -> Any:
        if not described_in[-1]:
            asyncio.get_running_loop().call_soon(described_in.append, 0)
        described_in[-1] += 1
        return describe(*args)

    class Peers(NoPeers):
        def lost_for_s(self, to: BrokerId) -> float | None:
            return 0.9 if to == 2 else None

    async def body() -> None:
        async with running(tmp_path, voters=1) as node, AsyncExitStack() as clients:
            monkeypatch.setattr(node.broker.cluster.suspected, "_peers", Peers())
            monkeypatch.setattr(metadata, "_describe", noted)
            await three_brokers(node)
            stream = await stream_of(node, "s", placed((2, 3)))
            many = [await clients.enter_async_context(node.client()) for _ in range(100)]
            asked = [asyncio.create_task(client.metadata(12, ["s"])) for client in many]
            await asyncio.sleep(0.1)
            change = PartitionChange(index=0, leader=BrokerId(3), isr=(BrokerId(3),))
            await commit(node, PartitionsChanged(id=stream.id, changes=(change,)))
            replies = await asyncio.gather(*asked)
            assert {one.topics[0].partitions[0].leader_id for one in replies} == {3}
            assert sum(described_in) == len(many)
            assert max(described_in) <= 2 * paced_work.AT_ONCE

    run(body)


def test_a_broker_that_is_cut_off_from_all_others_names_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata failed there on an internal error: it has no lease and names not itself, and all others were lost."""

    class Peers(NoPeers):
        def lost_for_s(self, to: BrokerId) -> float | None:
            return 0.1 if to != 1 else None

    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            monkeypatch.setattr(node.broker.cluster.suspected, "_peers", Peers())
            await three_brokers(node)
            registration = type(node.broker.cluster.registration)
            monkeypatch.setattr(registration, "holds_lease", property(lambda _: False))
            reply = await client.metadata(12, [])
            assert reply.controller_id in (2, 3)
            assert {one.node_id for one in reply.brokers} == {1, 2, 3}

    run(body)


def test_metadata_names_this_broker_for_requests_to_the_controller_and_describe_cluster_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client would wait for a controller that has just died; this broker passes its requests on."""

    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await three_brokers(node)
            monkeypatch.setattr(type(node.broker), "controller", property(lambda _: BrokerId(2)))
            assert (await client.metadata(12, [])).controller_id == 1
            asked = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
            assert (await client.ask(60, 1, **asked)).controller_id == 2
            monkeypatch.setattr(type(node.broker), "controller", property(lambda _: NO_BROKER))
            assert (await client.ask(60, 1, **asked)).controller_id == -1, "as long as nobody is known"
            assert (await client.metadata(12, [])).controller_id == 1

    run(body)


def test_brokers_without_a_listener_for_clients_are_not_told(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await commit(node, registered(node, 2, kafka=False), fenced(2, False))
            await stream_of(node, "s", placed((2,)))
            reply = await client.metadata(12, ["s"])
            (only,) = reply.brokers
            assert (only.node_id, only.host, only.port, only.rack) == (1, *node.address, "a"), "its own it knows itself"
            assert reply.topics[0].partitions[0].error_code is ErrorCode.leader_not_available

    run(body)


def test_a_broker_that_is_fenced_is_told_only_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await commit(node, fenced(1))
            assert [one.node_id for one in (await client.metadata(12, [])).brokers] == [1]
            await commit(node, registered(node, 2), fenced(2, False))
            monkeypatch.setattr(node.broker.cluster.suspected, "fenced_lately", lambda _: False)
            reply = await client.metadata(12, [])
            assert [one.node_id for one in reply.brokers] == [2]
            assert reply.controller_id == 2, "a broker that clients can reach"

    run(body)


@pytest.mark.parametrize("version", versions(describe_cluster.HANDLER))
def test_describe_cluster_tells_fenced_brokers_on_request(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            await three_brokers(node)
            await commit(node, fenced(2))
            asked = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
            reply = await client.ask(60, version, include_fenced_brokers=True, **asked)
            brokers = {one.broker_id: one for one in reply.brokers}
            assert brokers.keys() == ({1, 2, 3} if version >= 2 else {1, 3})
            where = {1: (*node.address, "a"), 2: ("host-2", 9002, "b"), 3: ("host-3", 9003, "c")}
            assert {id_: (one.host, one.port, one.rack) for id_, one in brokers.items()} == {
                id_: where[id_] for id_ in brokers
            }
            if version >= 2:
                assert {id_ for id_, one in brokers.items() if one.is_fenced} == {2}
                reply = await client.ask(60, version, include_fenced_brokers=False, **asked)
                assert [one.broker_id for one in reply.brokers] == [1, 3]

    run(body)


async def coordinators(client: Client, version: int, *groups: str) -> list[tuple[ErrorCode, int, str, int]]:
    found = []
    if version >= 4:
        found = (await client.ask(10, version, key_type=0, coordinator_keys=groups)).coordinators
        assert tuple(one.key for one in found) == groups
    else:
        found = [await client.ask(10, version, key=group, key_type=0) for group in groups]
    return [(one.error_code, one.node_id, one.host, one.port) for one in found]


@pytest.mark.parametrize("version", versions(find_coordinator.HANDLER))
def test_the_coordinator_of_a_group_leads_its_partition(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            assert await coordinators(client, version, "g") == [(NONE, 1, *node.address)]
            await three_brokers(node)
            offsets = node.broker.catalog.stream(OFFSETS_STREAM)
            assert offsets is not None
            leaders = {"g": 2, "h": 3, "i": NOBODY}
            changes = [
                PartitionChange(
                    index=partition_of_group(group, offsets.partitions),
                    replicas=(BrokerId(2), BrokerId(3)),
                    isr=(BrokerId(2), BrokerId(3)),
                    leader=BrokerId(leader),
                )
                for group, leader in leaders.items()
            ]
            await commit(node, PartitionsChanged(id=offsets.id, changes=tuple(changes)))
            nobody = (ErrorCode.coordinator_not_available, -1, "", -1)
            assert await coordinators(client, version, *leaders) == [
                (NONE, 2, "host-2", 9002),
                (NONE, 3, "host-3", 9003),
                nobody,
            ]
            await commit(node, fenced(3))
            assert await coordinators(client, version, "h") == [nobody]

    run(body)


def test_the_stream_of_groups_is_created_when_it_is_first_asked_for(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, rack="a", voters=1) as node, node.client() as client:
            offsets = node.broker.catalog.stream(OFFSETS_STREAM)
            assert offsets is not None
            await commit(node, StreamDeleted(id=offsets.id))
            assert await coordinators(client, 6, "g", "h") == [(NONE, 1, *node.address)] * 2
            again = node.broker.catalog.stream(OFFSETS_STREAM)
            assert again is not None
            assert again.partitions == offsets.partitions

    run(body)


@pytest.mark.parametrize("lacking", [NotControllerError, OutcomeUnknownError])
def test_a_stream_that_nobody_can_create_now_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: type[LogboomError]
) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise lacking("no controller was found in time")

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            monkeypatch.setattr(node.broker.catalog, "create_stream", refuse)
            (topic,) = (await client.metadata(12, ["new"], create=True)).topics
            assert (topic.error_code, topic.partitions) == (ErrorCode.leader_not_available, ())

    run(body)


def test_producers_and_consumers_are_answered_soon_while_there_is_no_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silence(*_: Any, **__: Any) -> None:
        await asyncio.sleep(3_600)

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            offsets = node.broker.catalog.stream(OFFSETS_STREAM)
            assert offsets is not None
            await commit(node, StreamDeleted(id=offsets.id))
            monkeypatch.setattr(node.broker.cluster.channel, "submit", silence)
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            topics = (await client.metadata(12, ["one", "two"], create=True)).topics
            assert [topic.error_code for topic in topics] == [ErrorCode.leader_not_available] * 2
            assert await coordinators(client, 6, "g") == [(ErrorCode.coordinator_not_available, -1, "", -1)]
            producer = await client.ask(22, 4, transactional_id=None, transaction_timeout=milliseconds(1_000))
            assert producer.error_code is ErrorCode.coordinator_load_in_progress
            assert loop.time() - began_s < 10, "of simulated time; their clients hang up after half a minute"

    run(body)


def test_a_broker_without_a_lease_leads_nothing_and_is_named_until_it_knows_that_it_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka fails requests to a broker that it hears of no more."""

    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            await three_brokers(node)
            await stream_of(node, "s", placed((1, 2)))

            async def told() -> tuple[list[int], int]:
                reply = await client.metadata(12, ["s"])
                return sorted(one.node_id for one in reply.brokers), reply.topics[0].partitions[0].leader_id

            assert await told() == ([1, 2, 3], 1)
            registration = type(node.broker.cluster.registration)
            monkeypatch.setattr(registration, "holds_lease", property(lambda _: False))
            assert await told() == ([1, 2, 3], NOBODY)
            with monkeypatch.context() as patched:
                patched.setattr(registration, "missed_leases", property(lambda _: 10.0))
                assert await told() == ([2, 3], NOBODY), "a client whose only connection is here has to look elsewhere"
            await asyncio.sleep(6)
            await commit(node, fenced(1))
            assert await told() == ([1, 2, 3], NOBODY), "it was fenced just now"
            monkeypatch.setattr(node.broker.cluster.suspected, "fenced_lately", lambda _: False)
            assert await told() == ([2, 3], NOBODY)

    run(body)
