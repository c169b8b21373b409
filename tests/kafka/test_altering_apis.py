"""DeleteRecords, AlterConfigs, IncrementalAlterConfigs at every version advertised, by kio's own reader and writer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, Running, batch, running
from tests.kafka.test_admin_apis import versions
from tests.kafka.test_hot_apis import produced
from tests.support.simulated import run
from tests.support.waiting import WAIT_S

from logboom.kafka.apis import alter_configs, delete_records, describe_configs, incremental_alter_configs
from logboom.kafka.wire.messages import make, milliseconds, nested

NONE = ErrorCode.none
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = 2, 4


# --- DeleteRecords -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(delete_records.HANDLER))
def test_delete_records(tmp_path: Path, version: int) -> None:
    async def deleted(client: Client, wanted: dict[str, list[tuple[int, int]]]) -> list[tuple[int, int, ErrorCode]]:
        cls = load_request_schema(21, version)
        part = nested(cls, "topics", "partitions")
        topics = tuple(
            make(
                nested(cls, "topics"),
                name=name,
                partitions=tuple(make(part, partition_index=index, offset=offset) for index, offset in parts),
            )
            for name, parts in wanted.items()
        )
        reply = await client.ask(21, version, topics=topics, timeout=milliseconds(5_000))
        assert [topic.name for topic in reply.topics] == list(wanted)
        return [
            (one.partition_index, one.low_watermark, one.error_code)
            for topic in reply.topics
            for one in topic.partitions
        ]

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            await produced(client, 3, stream, 0, batch(b"a", b"b", b"c"))
            assert await deleted(client, {"s": [(0, 2), (1, 0)]}) == [(0, 2, NONE), (1, 0, NONE)]
            assert await deleted(client, {"s": [(0, 1)]}) == [(0, 2, NONE)]
            assert await deleted(client, {"s": [(0, 4)]}) == [(0, -1, ErrorCode.offset_out_of_range)]
            assert await deleted(client, {"s": [(0, -3)]}) == [(0, -1, ErrorCode.offset_out_of_range)]
            assert await deleted(client, {"s": [(0, -1)]}) == [(0, 3, NONE)]
            own = (0, -1, ErrorCode.invalid_topic_exception)
            unknown = ErrorCode.unknown_topic_or_partition
            assert await deleted(client, {"__consumer_offsets": [(0, -1)], "s": [(9, 0)], "no": [(0, 0)]}) == [
                own,
                (9, -1, unknown),
                (0, -1, unknown),
            ]
            assert node.broker.replicas.find("s", 0).log_start_offset == 3

    run(body)


def test_a_fetch_below_the_start_is_out_of_range(tmp_path: Path) -> None:
    async def fetched(client: Client, offset: int) -> tuple[ErrorCode, int]:
        cls = load_request_schema(1, 11)
        part = make(
            nested(cls, "topics", "partitions"), partition=0, fetch_offset=offset, partition_max_bytes=1_000,
            current_leader_epoch=-1, log_start_offset=-1,
        )  # fmt: skip
        reply = await client.ask(
            1, 11, replica_id=-1, max_wait=milliseconds(0), min_bytes=0, max_bytes=1_000, isolation_level=0,
            session_id=0, session_epoch=-1, forgotten_topics_data=(), rack_id="",
            topics=(make(nested(cls, "topics"), topic="s", partitions=(part,)),),
        )  # fmt: skip
        (one,) = reply.responses[0].partitions
        return one.error_code, one.log_start_offset

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await produced(client, 3, await node.broker.catalog.create_stream("s"), 0, batch(b"a"))
            await produced(client, 3, node.broker.catalog.stream("s"), 0, batch(b"b"))
            assert await fetched(client, 0) == (NONE, 0)
            await node.broker.replicas.find("s", 0).deletion.delete_records(1)
            assert (await fetched(client, 0))[0] is ErrorCode.offset_out_of_range
            assert await fetched(client, 1) == (NONE, 1)

    run(body)


# --- settings ------------------------------------------------------------------------------------------------------


async def altered(
    client: Client,
    key: int,
    version: int,
    changes: list[tuple[Any, ...]],
    *,
    resource: tuple[int, str] = (TOPIC, "s"),
    validate_only: bool = False,
    times: int = 1,
) -> tuple[ErrorCode, str | None]:
    """Ask for changes (name, value[, operation]) of one resource, or of the same one several times."""
    cls = load_request_schema(key, version)
    config = nested(cls, "resources", "configs")
    more = [{"config_operation": one[2] if len(one) > 2 else SET} if key == 44 else {} for one in changes]
    configs = tuple(make(config, name=one[0], value=one[1], **extra) for one, extra in zip(changes, more, strict=True))
    one = make(nested(cls, "resources"), resource_type=resource[0], resource_name=resource[1], configs=configs)
    reply = await client.ask(key, version, resources=(one,) * times, validate_only=validate_only)
    assert {(result.resource_type, result.resource_name) for result in reply.responses} == {resource}
    first = reply.responses[0]
    assert all(
        (result.error_code, result.error_message) == (first.error_code, first.error_message)
        for result in reply.responses
    )
    return first.error_code, first.error_message


async def told(client: Client) -> dict[str, str]:
    """The settings a stream has of its own, as DescribeConfigs tells them."""
    version = describe_configs.HANDLER.max_version
    cls = load_request_schema(32, version)
    one = make(nested(cls, "resources"), resource_type=TOPIC, resource_name="s", configuration_keys=None)
    reply = await client.ask(32, version, resources=(one,), include_synonyms=False, include_documentation=False)
    return {config.name: config.value for config in reply.results[0].configs if config.config_source == 1}


@pytest.mark.parametrize("version", versions(alter_configs.HANDLER))
def test_alter_configs_replaces_all(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("s", config={"segment.ms": "5000"})
            new = [("retention.ms", "9000"), ("max.message.bytes", "100")]
            assert await altered(client, 33, version, new, validate_only=True) == (NONE, None)
            assert await told(client) == {"segment.ms": "5000"}
            assert await altered(client, 33, version, new) == (NONE, None)
            assert await told(client) == dict(new)
            code, text = await altered(client, 33, version, [("segment.ms", None)])
            assert (code, text) == (
                ErrorCode.invalid_request,
                "the setting 'segment.ms' has no value: leave it out to have its default",
            )
            assert await altered(client, 33, version, []) == (NONE, None)
            assert await told(client) == {}

    run(body)


@pytest.mark.parametrize("version", versions(incremental_alter_configs.HANDLER))
def test_incremental_alter_configs(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("s", config={"segment.ms": "5000"})
            both = [("retention.ms", "9000"), ("segment.ms", None, DELETE)]
            assert await altered(client, 44, version, both, validate_only=True) == (NONE, None)
            assert await told(client) == {"segment.ms": "5000"}
            assert await altered(client, 44, version, both) == (NONE, None)
            assert await told(client) == {"retention.ms": "9000"}
            for operation, word in ((APPEND, "append"), (SUBTRACT, "subtract")):
                code, text = await altered(client, 44, version, [("segment.ms", "1", operation)])
                assert (code, text) == (
                    ErrorCode.invalid_config,
                    f"'segment.ms' is no list: use set or delete, not {word}",
                )
            code, text = await altered(client, 44, version, [("cleanup.policy", "shrink", APPEND)])
            assert code is ErrorCode.invalid_config
            assert "expected delete, compact" in str(text)
            assert await altered(client, 44, version, [("cleanup.policy", "delete", SUBTRACT)]) == (NONE, None)
            assert (await told(client))["cleanup.policy"] == ""
            assert await altered(client, 44, version, [("cleanup.policy", "delete", APPEND)]) == (NONE, None)
            assert await altered(client, 44, version, [("cleanup.policy", None, DELETE)]) == (NONE, None)
            for wrong in ([("segment.ms", "1", 9)], [("segment.ms", None)], [("segment.ms", "1"), ("segment.ms", "2")]):
                assert (await altered(client, 44, version, wrong))[0] is ErrorCode.invalid_request
            assert await told(client) == {"retention.ms": "9000"}

    run(body)


@pytest.mark.parametrize("key", [33, 44])
def test_what_cannot_be_changed_is_told(tmp_path: Path, key: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("s")
            code, text = await altered(client, key, 1, [("retention.ms", "week"), ("segment.byte", "1")])
            assert code is ErrorCode.invalid_config
            assert "retention.ms='week': expected a whole number" in str(text)
            assert "did you mean 'segment.bytes'?" in str(text)
            one = [("retention.ms", "1")]
            for resource, expected in (
                ((TOPIC, "no"), ErrorCode.unknown_topic_or_partition),
                ((TOPIC, "__consumer_offsets"), ErrorCode.invalid_request),
                ((BROKER, "2"), ErrorCode.invalid_request),
                ((BROKER, "one"), ErrorCode.invalid_request),
                ((99, "x"), ErrorCode.invalid_request),
            ):
                assert (await altered(client, key, 1, one, resource=resource))[0] is expected
            assert (await altered(client, key, 1, one, times=2))[0] is ErrorCode.invalid_request
            assert await told(client) == {}

    run(body)


# --- in force at once ----------------------------------------------------------------------------------------------


async def changed(node: Running, client: Client, name: str, value: str) -> None:
    assert await altered(client, 44, 1, [(name, value)]) == (NONE, None)


def test_changes_are_in_force_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, retention_check_interval_s=0.02) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")

            async def sent(size: int = 1) -> Any:
                return await produced(client, 9, stream, 0, batch(bytes(size)))

            assert (await sent(500)).error_code is NONE
            await changed(node, client, "max.message.bytes", "400")
            assert (await sent(500)).error_code is ErrorCode.message_too_large
            assert (await sent()).log_append_time is None
            await changed(node, client, "message.timestamp.type", "LogAppendTime")
            assert (await sent()).log_append_time is not None
            await node.broker.catalog.change_broker_config("", {"min.insync.replicas": "2"})
            assert (await sent()).error_code is ErrorCode.not_enough_replicas
            await changed(node, client, "min.insync.replicas", "1")
            partition = node.broker.replicas.find("s", 0)
            await changed(node, client, "logboom.flush", "none")
            assert not partition.syncs
            await changed(node, client, "logboom.flush", "commit")
            assert (await sent()).error_code is NONE
            assert partition.log.durable_end == partition.log_end_offset
            await changed(node, client, "logboom.retention.messages", "0")
            async with asyncio.timeout(WAIT_S):
                while partition.log_start_offset < partition.log_end_offset:
                    await asyncio.sleep(0.01)

    run(body)
