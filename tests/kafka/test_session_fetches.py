"""Fetch sessions through the door: a consumer with one reads what a consumer without one reads."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, Running, batch, running, until
from tests.kafka.test_hot_apis import produced
from tests.support.simulated import run

from logboom.kafka.apis import fetch
from logboom.kafka.wire.messages import make, milliseconds, nested
from logboom.records import iter_batches

VERSIONS = range(7, fetch.HANDLER.max_version + 1)


class Topic(NamedTuple):
    """A stream as a consumer knows it."""

    name: str
    id: UUID


Part = tuple[Topic, int]


async def created(node: Running, name: str, partitions: int = 1) -> Topic:
    stream = await node.broker.catalog.create_stream(name, partitions=partitions)
    return Topic(stream.name, stream.id)


@dataclass
class Consumer:
    """A client that follows KIP-227 as the Java client does; without `sessions` each fetch is whole."""

    client: Client
    version: int
    sessions: bool = True
    at: dict[Part, int] = field(default_factory=dict)
    told: dict[Part, int] = field(default_factory=dict)
    read: dict[Part, list[int]] = field(default_factory=dict)
    errors: dict[Part, ErrorCode] = field(default_factory=dict)
    session_id: int = 0
    epoch: int = 0

    def send(self, *, max_bytes: int = 1 << 20, wait_ms: int = 0, min_bytes: int = 1) -> None:
        cls = load_request_schema(1, self.version)
        whole = self.epoch == 0 or not self.sessions
        named = self.at if whole else {key: at for key, at in self.at.items() if self.told.get(key) != at}
        forgotten = [] if whole else [key for key in self.told if key not in self.at]
        self.told = dict(self.at)
        epoch = self.epoch if self.sessions else -1
        request = make(
            cls,
            replica_id=-1,
            max_wait=milliseconds(wait_ms),
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=0,
            session_id=self.session_id,
            session_epoch=epoch,
            topics=tuple(self._topic(nested(cls, "topics"), key, at) for key, at in named.items()),
            forgotten_topics_data=tuple(
                make(nested(cls, "forgotten_topics_data"), topic=stream.name, topic_id=stream.id, partitions=(index,))
                for stream, index in forgotten
            ),
            rack_id="",
        )
        self.client.send(1, self.version, request)

    def _topic(self, cls: Any, key: Part, at: int) -> Any:
        part = make(
            nested(cls, "partitions"),
            partition=key[1],
            fetch_offset=at,
            partition_max_bytes=1 << 20,
            current_leader_epoch=-1,
            last_fetched_epoch=-1,
            log_start_offset=-1,
        )
        return make(cls, topic=key[0].name, topic_id=key[0].id, partitions=(part,))

    async def take(self) -> Any:
        reply = await self.client.reply()
        if reply.error_code is not ErrorCode.none:
            self.epoch = 0
            return reply
        self.session_id, self.epoch = reply.session_id, self.epoch + 1 if reply.session_id else 0
        streams = {(stream.id if self.version >= 13 else stream.name, index): stream for stream, index in self.at}
        for topic in reply.responses:
            for part in topic.partitions:
                name = topic.topic_id if self.version >= 13 else topic.topic
                key = (streams[name, part.partition_index], part.partition_index)
                self.errors[key] = part.error_code
                for _, header in iter_batches(part.records):
                    self.read.setdefault(key, []).append(header.base_offset)
                    self.at[key] = header.next_offset
        return reply

    async def poll(self, **fields: Any) -> Any:
        self.send(**fields)
        return await self.take()


def parts_of(reply: Any) -> list[int]:
    return [part.partition_index for topic in reply.responses for part in topic.partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_from_first_to_last(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as producer:
            stream = await created(node, "s", partitions=3)
            consumer = Consumer(client, version, at={(stream, index): 0 for index in range(3)})
            await produced(producer, 3, stream, 1, batch(b"a"))
            assert parts_of(await consumer.poll()) == [0, 1, 2]
            assert consumer.session_id > 0
            assert parts_of(await consumer.poll()) == [], "nothing changed"
            await produced(producer, 3, stream, 2, batch(b"b"))
            reply = await consumer.poll()
            assert (parts_of(reply), reply.session_id) == ([2], consumer.session_id)
            del consumer.at[stream, 2]
            await consumer.poll()
            await produced(producer, 3, stream, 2, batch(b"c"))
            assert parts_of(await consumer.poll()) == [], "it was forgotten"
            assert node.metrics.fetch_sessions.partitions == 2
            consumer.epoch = -1
            assert (await consumer.poll()).session_id == 0
            assert node.metrics.fetch_sessions.sessions == 0

    run(body)


@pytest.mark.parametrize("seed", range(4))
def test_with_a_session_a_consumer_reads_what_it_reads_without(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def body() -> None:
        version = chance.choice(VERSIONS)
        async with running(tmp_path, {"max_fetch_sessions": 2}) as node, node.client() as producer:
            streams = [await created(node, name, partitions=3) for name in ("a", "b")]
            keys = [(stream, index) for stream in streams for index in range(3)]
            async with node.client() as one, node.client() as other:
                consumers = [Consumer(one, version), Consumer(other, version, sessions=False)]
                for _ in range(60):
                    await _something_happens(chance, producer, keys, consumers)
                    max_bytes = chance.choice([1, 300, 1 << 20])
                    for consumer in consumers:
                        await consumer.poll(max_bytes=max_bytes)
                for consumer in consumers:
                    consumer.at = {key: consumer.at.get(key, 0) for key in keys}
                    for _ in range(2 * len(keys) + 120):
                        await consumer.poll(max_bytes=1)
                with_session, without = consumers
                assert with_session.at == without.at == {key: _end(node, key) for key in keys}
                assert with_session.read == without.read
                assert node.metrics.fetch_sessions.incremental > 60

    run(body)


async def _something_happens(
    chance: random.Random, producer: Client, keys: list[Part], consumers: list[Consumer]
) -> None:
    key = chance.choice(keys)
    match chance.choice(["records", "records", "follow", "leave", "lose"]):
        case "records":
            await produced(producer, 3, *key, batch(b"x" * chance.randrange(1, 300)))
        case "follow":
            for consumer in consumers:
                consumer.at.setdefault(key, len(consumer.read.get(key, [])))
        case "leave":
            for consumer in consumers:
                consumer.at.pop(key, None)
        case "lose":
            consumers[0].epoch = 0


def _end(node: Running, key: Part) -> int:
    return int(node.broker.replicas.find(key[0].name, key[1]).high_watermark)


def test_a_busy_partition_does_not_starve_the_others(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as producer:
            stream = await created(node, "s", partitions=4)
            for index in range(4):
                for _ in range(3):
                    await produced(producer, 3, stream, index, batch(b"a" * 100))
            consumer = Consumer(client, 12, at={(stream, index): 0 for index in range(4)})
            order = []
            for _ in range(12):
                before = {key: list(offsets) for key, offsets in consumer.read.items()}
                await consumer.poll(max_bytes=1)
                order += [key[1] for key, offsets in consumer.read.items() if offsets != before.get(key, [])]
            # The first fetch is whole and moves nothing; from then on everybody has their turn.
            assert order == [0, 0, 1, 2, 3, 0, 1, 2, 3, 1, 2, 3]

    run(body)


def test_a_session_waits_for_records(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as producer:
            stream = await created(node, "s", partitions=2)
            consumer = Consumer(client, 12, at={(stream, 0): 0, (stream, 1): 0})
            await consumer.poll()
            consumer.send(wait_ms=40_000)
            await until(lambda: node.metrics.waiting_fetches)
            await produced(producer, 3, stream, 1, batch(b"a"))
            assert parts_of(await consumer.take()) == [1]
            assert consumer.read == {(stream, 1): [0]}

    run(body)


@pytest.mark.parametrize("version", [12, 18])
def test_streams_that_go_and_come_back(tmp_path: Path, version: int) -> None:
    """By name the new stream is the old one's heir; by id it is another, and the client is told to ask for metadata."""

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as producer:
            stream = await created(node, "s")
            consumer = Consumer(client, version, at={(stream, 0): 0})
            await consumer.poll()
            await node.broker.catalog.delete_stream("s")
            gone = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
            for _ in range(2):
                assert parts_of(await consumer.poll()) == [0], "an error is told each time"
                assert consumer.errors[stream, 0] is gone
            await produced(producer, 3, await created(node, "s"), 0, batch(b"a"))
            await consumer.poll()
            assert consumer.errors[stream, 0] is (gone if version >= 13 else ErrorCode.none)

    run(body)


def test_unknown_topic_ids(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await created(node, "s")
            stranger = Topic("s", uuid4())
            consumer = Consumer(client, 13, at={(stranger, 0): 0, (stream, 0): 0})
            await consumer.poll()
            assert list(consumer.errors.values()) == [ErrorCode.unknown_topic_id, ErrorCode.none]
            older = Consumer(client, 12, at={(stream, 0): 0}, session_id=consumer.session_id, epoch=1)
            assert (await older.poll()).error_code is ErrorCode.fetch_session_topic_id_error
            assert node.metrics.apis[1].errors["fetch_session_topic_id_error"] == 1

    run(body)


def test_errors_of_sessions_as_the_wire_has_them(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await created(node, "s")
            for session_id, epoch, error in (
                (7, 1, ErrorCode.fetch_session_id_not_found),
                (0, 1, ErrorCode.fetch_session_id_not_found),
            ):
                consumer = Consumer(client, 12, at={(stream, 0): 0}, session_id=session_id, epoch=epoch)
                reply = await consumer.poll()
                assert (reply.error_code, reply.session_id, reply.responses) == (error, 0, ())
            await consumer.poll()
            consumer.epoch = 5
            reply = await consumer.poll()
            assert reply.error_code is ErrorCode.invalid_fetch_session_epoch
            assert (await consumer.poll()).error_code is ErrorCode.none

    run(body)


def test_sessions_of_closed_connections_make_room(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, {"max_fetch_sessions": 1}) as node, node.client() as second:
            stream = await created(node, "s")
            async with node.client() as first:
                await Consumer(first, 12, at={(stream, 0): 0}).poll()
                declined = Consumer(second, 12, at={(stream, 0): 0})
                await declined.poll()
                assert declined.session_id == 0, "it goes on without a session"
            await until(lambda: node.metrics.connections == 1)
            await declined.poll()
            assert declined.session_id > 0
            assert (node.metrics.fetch_sessions.evictions, node.metrics.fetch_sessions.declined) == (1, 1)

    run(body)
