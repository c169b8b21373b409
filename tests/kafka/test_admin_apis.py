"""The other APIs at every version that is advertised, against a broker, by kio's own reader and writer."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.cluster import placed, stream_of, three_brokers
from tests.kafka.door import Client, Running, batch, running
from tests.kafka.test_hot_apis import produced
from tests.support.simulated import run

from logboom.kafka.apis import (
    alter_replica_log_dirs,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    load_handlers,
    metadata,
    offset_for_leader_epoch,
)
from logboom.kafka.wire.messages import make, milliseconds, nested

NONE = ErrorCode.none
WAIT = milliseconds(5_000)


def versions(handler: Any) -> range:
    return range(handler.min_version, handler.max_version + 1)


# --- ApiVersions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(api_versions.HANDLER))
def test_api_versions(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            reply = await client.ask(18, version, client_software_name="kio", client_software_version="0.6.5")
            assert reply.error_code is NONE
            told = {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}
            served = load_handlers()
            assert told == {key: (api.first_advertised, api.max_version) for key, api in served.items()}
            assert told[0] == (0, 13), "older librdkafka drops compression unless Produce starts at 0"
            assert told.get(11, (0, 0))[0] == 0, "older librdkafka wants JoinGroup from 0"
            if version >= 3:
                reply = await client.ask(18, version, client_software_name="a b", client_software_version="1")
                assert reply.error_code is ErrorCode.invalid_request

    run(body)


# --- Metadata ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(metadata.HANDLER))
def test_metadata(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, auto_create_streams=False) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            reply = await client.metadata(version, ["s", "no", "bad name!"])
            (broker,) = reply.brokers
            assert (broker.node_id, broker.host, broker.port) == (1, *node.address)
            there, missing, bad = reply.topics
            assert [(part.error_code, part.partition_index, part.leader_id) for part in there.partitions] == [
                (NONE, 0, 1),
                (NONE, 1, 1),
            ]
            assert {part.replica_nodes + part.isr_nodes for part in there.partitions} == {(1, 1)}
            assert (missing.error_code, missing.name) == (ErrorCode.unknown_topic_or_partition, "no")
            assert bad.error_code is ErrorCode.invalid_topic_exception
            everything = {"s", "__consumer_offsets"} & set(node.broker.catalog.streams())
            assert {topic.name for topic in (await client.metadata(version, None)).topics} == everything
            if version > 0:
                assert (await client.metadata(version, [])).topics == ()
                assert reply.controller_id == 1
                assert not there.is_internal
            if version >= 2:
                assert reply.cluster_id == node.broker.identity.cluster_id
            if version >= 7:
                assert {part.leader_epoch for part in there.partitions} == {0}
            if version >= 10:
                assert there.topic_id == stream.id

    run(body)


@pytest.mark.parametrize("version", range(10, metadata.HANDLER.max_version + 1))
def test_metadata_by_id(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            topic = nested(load_request_schema(3, version), "topics")
            unknown = uuid4()
            reply = await client.ask(
                3,
                version,
                topics=tuple(make(topic, name=None, topic_id=id_) for id_ in (stream.id, unknown, None)),
                allow_auto_topic_creation=True,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            there, missing, none = reply.topics
            assert (there.error_code, there.name, there.topic_id) == (NONE, "s", stream.id)
            assert (missing.error_code, missing.topic_id) == (ErrorCode.unknown_topic_id, unknown)
            assert none.error_code is ErrorCode.unknown_topic_id
            assert not missing.name

    run(body)


def test_asking_for_a_stream_creates_it_where_that_is_on(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, default_partitions=3) as node, node.client() as client:
            for version in (0, 3, 4, 9, 13):
                name = f"new-{version}"
                if version >= 4:
                    refused = await client.metadata(version, [name], create=False)
                    assert refused.topics[0].error_code is ErrorCode.unknown_topic_or_partition
                (made, bad) = (await client.metadata(version, [name, "bad/name"], create=True)).topics
                assert (made.error_code, len(made.partitions)) == (NONE, 3)
                assert bad.error_code is ErrorCode.invalid_topic_exception
                part = await produced(client, 3, node.broker.catalog.stream(name), 2, batch(b"a"))
                assert part.error_code is NONE
            await node.broker.catalog.delete_stream("new-0")
            ids = {stream.id for stream in node.broker.catalog.streams().values()}
            (again,) = (await client.metadata(13, ["new-0"], create=True)).topics
            assert again.topic_id not in ids, "a stream created again has another id"

    run(body)


# --- streams and partitions ----------------------------------------------------------------------------------------


async def created(client: Client, version: int, *topics: dict[str, Any], validate_only: bool = False) -> list[Any]:
    cls = load_request_schema(19, version)
    topic, config = nested(cls, "topics"), nested(cls, "topics", "configs")
    assignment = nested(cls, "topics", "assignments")
    made = []
    for fields in topics:
        configs = tuple(make(config, name=name, value=value) for name, value in fields.pop("configs", {}).items())
        assignments = tuple(
            make(assignment, partition_index=index, broker_ids=brokers)
            for index, brokers in fields.pop("assignments", {}).items()
        )
        shape = {"num_partitions": 1, "replication_factor": 1, **fields}
        made.append(make(topic, configs=configs, assignments=assignments, **shape))
    reply = await client.ask(19, version, topics=tuple(made), timeout=WAIT, validate_only=validate_only)
    return list(reply.topics)


@pytest.mark.parametrize("version", versions(create_topics.HANDLER))
def test_create_topics(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            (made,) = await created(client, version, {"name": "a", "num_partitions": 3, "configs": {"segment.ms": "9"}})
            stream = node.broker.catalog.stream("a")
            assert stream is not None
            assert (made.error_code, stream.partitions, stream.overrides["segment.ms"]) == (NONE, 3, "9")
            if version >= 5:
                assert (made.num_partitions, made.replication_factor) == (3, 1)
                assert {config.name: config.value for config in made.configs}["segment.ms"] == "9"
            if version >= 7:
                assert made.topic_id == stream.id
            wrong: list[tuple[dict[str, Any], ErrorCode]] = [
                ({"name": "a"}, ErrorCode.topic_already_exists),
                ({"name": "b", "num_partitions": 0}, ErrorCode.invalid_partitions),
                ({"name": "c", "replication_factor": 2}, ErrorCode.invalid_replication_factor),
                ({"name": "d", "configs": {"segment.bites": "9"}}, ErrorCode.invalid_config),
                ({"name": "e", "configs": {"segment.ms": "soon"}}, ErrorCode.invalid_config),
                ({"name": "..", "num_partitions": 1}, ErrorCode.invalid_topic_exception),
                ({"name": "f", "assignments": {0: (1,)}}, ErrorCode.invalid_request),
                ({**DEFAULTS, "name": "g", "assignments": {0: (2,)}}, ErrorCode.invalid_replica_assignment),
                ({**DEFAULTS, "name": "h", "assignments": {1: (1,)}}, ErrorCode.invalid_replica_assignment),
            ]
            results = await created(client, version, *(fields for fields, _ in wrong))
            assert [result.error_code for result in results] == [code for _, code in wrong]
            assert all(result.error_message for result in results)
            (dry,) = await created(client, version, {"name": "i"}, validate_only=True)
            assert (dry.error_code, node.broker.catalog.stream("i")) == (NONE, None)
            (twice,) = await created(client, version, {"name": "j"}, {"name": "j"})
            assert (twice.error_code, node.broker.catalog.stream("j")) == (ErrorCode.invalid_request, None)
            (by_hand,) = await created(client, version, {**DEFAULTS, "name": "k", "assignments": {1: (1,), 0: (1,)}})
            assert by_hand.error_code is NONE
            if version >= 4:
                assert (await created(client, version, {**DEFAULTS, "name": "l"}))[0].error_code is NONE

    run(body)


DEFAULTS = {"num_partitions": -1, "replication_factor": -1}


@pytest.mark.parametrize("version", versions(delete_topics.HANDLER))
def test_delete_topics(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            a = await node.broker.catalog.create_stream("a")
            await node.broker.catalog.create_stream("b")
            if version < 6:
                reply = await client.ask(20, version, topic_names=("a", "no", "__consumer_offsets"), timeout=WAIT)
                assert [one.name for one in reply.responses] == ["a", "no", "__consumer_offsets"]
                codes = [NONE, ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_request]
            else:
                topic = nested(load_request_schema(20, version), "topics")
                wanted = [(None, a.id), ("no", None), (None, uuid4()), ("b", a.id), (None, None)]
                reply = await client.ask(
                    20,
                    version,
                    topics=tuple(make(topic, name=name, topic_id=id_) for name, id_ in wanted),
                    timeout=WAIT,
                )
                assert (reply.responses[0].name, reply.responses[0].topic_id) == ("a", a.id)
                unknown = [ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id]
                codes = [NONE, *unknown, ErrorCode.invalid_request, ErrorCode.invalid_request]
            assert [one.error_code for one in reply.responses] == codes
            if version >= 5:
                assert [bool(one.error_message) for one in reply.responses] == [code is not NONE for code in codes]
            assert {"a", "b"} & set(node.broker.catalog.streams()) == {"b"}

    run(body)


@pytest.mark.parametrize("version", versions(create_partitions.HANDLER))
def test_create_partitions(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("s", partitions=2)
            cls = load_request_schema(37, version)
            topic, assignment = nested(cls, "topics"), nested(cls, "topics", "assignments")

            async def grown(
                name: str, count: int, brokers: Any = None, *, dry: bool = False, times: int = 1
            ) -> ErrorCode:
                assigned = None if brokers is None else tuple(make(assignment, broker_ids=one) for one in brokers)
                one = make(topic, name=name, count=count, assignments=assigned)
                reply = await client.ask(37, version, topics=(one,) * times, timeout=WAIT, validate_only=dry)
                (result,) = reply.results
                assert bool(result.error_message) == (result.error_code is not NONE)
                code: ErrorCode = result.error_code
                return code

            assert await grown("s", 3, dry=True) is NONE
            assert await grown("s", 2) is ErrorCode.invalid_partitions
            assert await grown("s", 1) is ErrorCode.invalid_partitions
            assert await grown("s", 3, [(9,)]) is ErrorCode.invalid_replica_assignment
            assert await grown("s", 4, [(1,)]) is ErrorCode.invalid_replica_assignment
            assert await grown("no", 4) is ErrorCode.unknown_topic_or_partition
            assert await grown("__consumer_offsets", 100) is ErrorCode.invalid_request
            assert await grown("s", 5, times=2) is ErrorCode.invalid_request
            stream = node.broker.catalog.stream("s")
            assert stream is not None
            assert stream.partitions == 2
            assert await grown("s", 3, [(1,)]) is NONE
            assert await grown("s", 5) is NONE
            assert (await produced(client, 3, stream, 4, batch(b"a"))).error_code is NONE

    run(body)


# --- descriptions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(describe_configs.HANDLER))
def test_describe_configs(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        defaults = {"segment_ms": 77_000}
        async with running(tmp_path, stream_defaults=defaults) as node, node.client() as client:
            await node.broker.catalog.create_stream("s", config={"segment.bytes": "20000"})
            resource = nested(load_request_schema(32, version), "resources")

            async def told(kind: int, name: str, keys: Any = None) -> Any:
                one = make(resource, resource_type=kind, resource_name=name, configuration_keys=keys)
                reply = await client.ask(
                    32, version, resources=(one,), include_synonyms=True, include_documentation=True
                )
                return reply.results[0]

            configs = {config.name: config for config in (await told(2, "s")).configs}
            assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("20000", 1)
            assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("77000", 4)
            assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)
            synonyms = [(one.name, one.value, one.source) for one in configs["segment.bytes"].synonyms]
            assert synonyms == [("segment.bytes", "20000", 1), ("log.segment.bytes", "1073741824", 5)]
            sources = [(one.name, one.source) for one in configs["segment.ms"].synonyms]
            assert sources == [("log.roll.ms", 4), ("log.roll.ms", 5)]
            if version >= 3:
                assert configs["segment.bytes"].config_type == 3
                assert "segment file" in configs["segment.bytes"].documentation
            before = configs["message.timestamp.before.max.ms"]
            assert {before.value} | {one.value for one in before.synonyms} == {str(2**63 - 1)}, "one default, one value"
            some = await told(2, "s", ("segment.ms",))
            assert [config.name for config in some.configs] == ["segment.ms"]
            assert (await told(2, "no")).error_code is ErrorCode.unknown_topic_or_partition
            mine = {config.name: config for config in (await told(4, "1")).configs}
            assert mine["log.roll.ms"].value == "77000"
            assert mine["log.message.timestamp.before.max.ms"].value == str(2**63 - 1)
            assert mine["logboom.broker.read_threads"].read_only
            assert not mine["max.connections"].read_only
            values = [mine[name].value for name in ("auto.create.topics.enable", "logboom.kafka.advertised")]
            assert values == ["true", None]
            assert (await told(4, "")).configs == ()
            assert (await told(4, "2")).error_code is ErrorCode.invalid_request
            assert (await told(99, "x")).error_code is ErrorCode.invalid_request

    run(body)


@pytest.mark.parametrize("version", versions(describe_cluster.HANDLER))
def test_describe_cluster(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            asked = {"include_cluster_authorized_operations": False, "include_fenced_brokers": True}
            reply = await client.ask(60, version, endpoint_type=1, **asked)
            (broker,) = reply.brokers
            assert (broker.broker_id, broker.host, broker.port) == (1, *node.address)
            assert (reply.error_code, reply.controller_id) == (NONE, 1)
            assert reply.cluster_id == node.broker.identity.cluster_id
            if version >= 1:
                reply = await client.ask(60, version, endpoint_type=2, **asked)
                assert reply.error_code is ErrorCode.unsupported_endpoint_type

    run(body)


@pytest.mark.parametrize("version", versions(describe_log_dirs.HANDLER))
def test_describe_log_dirs(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            records = batch(b"x" * 500)
            await produced(client, 3, stream, 1, records)
            reply = await client.ask(35, version, topics=None)
            (result,) = reply.results
            assert (result.error_code, Path(result.log_dir)) == (NONE, (tmp_path / "data").absolute())
            sizes = {topic.name: [part.partition_size for part in topic.partitions] for topic in result.topics}
            assert sizes["s"] == [0, len(records)]
            if version >= 4:
                assert 0 < result.usable_bytes <= result.total_bytes
            topic = nested(load_request_schema(35, version), "topics")
            wanted = (make(topic, topic="s", partitions=(1, 7)), make(topic, topic="no", partitions=(0,)))
            (result,) = (await client.ask(35, version, topics=wanted)).results
            assert [(one.name, [part.partition_index for part in one.partitions]) for one in result.topics] == [
                ("s", [1])
            ]

    run(body)


def log_dirs(version: int, *moves: tuple[str, str, tuple[int, ...]]) -> Any:
    cls = nested(load_request_schema(34, version), "dirs")
    topic = nested(cls, "topics")
    return tuple(
        make(cls, path=path, topics=(make(topic, name=name, partitions=parts),)) for path, name, parts in moves
    )


@pytest.mark.parametrize("version", versions(alter_replica_log_dirs.HANDLER))
def test_alter_replica_log_dirs(tmp_path: Path, version: int) -> None:
    """What Kafka 4.1 answered to the same requests, with one log dir."""

    async def altered(client: Client, *moves: tuple[str, str, tuple[int, ...]]) -> dict[tuple[str, int], ErrorCode]:
        reply = await client.ask(34, version, dirs=log_dirs(version, *moves))
        return {
            (one.topic_name, part.partition_index): part.error_code for one in reply.results for part in one.partitions
        }

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("s", partitions=2)
            await three_brokers(node)
            await stream_of(node, "elsewhere", placed([2, 3]))
            here, unknown = node.broker.health.log_dir_path, ErrorCode.unknown_topic_or_partition
            assert here == str((tmp_path / "data").absolute())
            assert await altered(client, (here, "s", (0, 0, 1, 7)), (here, "no", (0,)), (here, "elsewhere", (0,))) == {
                ("s", 0): NONE,
                ("s", 1): NONE,
                ("s", 7): unknown,
                ("no", 0): unknown,
                ("elsewhere", 0): ErrorCode.replica_not_available,
            }
            not_found = ErrorCode.log_dir_not_found
            for path in ("/nowhere", "", f"{here}/"):
                assert await altered(client, (path, "s", (0, 7))) == {("s", 0): not_found, ("s", 7): not_found}
            assert await altered(client, ("/nowhere", "s", (0, 1)), (here, "s", (0,))) == {
                ("s", 0): NONE,
                ("s", 1): not_found,
            }
            assert await altered(client, (here, "s", ())) == {}
            node.broker.flusher.disk_failed(OSError("gone"))
            assert await altered(client, (here, "s", (0,))) == {("s", 0): ErrorCode.kafka_storage_error}

    run(body)


@pytest.mark.parametrize("version", versions(offset_for_leader_epoch.HANDLER))
def test_offset_for_leader_epoch(tmp_path: Path, version: int) -> None:
    async def asked(node: Running, epoch: int, current: int, name: str = "s") -> tuple[ErrorCode, int, int]:
        cls = load_request_schema(23, version)
        part = make(nested(cls, "topics", "partitions"), partition=0, current_leader_epoch=current, leader_epoch=epoch)
        async with node.client() as client:
            topic = make(nested(cls, "topics"), topic=name, partitions=(part,))
            reply = await client.ask(23, version, replica_id=-1, topics=(topic,))
        end = reply.topics[0].partitions[0]
        return end.error_code, end.leader_epoch, end.end_offset

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await produced(client, 3, await node.broker.catalog.create_stream("s"), 0, batch(b"a", b"b"))
            assert await asked(node, 0, -1) == (NONE, 0, 2)
        async with running(tmp_path) as node, node.client() as client:
            await produced(client, 3, node.broker.catalog.stream("s"), 0, batch(b"c"))
            assert await asked(node, 0, 1) == (NONE, 0, 2)
            assert await asked(node, 1, -1) == (NONE, 1, 3)
            assert await asked(node, 0, 0) == (ErrorCode.fenced_leader_epoch, -1, -1)
            assert await asked(node, 0, 2) == (ErrorCode.unknown_leader_epoch, -1, -1)
            assert await asked(node, 0, -1, "no") == (ErrorCode.unknown_topic_or_partition, -1, -1)

    run(body)
