"""What Metadata says is what is there, though it is written once and sent many times."""

import random
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, Running, running
from tests.support.simulated import run

from logboom.kafka.admin import metadata_cache
from logboom.kafka.apis import metadata
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.wire.encoded import encoded_with_throttle_time
from logboom.kafka.wire.messages import make

VERSIONS = [0, 1, 4, 7, 8, 9, 10, 11, 12, metadata.HANDLER.max_version]


async def described(client: Client, version: int, names: list[str] | None) -> dict[str, Any]:
    reply = await client.metadata(version, names)
    assert reply.brokers[0].node_id == 1
    return {topic.name: topic for topic in reply.topics}


def agrees(node: Running, version: int, topics: dict[str, Any]) -> None:
    for name, topic in topics.items():
        stream = node.broker.catalog.stream(name)
        if stream is None:
            assert topic.error_code is ErrorCode.unknown_topic_or_partition
            continue
        assert topic.error_code is ErrorCode.none
        assert [part.partition_index for part in topic.partitions] == list(range(stream.partitions))
        assert all(part.leader_id == 1 for part in topic.partitions)
        if version >= 10:
            assert topic.topic_id == stream.id


@pytest.mark.parametrize("seed", range(3))
def test_it_follows_every_change(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def body() -> None:
        async with running(tmp_path, auto_create_streams=False) as node, node.client() as client:
            names = ["a", "b", "c"]
            for _ in range(40):
                name = chance.choice(names)
                stream = node.broker.catalog.stream(name)
                if stream is None:
                    await node.broker.catalog.create_stream(name, partitions=chance.randrange(1, 4))
                else:
                    match chance.choice(["delete", "grow", "configure"]):
                        case "delete":
                            await node.broker.catalog.delete_stream(name)
                        case "grow":
                            await node.broker.catalog.create_partitions(name, stream.partitions + 1)
                        case "configure":
                            await node.broker.catalog.change_stream_config(
                                name, {"segment.ms": str(chance.randrange(1, 99))}
                            )
                for version in chance.sample(VERSIONS, 2):
                    agrees(node, version, await described(client, version, names))
                    everything = await described(client, version, None)
                    agrees(node, version, everything)
                    assert set(everything) == set(node.broker.catalog.streams())

    run(body)


def test_it_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    describe = metadata_cache._describe

    def counted(broker: Any, stream: Any, *variant: Any) -> Any:
        written.append(stream.name)
        return describe(broker, stream, *variant)

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("a")
            for _ in range(3):
                await described(client, 12, ["a"])
                await described(client, 12, None)
            assert sorted(written) == sorted(node.broker.catalog.streams())
            await node.broker.catalog.create_stream("b")
            await described(client, 12, None)
            assert sorted(written) == sorted(node.broker.catalog.streams()), "what has not changed is not written again"

    monkeypatch.setattr(metadata_cache, "_describe", counted)
    run(body)


def test_the_wait_of_one_client_is_not_told_to_the_next(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node:
            await node.broker.catalog.create_stream("a")
            context = RequestContext(node.broker, node.services.server, "c", "127.0.0.1", 12, object())
            every = make(load_request_schema(3, 12), topics=None, include_topic_authorized_operations=False)
            throttled, free = (metadata.handle(context, every) for _ in range(2))
            assert bytes(encoded_with_throttle_time(throttled, 500)[0][:4]) == (500).to_bytes(4, "big")
            assert bytes(free.pieces[0][:4]) == bytes(4)
            assert bytes(metadata.handle(context, every).pieces[0][:4]) == bytes(4)

    run(body)
