"""DescribeTopicPartitions, which a client reads piece by piece, and DescribeQuorum."""

import base64
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.cluster import NOBODY, commit, fenced, placed, stream_of, three_brokers
from tests.kafka.door import Client, Running, running
from tests.support.simulated import run

from logboom.base.ids import BrokerId, DirectoryId, Epoch, Offset
from logboom.broker.quorum import QuorumMember, QuorumView
from logboom.kafka.apis import describe_quorum, update_features
from logboom.kafka.wire.messages import make, milliseconds, nested
from logboom.metadata.assignment import PartitionChange
from logboom.metadata.levels import FEATURE
from logboom.metadata.records import PartitionsChanged

NONE, UNKNOWN = ErrorCode.none, ErrorCode.unknown_topic_or_partition


async def partitions(client: Client, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> Any:
    cls = load_request_schema(75, 0)
    return await client.ask(
        75,
        0,
        topics=tuple(make(nested(cls, "topics"), name=name) for name in names),
        response_partition_limit=limit,
        cursor=None if cursor is None else make(nested(cls, "cursor"), topic_name=cursor[0], partition_index=cursor[1]),
    )


def next_of(reply: Any) -> tuple[str, int] | None:
    cursor = reply.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_partitions_are_described_with_who_may_lead_them(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            await three_brokers(node)
            mine = await stream_of(node, "b", placed((1, 2, 3), isr=(1,), elr=(2,), last_known=(3,), epoch=4))
            await stream_of(node, "a", placed((2, 3)), placed((3, 2), leader=NOBODY, isr=()))
            await commit(node, fenced(3))
            reply = await partitions(client, "b", "no", "a", "bad name", "a")
            assert next_of(reply) is None
            a, b, bad, missing = reply.topics
            assert [one.name for one in reply.topics] == ["a", "b", "bad name", "no"]
            assert (missing.error_code, bad.error_code) == (UNKNOWN, ErrorCode.invalid_topic_exception)
            assert (b.error_code, b.topic_id, b.is_internal) == (NONE, mine.id, False)
            (part,) = b.partitions
            assert (part.error_code, part.leader_id, part.leader_epoch) == (NONE, 1, 4)
            assert (part.replica_nodes, part.isr_nodes) == ((1, 2, 3), (1,))
            assert (part.eligible_leader_replicas, part.last_known_elr) == ((2,), (3,))
            assert part.offline_replicas == (3,)
            led, headless = a.partitions
            assert (led.error_code, led.leader_id) == (NONE, 2)
            assert (headless.error_code, headless.leader_id) == (ErrorCode.leader_not_available, -1)
            everything = (await partitions(client)).topics
            assert [one.name for one in everything] == sorted(node.broker.catalog.streams())
            assert all(one.topic_authorized_operations > 0 for one in everything)

    run(body)


@pytest.mark.parametrize("seed", range(3))
def test_read_in_pieces_all_is_there_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def body() -> None:
        async with running(tmp_path, max_partitions=1_000) as node, node.client() as client:
            for name in "abcdef":
                await node.broker.catalog.create_stream(name, partitions=chance.randrange(1, 9))
            names = [[], ["c", "a", "nothing", "f"]][seed % 2]
            whole = [
                (one.name, part.partition_index)
                for one in (await partitions(client, *names)).topics
                for part in one.partitions
            ]
            found, cursor = [], None
            for _ in range(1_000):
                limit = chance.choice((-1, 0, 1, 2, 5))
                reply = await partitions(client, *names, limit=limit, cursor=cursor)
                piece = [(one.name, part.partition_index) for one in reply.topics for part in one.partitions]
                assert len(piece) <= max(limit, 1)
                found += piece
                cursor = next_of(reply)
                if cursor is None:
                    break
            assert found == whole

    run(body)


def test_a_cursor_at_what_is_gone_goes_on_behind_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            for name in ("a", "c"):
                await node.broker.catalog.create_stream(name, partitions=3)

            async def told(*cursor: Any) -> list[tuple[str, int]]:
                reply = await partitions(client, "a", "c", cursor=cursor)
                return [(one.name, part.partition_index) for one in reply.topics for part in one.partitions]

            c = [("c", 0), ("c", 1), ("c", 2)]
            assert await told("b", 2) == c
            assert await told("c", -5) == c
            assert await told("c", 1) == c[1:]
            assert await told("a", 9) == c
            assert await told("d", 0) == []

    run(body)


async def quorum_of(client: Client, version: int, *wanted: tuple[str, int]) -> Any:
    cls = load_request_schema(55, version)
    topic, part = nested(cls, "topics"), nested(cls, "topics", "partitions")
    topics = tuple(make(topic, topic_name=name, partitions=(make(part, partition_index=at),)) for name, at in wanted)
    return await client.ask(55, version, topics=topics)


def _seen(node: Running, view: QuorumView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.broker.cluster, "quorum", lambda: view)


@pytest.mark.parametrize("version", range(describe_quorum.HANDLER.max_version + 1))
def test_the_quorum_is_described(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = UUID(int=77)
    named = DirectoryId(base64.urlsafe_b64encode(directory.bytes).decode().rstrip("="))

    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            reply = await quorum_of(client, version, ("__cluster_metadata", 0))
            (part,) = reply.topics[0].partitions
            assert (reply.error_code, part.error_code, part.leader_id) == (NONE, NONE, 1)
            assert [one.replica_id for one in part.current_voters] == [1]
            assert part.current_voters[0].log_end_offset == part.high_watermark > 0
            await three_brokers(node)
            voters = (
                QuorumMember(BrokerId(2), named, Offset(90), last_caught_up_ms=7),
                QuorumMember(BrokerId(1), DirectoryId("a person's"), Offset(80), 5, 6),
            )
            observers = (QuorumMember(BrokerId(3), None, Offset(-1)),)
            _seen(node, QuorumView(BrokerId(2), Epoch(12), Offset(85), voters, observers), monkeypatch)
            reply = await quorum_of(client, version, ("__cluster_metadata", 0), ("__cluster_metadata", 1), ("s", 0))
            (part,), (other,), (strange,) = (topic.partitions for topic in reply.topics)
            assert (part.leader_id, part.leader_epoch, part.high_watermark) == (2, 12, 85)
            assert [(one.replica_id, one.log_end_offset) for one in part.current_voters] == [(2, 90), (1, 80)]
            assert [(one.replica_id, one.log_end_offset) for one in part.observers] == [(3, -1)]
            assert (other.error_code, strange.error_code) == (UNKNOWN, UNKNOWN)
            _seen(node, QuorumView(BrokerId(-1), Epoch(12), Offset(85), voters, observers), monkeypatch)
            (nobody,) = (await quorum_of(client, version, ("__cluster_metadata", 0))).topics[0].partitions
            assert (nobody.error_code, nobody.current_voters) == (ErrorCode.leader_not_available, ())
            if version >= 1:
                times = [(one.last_fetch_timestamp, one.last_caught_up_timestamp) for one in part.current_voters]
                assert times == [(-1, 7), (5, 6)]
            if version >= 2:
                assert [one.replica_directory_id for one in part.current_voters] == [directory, None]
                assert other.error_message
                ports = {one.node_id: [listener.port for listener in one.listeners] for one in reply.nodes}
                assert ports == {2: [7002], 1: []}

    run(body)


async def reassignments(client: Client, *wanted: tuple[str, tuple[int, ...]]) -> Any:
    cls = load_request_schema(46, 0)
    topics = tuple(make(nested(cls, "topics"), name=name, partition_indexes=at) for name, at in wanted)
    reply = await client.ask(46, 0, timeout=milliseconds(5_000), topics=topics or None)
    assert reply.error_code is NONE
    return {
        (topic.name, one.partition_index): (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in reply.topics
        for one in topic.partitions
    }


def test_replicas_on_the_move_are_listed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            assert await reassignments(client) == {}
            await three_brokers(node)
            stream = await stream_of(node, "s", placed((2,)), placed((2,)))
            await stream_of(node, "t", placed((2,)))
            moved = PartitionChange(
                index=1, replicas=(BrokerId(3), BrokerId(2)), adding=(BrokerId(3),), removing=(BrokerId(2),)
            )
            await commit(node, PartitionsChanged(id=stream.id, changes=(moved,)))
            listed = {("s", 1): ((3, 2), (3,), (2,))}
            assert await reassignments(client) == listed
            assert await reassignments(client, ("s", (0, 1, 1, 7, -1)), ("t", (0,)), ("no", (0,))) == listed
            assert await reassignments(client, ("s", (0,))) == {}

    run(body)


@pytest.mark.parametrize("version", range(update_features.HANDLER.max_version + 1))
def test_only_the_metadata_level_is_a_feature(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            cls = nested(load_request_schema(57, version), "feature_updates")
            update = make(cls, feature="metadata.version", max_version_level=27, allow_downgrade=False, upgrade_type=1)
            asked = {"timeout": milliseconds(5_000), "validate_only": False}
            reply = await client.ask(57, version, feature_updates=(update,), **asked)
            assert reply.error_code is ErrorCode.invalid_update_version, "none of them is updated"
            assert "metadata.version" in reply.error_message
            assert (await client.ask(57, version, feature_updates=(), **asked)).error_code is NONE

    run(body)


@pytest.mark.parametrize("version", range(update_features.HANDLER.max_version + 1))
def test_the_metadata_level_is_shown_and_set(tmp_path: Path, version: int) -> None:
    """A new cluster is at the newest level. Level 1 would not hold what is written."""

    async def body() -> None:
        async with running(tmp_path, voters=1) as node, node.client() as client:
            shown = await client.ask(18, 4, client_software_name="test", client_software_version="1")
            (spoken,), (level,) = shown.supported_features, shown.finalized_features
            newest = spoken.max_version
            assert (spoken.name, level.name) == (FEATURE, FEATURE)
            assert (level.max_version_level, shown.finalized_features_epoch) == (newest, newest)
            cls = nested(load_request_schema(57, version), "feature_updates")
            asked = {"timeout": milliseconds(5_000), "validate_only": False}
            for wanted, why in ((newest, None), (newest + 1, "the controller speaks"), (1, "hold records of")):
                update = make(
                    cls, feature=FEATURE, max_version_level=wanted, allow_downgrade=wanted < newest, upgrade_type=2
                )
                reply = await client.ask(57, version, feature_updates=(update,), **asked)
                assert reply.error_code is (NONE if why is None else ErrorCode.invalid_update_version)
                assert why is None or why in reply.error_message
                if version < 2:
                    assert [(one.feature, one.error_code) for one in reply.results] == [(FEATURE, NONE)] * (why is None)

    run(body)
