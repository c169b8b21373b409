"""Requests that name one thing thousands of times, or thousands of things: the answer is in proportion to the request.

A Metadata request of 6 KB that named one stream of 1,000 partitions a thousand times was answered with 26 MB, after
20 seconds in which nobody else was served; an OffsetFetch of 4 KB with 120 MB.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.attack import good, unharmed
from tests.kafka.door import Client, frame, written
from tests.kafka.test_bad_input_groups import commit
from tests.kafka.test_hot_apis import fetch_request, produce_request
from tests.support.simulated import run

from logboom.kafka.wire.messages import make, milliseconds, nested
from logboom.metadata import Stream

OFTEN = 5_000
PARTITIONS = 300


def metadata(version: int, **topic: Any) -> Any:
    cls = load_request_schema(3, version)
    one = make(nested(cls, "topics"), **topic)
    return make(
        cls,
        topics=(one,) * OFTEN,
        allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def configs(kind: int, name: str, keys: Any) -> Any:
    cls = load_request_schema(32, 4)
    one = nested(cls, "resources")
    resources = [make(one, resource_type=kind, resource_name=name, configuration_keys=keys(n)) for n in range(OFTEN)]
    return make(cls, resources=tuple(resources), include_synonyms=True, include_documentation=True)


def offsets(**topics: Any) -> Any:
    cls = load_request_schema(9, 8)
    one = nested(cls, "groups")
    return make(cls, groups=(make(one, group_id="g", **topics),) * OFTEN, require_stable=False)


def one_stream_often() -> Any:
    cls = load_request_schema(9, 8)
    topic = make(nested(cls, "groups", "topics"), name="wide", partition_indexes=(0,) * 10)
    group = make(nested(cls, "groups"), group_id="g", topics=(topic,) * (OFTEN // 10))
    return make(cls, groups=(group,), require_stable=False)


def log_dirs() -> Any:
    cls = load_request_schema(35, 1)
    return make(cls, topics=(make(nested(cls, "topics"), topic="wide", partitions=(0,) * OFTEN),))


def groups(*names: str) -> Any:
    return make(load_request_schema(15, 4), groups=names, include_authorized_operations=False)


CASES: dict[str, tuple[int, int, Any]] = {
    "Metadata by name": (3, 9, lambda stream: metadata(9, name="wide")),
    "Metadata by id": (3, 12, lambda stream: metadata(12, name=None, topic_id=stream.id)),
    "DescribeConfigs of a stream": (32, 4, lambda stream: configs(2, "wide", lambda number: None)),
    "DescribeConfigs of the broker": (32, 4, lambda stream: configs(4, "1", lambda number: None)),
    "DescribeConfigs by other keys": (32, 4, lambda stream: configs(4, "1", lambda number: (f"{number}",))),
    "OffsetFetch of all": (9, 8, lambda stream: offsets(topics=None)),
    "OffsetFetch of one stream": (9, 8, lambda stream: one_stream_often()),
    "DescribeGroups": (15, 4, lambda stream: groups(*("g",) * OFTEN)),
    "DescribeLogDirs": (35, 1, lambda stream: log_dirs()),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_named_often_is_answered_once(tmp_path: Path, warnings_logged: list[dict[str, Any]], case: str) -> None:
    api_key, version, request = CASES[case]

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("wide", partitions=PARTITIONS)
            notes = [("wide", index, 1, "x" * 1_000) for index in range(30)]
            assert set(await commit(client, *notes)) == {ErrorCode.none}
            client.writer.write(frame(api_key, version, 1, written(request(stream))))
            assert len(await client.frame()) < 100_000

    run(body)


async def listed(client: Client, stream: Stream) -> list[ErrorCode]:
    cls = load_request_schema(2, 7)
    part = make(nested(cls, "topics", "partitions"), partition_index=0, current_leader_epoch=-1, timestamp=5)
    topics = (make(nested(cls, "topics"), name=stream.name, partitions=(part,) * 3),)
    reply = await client.ask(2, 7, replica_id=-1, isolation_level=0, topics=topics)
    return [part.error_code for part in reply.topics[0].partitions]


def test_a_partition_whose_offsets_are_asked_for_twice_is_refused(
    tmp_path: Path, warnings_logged: list[dict[str, Any]]
) -> None:
    """As by Kafka: each would be a search on the disk."""

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            assert await listed(client, stream) == [ErrorCode.invalid_request] * 3

    run(body)


def test_a_fetch_of_one_partition_often_is_bounded_by_its_bytes(
    tmp_path: Path, warnings_logged: list[dict[str, Any]]
) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged, {"max_fetch_bytes": 100_000}) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            client.send(0, 9, body=written(produce(stream)))
            await client.reply()
            request = fetch_request(12, stream, {0: 0}, max_bytes=2**31 - 1, partition_max_bytes=2**31 - 1)
            (topic,) = request.topics
            often = make(type(topic), topic="s", partitions=topic.partitions * OFTEN)
            client.writer.write(frame(1, 12, 1, written(replace(request, topics=(often,)))))
            assert len(await client.frame()) < 100_000 + 60 * OFTEN

    run(body)


def produce(stream: Stream) -> Any:
    return produce_request(9, stream, {0: good(bytes(10_000))})


def test_many_names_that_are_none_are_told_in_part(tmp_path: Path, warnings_logged: list[dict[str, Any]]) -> None:
    """Looking for the name that was meant takes 200 us: not for each of ten thousand."""

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            await node.broker.catalog.create_stream("s")
            for kind, name in ((2, "s"), (4, "1"), (4, "")):
                cls = load_request_schema(44, 1)
                one = nested(cls, "resources", "configs")
                wanted = tuple(make(one, name=f"retension{n}", config_operation=0, value="1") for n in range(OFTEN))
                resource = make(nested(cls, "resources"), resource_type=kind, resource_name=name, configs=wanted)
                reply = await client.ask(44, 1, resources=(resource,), validate_only=False)
                (answer,) = reply.responses
                assert answer.error_code is ErrorCode.invalid_config
                assert answer.error_message.count("unknown setting") == 20
            cls = load_request_schema(19, 5)
            config = nested(cls, "topics", "configs")
            topic = make(
                nested(cls, "topics"),
                name="t",
                num_partitions=1,
                replication_factor=1,
                assignments=(),
                configs=tuple(make(config, name=f"retension{n}", value="1") for n in range(OFTEN)),
            )
            reply = await client.ask(19, 5, topics=(topic,), timeout=milliseconds(10_000), validate_only=False)
            assert reply.topics[0].error_message.count("unknown setting") == 20

    run(body)


def test_a_request_of_too_many_elements_is_closed(tmp_path: Path, warnings_logged: list[dict[str, Any]]) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            client.writer.write(frame(15, 0, 1, b"\0\1\0\0" + b"\0\1g" * 0x10000))
            assert await client.closed() == b""
            (line,) = warnings_logged
            assert line["why"] == "too many elements"

    run(body)
