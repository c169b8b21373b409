"""What a client sends behind a change, without waiting for its answer, finds the change made.

Kafka works on the requests of one connection one by one, and clients rely on it: admin clients send a second call
before the first is answered, consumers ask for the offsets that they have just begun to commit. In simulated time.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, Running, batch, running, until
from tests.kafka.test_hot_apis import produce_request
from tests.support.simulated import run

from logboom.groups import Commit
from logboom.kafka.wire.messages import make, milliseconds, nested

PRODUCE, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, HEARTBEAT = 0, 2, 3, 8, 9, 12
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, DESCRIBE_CONFIGS, ALTER_CONFIGS = 19, 20, 21, 32, 44
LATEST, EARLIEST = -1, -2
TOPIC = 2  # a resource type
SET = 0  # an operation on a setting

METADATA_FLAGS = {
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
NAMED_S = SimpleNamespace(name="s", id=None)


def test_deleted_records_are_not_the_earliest_any_more(tmp_path: Path) -> None:
    async def talk(_node: Running, client: Client) -> None:
        for value in (b"1", b"2", b"3"):
            client.send(PRODUCE, 9, produce_request(9, NAMED_S, {0: batch(value)}))
            await client.reply()
        send(client, DELETE_RECORDS, 2, delete_records(2), timeout=milliseconds(30_000))
        send(client, LIST_OFFSETS, 6, list_offsets(EARLIEST), replica_id=-1, isolation_level=0)
        assert (await client.reply()).topics[0].partitions[0].low_watermark == 2
        assert (await client.reply()).topics[0].partitions[0].offset == 2

    with_stream(tmp_path, talk)


@pytest.mark.parametrize("acks", [1, -1])
def test_written_records_are_counted(tmp_path: Path, acks: int) -> None:
    async def talk(_node: Running, client: Client) -> None:
        client.send(PRODUCE, 9, produce_request(9, NAMED_S, {0: batch(b"1", b"2")}, acks=acks))
        send(client, LIST_OFFSETS, 6, list_offsets(LATEST), replica_id=-1, isolation_level=0)
        assert (await client.reply()).responses[0].partition_responses[0].error_code is ErrorCode.none
        assert (await client.reply()).topics[0].partitions[0].offset == 2

    with_stream(tmp_path, talk)


def test_committed_offsets_are_found(tmp_path: Path) -> None:
    async def talk(_node: Running, client: Client) -> None:
        send(client, OFFSET_COMMIT, 7, commit(5), group_id="g", generation_id_or_member_epoch=-1, member_id="")
        send(client, OFFSET_FETCH, 7, offset_fetch, group_id="g", require_stable=False)
        assert (await client.reply()).topics[0].partitions[0].error_code is ErrorCode.none
        assert (await client.reply()).topics[0].partitions[0].committed_offset == 5

    with_stream(tmp_path, talk)


def test_streams_are_created_and_deleted_one_after_the_other(tmp_path: Path) -> None:
    async def talk(_node: Running, client: Client) -> None:
        send(client, DELETE_TOPICS, 4, nothing, topic_names=("s",), timeout=milliseconds(30_000))
        send(client, CREATE_TOPICS, 5, create("s", 3), timeout=milliseconds(30_000), validate_only=False)
        send(client, METADATA, 8, metadata, **METADATA_FLAGS)
        assert (await client.reply()).responses[0].error_code is ErrorCode.none
        assert (await client.reply()).topics[0].error_code is ErrorCode.none
        assert len((await client.reply()).topics[0].partitions) == 3

    with_stream(tmp_path, talk)


def test_changed_settings_are_described(tmp_path: Path) -> None:
    async def talk(_node: Running, client: Client) -> None:
        send(client, ALTER_CONFIGS, 1, alter, validate_only=False)
        send(client, DESCRIBE_CONFIGS, 2, describe, include_synonyms=False)
        assert (await client.reply()).responses[0].error_code is ErrorCode.none
        assert (await client.reply()).results[0].configs[0].value == "77777"

    with_stream(tmp_path, talk)


def test_a_member_is_heard_while_its_commit_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs must not cost a member its session: heartbeats wait for no change."""

    async def talk(node: Running, client: Client) -> None:
        disk_answers, commit_on = asyncio.Event(), node.broker.groups.commit

        async def commit_later(asked: Commit) -> Any:
            await disk_answers.wait()
            return await commit_on(asked)

        monkeypatch.setattr(node.broker.groups, "commit", commit_later)
        send(client, OFFSET_COMMIT, 7, commit(5), group_id="g", generation_id_or_member_epoch=-1, member_id="")
        send(client, HEARTBEAT, 3, nothing, group_id="other", generation_id=1, member_id="m")
        send(client, METADATA, 8, metadata, **METADATA_FLAGS)
        await until(lambda: node.metrics.api(HEARTBEAT).replies)
        assert (node.metrics.api(OFFSET_COMMIT).replies, node.metrics.api(METADATA).requests) == (0, 0)
        disk_answers.set()
        assert (await client.reply()).topics[0].partitions[0].error_code is ErrorCode.none
        assert (await client.reply()).error_code is ErrorCode.unknown_member_id
        assert (await client.reply()).topics[0].error_code is ErrorCode.none

    with_stream(tmp_path, talk)


def with_stream(directory: Path, talk: Callable[[Running, Client], Any]) -> None:
    """Talk to a broker that has the stream `s`, of one partition."""

    async def body() -> None:
        async with running(directory) as node, node.client() as client:
            await node.broker.catalog.create_stream("s")
            await talk(node, client)

    run(body)


Fields = dict[str, Any]


def send(client: Client, key: int, version: int, fields: Callable[[Any], Fields], **more: Any) -> None:
    """Send a request of what `fields` makes of its class, and `more`; without waiting."""
    cls = load_request_schema(key, version)
    client.send(key, version, make(cls, **fields(cls), **more))


def nothing(_cls: Any) -> Fields:
    return {}


def topics(cls: Any, **fields: Any) -> Fields:
    part = make(nested(cls, "topics", "partitions"), partition_index=0, **fields)
    return {"topics": (make(nested(cls, "topics"), name="s", partitions=(part,)),)}


def delete_records(offset: int) -> Callable[[Any], Fields]:
    return partial(topics, offset=offset)


def list_offsets(timestamp: int) -> Callable[[Any], Fields]:
    return partial(topics, current_leader_epoch=-1, timestamp=timestamp)


def commit(offset: int) -> Callable[[Any], Fields]:
    return partial(topics, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=None)


def offset_fetch(cls: Any) -> Fields:
    return {"topics": (make(nested(cls, "topics"), name="s", partition_indexes=(0,)),)}


def create(name: str, partitions: int) -> Callable[[Any], Fields]:
    def fields(cls: Any) -> Fields:
        topic = nested(cls, "topics")
        one = make(topic, name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=())
        return {"topics": (one,)}

    return fields


def metadata(cls: Any) -> Fields:
    return {"topics": (make(nested(cls, "topics"), name="s"),)}


def alter(cls: Any) -> Fields:
    setting = make(nested(cls, "resources", "configs"), name="retention.ms", config_operation=SET, value="77777")
    return {"resources": (make(nested(cls, "resources"), resource_type=TOPIC, resource_name="s", configs=(setting,)),)}


def describe(cls: Any) -> Fields:
    one = make(nested(cls, "resources"), resource_type=TOPIC, resource_name="s", configuration_keys=("retention.ms",))
    return {"resources": (one,)}
