"""Fetches that wait: for bytes, for the time, for what happens to the partition; and never more than allowed."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, Running, batch, running, until
from tests.kafka.door import run as run_real
from tests.kafka.test_hot_apis import fetch_request, fetched, first_offsets, produced
from tests.support.simulated import run
from tests.support.waiting import WAIT_S

from logboom.kafka.wire.messages import milliseconds

LONG = milliseconds(40_000)


async def waiting(node: Running, client: Client, stream: Any, offsets: dict[int, int], **fields: Any) -> None:
    """Send a fetch and see it wait."""
    before = node.metrics.waiting_fetches
    client.send(1, 12, fetch_request(12, stream, offsets, **{"max_wait": LONG, **fields}))
    await until(lambda: node.metrics.waiting_fetches > before)


async def parts(client: Client) -> list[Any]:
    return list((await client.reply()).responses[0].partitions)


def test_records_end_the_wait(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as producer:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            await waiting(node, client, stream, {0: 0, 1: 0})
            await produced(producer, 3, stream, 1, batch(b"a"))
            empty, full = await parts(client)
            assert (empty.records, first_offsets(full.records)) == (b"", [0])
            assert node.metrics.waiting_fetches == 0
            assert not node.broker.replicas.find("s", 0)._leader.watchers

    run(body)


def test_the_time_ends_the_wait(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, {"max_fetch_wait_ms": 30}) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            await produced(client, 3, stream, 0, batch(b"a"))
            await waiting(node, client, stream, {0: 0}, min_bytes=1 << 20)
            (part,) = await parts(client)
            assert first_offsets(part.records) == [0], "what is there is given when the time is over"

    run(body)


def test_min_bytes_over_all_partitions(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as producer:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            one = batch(b"x" * 100)
            await produced(producer, 3, stream, 0, one)
            await waiting(node, client, stream, {0: 0, 1: 0}, min_bytes=3 * len(one))
            await produced(producer, 3, stream, 1, one)
            await producer.ask(18, 0)
            assert node.metrics.waiting_fetches == 1
            await produced(producer, 3, stream, 0, one)
            first, second = await parts(client)
            assert (first_offsets(first.records), first_offsets(second.records)) == ([0, 1], [0])

    run(body)


def test_growth_that_cannot_be_had_at_once_does_not_end_the_wait(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as producer:
            stream = await node.broker.catalog.create_stream("s")
            one = batch(b"x" * 100)
            await waiting(node, client, stream, {0: 0}, min_bytes=2 * len(one), partition_max_bytes=len(one))
            for _ in range(3):
                await produced(producer, 3, stream, 0, one)
            assert node.metrics.waiting_fetches == 1
            await node.broker.catalog.delete_stream("s")
            (part,) = await parts(client)
            assert part.error_code is ErrorCode.unknown_topic_or_partition

    run(body)


def test_what_waits_is_counted_with_its_elements_and_watches_each_partition_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as producer:
            stream = await node.broker.catalog.create_stream("s")
            request = fetch_request(12, stream, {0: 0}, max_wait=LONG)
            (topic,) = request.topics
            many = replace(request, topics=(replace(topic, partitions=topic.partitions * 500),))
            client.send(1, 12, many)
            await until(lambda: node.metrics.waiting_fetches)
            assert node.metrics.inflight_bytes > 500 * 256
            assert len(node.broker.replicas.find("s", 0)._leader.watchers) == 1
            await produced(producer, 3, stream, 0, batch(b"a"))
            assert [len(part.records) > 0 for part in await parts(client)] == [True] * 500
            assert node.metrics.inflight_bytes == 0

    run(body)


def test_a_fetch_of_nothing_does_not_wait(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            client.send(1, 12, fetch_request(12, stream, {}, max_wait=LONG, topics=()))
            assert (await client.reply()).responses == ()

    run(body)


def test_a_deleted_stream_ends_the_wait(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            await waiting(node, client, stream, {0: 0}, min_bytes=1 << 20)
            await node.broker.catalog.delete_stream("s")
            (part,) = await parts(client)
            assert part.error_code is ErrorCode.unknown_topic_or_partition

    run(body)


def test_an_error_is_not_waited_with(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            there, missing = await fetched(client, 12, stream, {0: 0, 3: 0}, max_wait=LONG, min_bytes=1 << 20)
            assert (there.error_code, missing.error_code) == (0, ErrorCode.unknown_topic_or_partition)

    run(body)


def test_a_closed_connection_waits_no_more(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node:
            stream = await node.broker.catalog.create_stream("s")
            async with node.client() as client:
                await waiting(node, client, stream, {0: 0})
            await until(lambda: not node.metrics.waiting_fetches)
            assert not node.broker.replicas.find("s", 0)._leader.watchers
            assert (node.metrics.inflight_requests, node.metrics.inflight_bytes) == (0, 0)

    run(body)


def test_there_are_never_more_waits_than_allowed(tmp_path: Path) -> None:
    async def body() -> None:
        limits = {"max_waiting_fetches": 1}
        async with running(tmp_path, limits) as node, node.client() as first, node.client() as second:
            stream = await node.broker.catalog.create_stream("s")
            await waiting(node, first, stream, {0: 0})
            (part,) = await fetched(second, 12, stream, {0: 0}, max_wait=LONG)
            assert (part.error_code, part.records) == (0, b"")
            await produced(second, 3, stream, 0, batch(b"a"))
            (part,) = await parts(first)
            assert first_offsets(part.records) == [0]

    run(body)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is in memory, and the disk answers when the event is set."""
    from logboom.storage.reading import LogReader

    ready = threading.Event()
    whole = LogReader.read_with_next_offset

    def read(self: Any, offset: Any, max_bytes: int, *, ceiling: Any, cached_only: bool = False) -> Any:
        if cached_only:
            return None
        assert ready.wait(WAIT_S)
        return whole(self, offset, max_bytes, ceiling=ceiling)

    monkeypatch.setattr(LogReader, "read_with_next_offset", read)
    return ready


@pytest.mark.uncompiled
def test_cold_reads_do_not_delay_other_reads(tmp_path: Path, cold: threading.Event) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as other:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            for index in range(2):
                await produced(other, 3, stream, index, batch(b"a"))
            client.send(1, 12, fetch_request(12, stream, {0: 0, 1: 0}, max_wait=LONG))
            await until(lambda: node.metrics.api(1).requests)
            await produced(other, 3, stream, 0, batch(b"b"))
            cold.set()
            first, second = await parts(client)
            assert first_offsets(first.records)[0] == 0
            assert first_offsets(second.records) == [0]

    run_real(body)


@pytest.mark.uncompiled
def test_a_cold_read_that_is_too_little_waits(tmp_path: Path, cold: threading.Event) -> None:
    async def body() -> None:
        cold.set()
        async with running(tmp_path) as node, node.client() as client, node.client() as other:
            stream = await node.broker.catalog.create_stream("s")
            one = batch(b"a")
            await produced(other, 3, stream, 0, one)
            await waiting(node, client, stream, {0: 0}, min_bytes=2 * len(one))
            await produced(other, 3, stream, 0, one)
            (part,) = await parts(client)
            assert first_offsets(part.records) == [0, 1]

    run(body)


@pytest.mark.uncompiled
def test_a_connection_may_close_in_the_middle_of_a_cold_read(tmp_path: Path, cold: threading.Event) -> None:
    async def body() -> None:
        async with running(tmp_path) as node:
            stream = await node.broker.catalog.create_stream("s")
            async with node.client() as client:
                await produced(client, 3, stream, 0, batch(b"a"))
                client.send(1, 12, fetch_request(12, stream, {0: 0}, max_wait=LONG))
                await until(lambda: node.metrics.inflight_requests)
            await until(lambda: not node.metrics.connections)
            cold.set()
            async with node.client() as client:
                (part,) = await fetched(client, 12, stream, {0: 0})
                assert first_offsets(part.records) == [0]
            assert node.metrics.failures == 0

    run_real(body)


def test_damage_answers_for_its_partition_alone(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            for index in range(2):
                await produced(client, 3, stream, index, batch(b"a" * 100))
            (segment,) = (tmp_path / "data" / "streams" / "s-0").glob("*.log")
            damaged = bytearray(segment.read_bytes())
            damaged[100] ^= 0xFF
            segment.write_bytes(damaged)
            bad, good = await fetched(client, 12, stream, {0: 0, 1: 0}, max_wait=LONG)
            assert (bad.error_code, bad.records) == (ErrorCode.kafka_storage_error, b"")
            assert first_offsets(good.records) == [0]

    run_real(body)
