"""What was just read serves all who ask for it, and they get what the log would give them."""

import random
from pathlib import Path

import pytest
from tests.broker.node import append, running
from tests.support.simulated import run

from logboom.base.errors import OffsetOutOfRangeError, UnknownStreamError
from logboom.base.ids import Offset
from logboom.broker.broker import Broker
from logboom.broker.partition import read_cache
from logboom.broker.partition.replica import Partition
from logboom.records import read_header


@pytest.mark.parametrize("seed", range(4))
def test_a_shared_read_is_what_the_log_gives(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def body() -> None:
        async with running(tmp_path, shared_read_bytes=4_000) as broker:
            await broker.catalog.create_stream("s", partitions=2, config={"segment.bytes": "20000"})
            partitions = [broker.replicas.find("s", index) for index in range(2)]
            for _ in range(400):
                await _something_happens(chance, broker, chance.choice(partitions))
            assert broker.counters.reads_shared > 20
            assert broker.counters.reads_ahead > 5

    run(body)


async def _something_happens(chance: random.Random, broker: Broker, partition: Partition) -> None:
    start, end = partition.log_start_offset, partition.high_watermark
    match chance.choice(["append", "read", "read", "read", "follow", "delete"]):
        case "append":
            await append(partition, *[b"x" * chance.randrange(1, 200)] * chance.randrange(1, 4))
        case "delete":
            if chance.random() < 0.2:
                await partition.deletion.delete_records(chance.randint(start, end))
        case "follow":
            offset, max_bytes = Offset(chance.randint(start, end)), chance.choice([1, 1_000])
            for _ in range(4):
                _agrees(partition, offset, max_bytes)
                partition.reads.read_ahead(offset, max_bytes)
                data = partition.log.reader.read(offset, max_bytes, ceiling=end)
                offset = Offset(offset + sum(1 for _ in data or b"")) if not data else read_header(data).next_offset
        case "read":
            for _ in range(2):
                _agrees(partition, Offset(chance.randint(max(start - 2, 0), end + 2)), chance.choice([1, 1_000]))
    assert broker._read_cache.held_bytes <= 4_000


def _agrees(partition: Partition, offset: Offset, max_bytes: int) -> None:
    try:
        expected = partition.log.reader.read(offset, max_bytes, ceiling=partition.high_watermark)
    except OffsetOutOfRangeError:
        with pytest.raises(OffsetOutOfRangeError):
            partition.reads.read_cached(offset, max_bytes)
    else:
        found = partition.reads.read_cached(offset, max_bytes)
        assert found is not None
        assert expected is not None
        assert bytes(found) == bytes(expected)


def test_consumers_that_read_the_same_share_one_read(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("s")
            partition = broker.replicas.find("s", 0)
            await append(partition, b"a")
            reads = [partition.reads.read_cached(Offset(0), 1_000) for _ in range(1_000)]
            assert all(data is reads[0] for data in reads)
            assert (broker.counters.reads_cached, broker.counters.reads_shared) == (1, 999)
            await append(partition, b"b")
            after = partition.reads.read_cached(Offset(0), 1_000)
            assert after is not None
            assert reads[0] is not None
            assert len(after) > len(reads[0]), "a read that the high-water mark had ended goes on to the new one"

    run(body)


def test_a_reader_that_goes_on_finds_the_next_read_ready(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("s")
            partition = broker.replicas.find("s", 0)
            for n in range(5):
                await append(partition, b"%d" % n)
            partition.reads.read_cached(Offset(0), 1)
            partition.reads.read_ahead(Offset(0), 1)
            assert broker.counters.reads_ahead == 0, "the first read says nothing of what will follow"
            partition.reads.read_cached(Offset(1), 1)
            partition.reads.read_ahead(Offset(1), 1)
            assert broker.counters.reads_ahead == 1
            partition.reads.read_ahead(Offset(1), 1)
            assert broker.counters.reads_ahead == 1, "it is there"
            partition.reads.read_cached(Offset(2), 1)
            assert (broker.counters.reads_cached, broker.counters.reads_shared) == (2, 1)

    run(body)


def test_a_deleted_stream_is_not_served_from_the_cache(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("s")
            partition = broker.replicas.find("s", 0)
            await append(partition, b"a")
            partition.reads.read_cached(Offset(0), 1)
            await broker.catalog.delete_stream("s")
            with pytest.raises(UnknownStreamError):
                partition.reads.read_cached(Offset(0), 1)
            assert broker._read_cache.held_bytes == 0

    run(body)


def test_reads_that_are_not_repeated_leave_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        import asyncio

        monkeypatch.setattr(read_cache, "GENERATION_S", 0.005)
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("s")
            partition = broker.replicas.find("s", 0)
            await append(partition, b"a")
            partition.reads.read_cached(Offset(0), 1)
            assert broker._read_cache.held_bytes > 0
            while broker._read_cache.held_bytes or broker._read_cache._timer is not None:
                await asyncio.sleep(0.002)

    run(body)


def test_a_single_reader_holds_few_bytes_in_the_cache(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("s")
            partition = broker.replicas.find("s", 0)
            for _ in range(20):
                await append(partition, b"a" * 1_000)
            for offset in range(20):
                partition.reads.read_cached(Offset(offset), 1)
                partition.reads.read_ahead(Offset(offset), 1)
                assert broker._read_cache.held_bytes < 3 * 1_100

    run(body)


def test_a_cache_of_size_zero_keeps_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, shared_read_bytes=0) as broker:
            await broker.catalog.create_stream("s")
            partition = broker.replicas.find("s", 0)
            await append(partition, b"a")
            first, second = (partition.reads.read_cached(Offset(0), 1) for _ in range(2))
            assert first is not None
            assert first == second
            assert broker.counters.reads_shared == 0

    run(body)
