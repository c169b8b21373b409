"""What administrators change in a cluster: replicas move, leaders are elected, brokers leave, streams are placed."""

from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.cluster import NOBODY, commit, fenced, placed, stream_of, three_brokers
from tests.kafka.door import Client, Running, running
from tests.kafka.test_admin_apis import DEFAULTS, created
from tests.support.simulated import run

from logboom.base.ids import BrokerId
from logboom.kafka.apis import alter_partition_reassignments, create_partitions, create_topics, elect_leaders
from logboom.kafka.wire.messages import make, milliseconds, nested
from logboom.metadata.assignment import Assignment, PartitionChange
from logboom.metadata.records import PartitionsChanged

NONE = ErrorCode.none
WAIT = milliseconds(5_000)


def versions(handler: Any) -> range:
    return range(handler.min_version, handler.max_version + 1)


def assignments(node: Running, name: str) -> tuple[Assignment, ...]:
    stream = node.broker.catalog.stream(name)
    assert stream is not None
    return stream.assignments


# --- replicas move -------------------------------------------------------------------------------------------------


async def moved(client: Client, version: int, name: str, *parts: tuple[int, Any], **fields: Any) -> list[ErrorCode]:
    cls = load_request_schema(45, version)
    part = nested(cls, "topics", "partitions")
    wanted = tuple(make(part, partition_index=index, replicas=replicas) for index, replicas in parts)
    topic = make(nested(cls, "topics"), name=name, partitions=wanted)
    asked = {"timeout": WAIT, "allow_replication_factor_change": True, **fields}
    reply = await client.ask(45, version, topics=(topic,), **asked)
    assert reply.error_code is NONE
    results = reply.responses[0].partitions
    assert [one.partition_index for one in results] == [index for index, _ in parts]
    assert all(bool(one.error_message) == (one.error_code is not NONE) for one in results)
    return [one.error_code for one in results]


@pytest.mark.parametrize("version", versions(alter_partition_reassignments.HANDLER))
def test_replicas_move_and_stay_after_all(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            await three_brokers(node)
            await stream_of(node, "s", placed((2,)), placed((2,)), placed((2, 3)))
            unknown, bad = ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_replica_assignment
            none = ErrorCode.no_reassignment_in_progress
            wanted = ((0, (3, 2)), (1, None), (2, (9,)), (7, (2,)), (1, (3, 3)), (2, ()))
            again = ErrorCode.invalid_request
            assert await moved(client, version, "s", *wanted) == [NONE, none, bad, unknown, again, again]
            assert await moved(client, version, "no", (0, (2,))) == [unknown]
            assert await moved(client, version, "s", (1, (3, 3)), (2, ())) == [bad, bad]
            first, second, _ = assignments(node, "s")
            assert (first.replicas, first.adding, first.removing) == ((3, 2), (3,), ())
            assert not second.reassigning
            assert await moved(client, version, "s", (0, None)) == [NONE]
            assert assignments(node, "s")[0].replicas == (2,)
            if version >= 1:
                fixed = {"allow_replication_factor_change": False}
                refused = ErrorCode.invalid_replication_factor
                parts = ((0, (3, 2)), (1, (3,)), (7, (3, 2)))
                assert await moved(client, version, "s", *parts, **fixed) == [refused, NONE, unknown]
                assert assignments(node, "s")[1].adding == (3,)

    run(body)


# --- elections -----------------------------------------------------------------------------------------------------


async def elected(
    client: Client, version: int, kind: int, *wanted: tuple[str, int]
) -> dict[tuple[str, int], ErrorCode]:
    cls = load_request_schema(43, version)
    topics = tuple(make(nested(cls, "topic_partitions"), topic=name, partitions=(index,)) for name, index in wanted)
    reply = await client.ask(43, version, election_type=kind, topic_partitions=topics or None, timeout=WAIT)
    if version >= 1:
        assert reply.error_code is NONE
    return {
        (topic.topic, part.partition_id): part.error_code
        for topic in reply.replica_election_results
        for part in topic.partition_result
    }


@pytest.mark.parametrize("version", versions(elect_leaders.HANDLER))
def test_preferred_leaders_lead_again(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            await three_brokers(node)
            away = placed((2, 3), leader=3)
            await stream_of(node, "s", away, placed((2, 3)), placed((2, 3), leader=3, isr=(3,)), away)
            assert await elected(client, version, 0, ("s", 0), ("s", 1), ("s", 2), ("s", 9), ("no", 0)) == {
                ("s", 0): NONE,
                ("s", 1): ErrorCode.election_not_needed,
                ("s", 2): ErrorCode.preferred_leader_not_available,
                ("s", 9): ErrorCode.unknown_topic_or_partition,
                ("no", 0): ErrorCode.unknown_topic_or_partition,
            }
            assert [one.leader for one in assignments(node, "s")] == [2, 2, 3, 3]
            everywhere = {("s", 2): ErrorCode.preferred_leader_not_available, ("s", 3): NONE}
            assert await elected(client, version, 0) == everywhere, "those that lead already are left out"

    run(body)


@pytest.mark.parametrize("version", range(1, elect_leaders.HANDLER.max_version + 1))
def test_anybody_leads_where_that_is_asked_for(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            await three_brokers(node)
            await stream_of(
                node, "s", placed((2, 3), leader=NOBODY, isr=(2,)), placed((3, 2)), placed((2,), leader=NOBODY)
            )
            await commit(node, fenced(2))
            nobody = ErrorCode.eligible_leaders_not_available
            assert await elected(client, version, 1) == {("s", 0): NONE, ("s", 2): nobody}
            assert await elected(client, version, 1, ("s", 1)) == {("s", 1): ErrorCode.election_not_needed}
            first = assignments(node, "s")[0]
            assert (first.leader, first.isr) == (3, (3,))
            cls = load_request_schema(43, version)
            topics = (make(nested(cls, "topic_partitions"), topic="s", partitions=(0,)),)
            reply = await client.ask(43, version, election_type=7, topic_partitions=topics, timeout=WAIT)
            assert reply.error_code is ErrorCode.invalid_request

    run(body)


# --- brokers leave -------------------------------------------------------------------------------------------------


def test_a_broker_that_is_stopped_is_unregistered(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            await three_brokers(node)

            async def left(id_: int) -> ErrorCode:
                reply = await client.ask(64, 0, broker_id=id_)
                assert bool(reply.error_message) == (reply.error_code is not NONE)
                code: ErrorCode = reply.error_code
                return code

            assert await left(9) is ErrorCode.broker_id_not_registered
            assert await left(3) is ErrorCode.invalid_request, "it is at work"
            await commit(node, fenced(3))
            stream = await stream_of(node, "s", placed((1, 3)), placed((3, 1), isr=(), elr=(3,), leader=NOBODY))
            refused = await client.ask(64, 0, broker_id=3)
            assert refused.error_code is ErrorCode.invalid_request
            assert "only broker 3 has all records of s:1: start it, and drain it" in refused.error_message
            await node.broker.catalog.delete_stream(stream.name)
            await stream_of(node, "t", placed((1, 3)))
            assert await left(3) is NONE
            assert node.broker.catalog.image.brokers.keys() == {1, 2}
            (assignment,) = assignments(node, "t")
            assert (assignment.replicas, assignment.isr) == ((1, 3), (1,)), "a new disk under its id gets the records"
            assert await left(3) is ErrorCode.broker_id_not_registered

    run(body)


# --- streams are placed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(create_topics.HANDLER))
def test_streams_are_created_with_replicas(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            await three_brokers(node)
            results = await created(
                client,
                version,
                {"name": "two", "num_partitions": 3, "replication_factor": 2},
                {**DEFAULTS, "name": "named", "assignments": {1: (3, 1), 0: (2, 3)}},
                {"name": "four", "replication_factor": 4},
                {**DEFAULTS, "name": "stranger", "assignments": {0: (9,)}},
                {**DEFAULTS, "name": "twice", "assignments": {0: (2, 2)}},
            )
            bad = ErrorCode.invalid_replica_assignment
            wanted = [NONE, NONE, ErrorCode.invalid_replication_factor, bad, bad]
            assert [one.error_code for one in results] == wanted
            assert {len(one.replicas) for one in assignments(node, "two")} == {2}
            assert [one.replicas for one in assignments(node, "named")] == [(2, 3), (3, 1)]
            if version >= 5:
                assert [(one.num_partitions, one.replication_factor) for one in results[:2]] == [(3, 2), (2, 2)]
            if version >= 4:
                (all_of_them,) = await created(client, version, {**DEFAULTS, "name": "default"})
                assert all_of_them.error_code is NONE
                assert len(assignments(node, "default")[0].replicas) == 3

    run(body)


@pytest.mark.parametrize("version", versions(create_partitions.HANDLER))
def test_new_partitions_are_placed(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            await three_brokers(node)
            await stream_of(node, "s", placed((2, 3)))
            cls = load_request_schema(37, version)

            async def grown(count: int, *brokers: tuple[int, ...]) -> ErrorCode:
                part = nested(cls, "topics", "assignments")
                chosen = tuple(make(part, broker_ids=one) for one in brokers)
                topic = make(nested(cls, "topics"), name="s", count=count, assignments=chosen or None)
                reply = await client.ask(37, version, topics=(topic,), timeout=WAIT, validate_only=False)
                code: ErrorCode = reply.results[0].error_code
                return code

            assert await grown(3, (1, 2)) is ErrorCode.invalid_replica_assignment
            assert await grown(2, (9, 2)) is ErrorCode.invalid_replica_assignment
            assert await grown(2, (1, 2)) is NONE
            assert await grown(3) is NONE
            before, named, chosen = assignments(node, "s")
            assert (before.replicas, named.replicas) == ((2, 3), (1, 2))
            assert len(chosen.replicas) == 2

    run(body)


def test_what_is_on_the_move_comes_to_its_end(tmp_path: Path) -> None:
    """The client that asked is told of the beginning; the list is empty when all new replicas are in sync."""

    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            await three_brokers(node)
            stream = await stream_of(node, "s", placed((2,)))
            assert await moved(client, 1, "s", (0, (3,))) == [NONE]
            cls = load_request_schema(46, 0)
            asked = await client.ask(46, 0, timeout=WAIT, topics=None)
            (part,) = asked.topics[0].partitions
            assert (part.replicas, part.adding_replicas, part.removing_replicas) == ((3, 2), (3,), (2,))
            three = (BrokerId(3),)
            done = PartitionChange(index=0, replicas=three, isr=three, leader=three[0], adding=(), removing=())
            await commit(node, PartitionsChanged(id=stream.id, changes=(done,)))
            topics = (make(nested(cls, "topics"), name="s", partition_indexes=(0,)),)
            assert (await client.ask(46, 0, timeout=WAIT, topics=topics)).topics == ()

    run(body)
