"""Old segments go as streams ask, and nothing that was promised goes with them."""

import asyncio
import random
import time
from pathlib import Path

import pytest
from tests.broker.node import FaultyDisk, append, append_soon, batch, running, values_of
from tests.broker.node import run as run_real
from tests.support.simulated import run
from tests.support.waiting import WAIT_S

from logboom.base.errors import OffsetOutOfRangeError, StorageError, UnknownStreamError
from logboom.base.ids import Offset
from logboom.broker.broker import Broker
from logboom.broker.partition.replica import Partition
from logboom.records import Record, build_batch

SMALL = {"segment.bytes": "16384"}
EVERY_S = 0.02
VALUE = bytes(5_000)


async def fill(partition: Partition, count: int, timestamp_ms: int = 1_000) -> None:
    for _ in range(count):
        await append(partition, VALUE, timestamp_ms=timestamp_ms)


async def until_start(partition: Partition, offset: int) -> None:
    while partition.log_start_offset < offset:
        await asyncio.sleep(0.01)


def log_files(path: Path, name: str = "orders-0") -> int:
    return len(list((path / "streams" / name).glob("*.log")))


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        ({"retention.bytes": "20000"}, 15),
        ({"logboom.retention.messages": "4"}, 15),
        ({"logboom.retention.messages": "6"}, 12),
        ({"retention.ms": "1000"}, 20),
        ({"retention.ms": "1000", "retention.bytes": "999999"}, 20),
    ],
)
def test_each_limit_lets_go_of_whole_segments(tmp_path: Path, settings: dict[str, str], start: int) -> None:
    async def body() -> None:
        async with running(tmp_path, retention_check_interval_s=EVERY_S) as broker:
            await broker.catalog.create_stream("orders", config=SMALL)
            partition = broker.replicas.find("orders", 0)
            await fill(partition, 20)
            await asyncio.sleep(5 * EVERY_S)
            assert partition.log_start_offset == 0, "without a limit everything stays"
            await broker.catalog.change_stream_config("orders", dict(settings))
            await until_start(partition, start)
            assert partition.log_start_offset == start
            assert len(await values_of(partition, start)) == 20 - start
            with pytest.raises(OffsetOutOfRangeError):
                await partition.reads.read(Offset(start - 1), 100)
            await append(partition, b"more")
        async with running(tmp_path) as broker:
            partition = broker.replicas.find("orders", 0)
            assert (partition.log_start_offset, partition.log_end_offset) == (start, 21)
            assert await values_of(partition, start) == [VALUE] * (20 - start) + [b"more"]

    run(body)


def test_records_that_are_young_enough_stay(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", config={**SMALL, "retention.ms": "3600000"})
            partition = broker.replicas.find("orders", 0)
            now_ms = int(time.time() * 1000)
            await fill(partition, 6, 1_000)
            await fill(partition, 6, now_ms)
            assert await partition.deletion.enforce_retention(partition.config) == 2
            assert partition.log_start_offset == 6
            assert await partition.deletion.enforce_retention(partition.config) == 0
            assert log_files(tmp_path) == 2

    run_real(body)


def test_defaults_of_the_broker_apply_but_not_to_its_own_streams(tmp_path: Path) -> None:
    async def body() -> None:
        defaults = {"retention_ms": "1s", "segment_bytes": "16KiB"}
        async with running(tmp_path, retention_check_interval_s=EVERY_S, stream_defaults=defaults) as broker:
            own = broker.replicas.find("__consumer_offsets", 0)
            await append_soon(own, build_batch([Record(Offset(0), 1_000, b"key", b"old")]))
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            await fill(partition, 1)
            await until_start(partition, 1)
            assert own.log_start_offset == 0
            await broker.catalog.change_stream_config("orders", {"retention.ms": "-1"})
            await fill(partition, 1)
            await asyncio.sleep(5 * EVERY_S)
            assert partition.log_start_offset == 1

    run(body)


def test_clients_delete_committed_records_and_no_others(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", config=SMALL)
            partition = broker.replicas.find("orders", 0)
            await fill(partition, 7)
            assert await partition.deletion.delete_records(2) == 2
            assert await partition.deletion.delete_records(1) == 2, "what is gone is gone"
            assert log_files(tmp_path) == 3
            assert await partition.deletion.delete_records(4) == 4
            assert log_files(tmp_path) == 2
            for offset in (8, -2):
                with pytest.raises(OffsetOutOfRangeError):
                    await partition.deletion.delete_records(offset)
            assert await partition.deletion.delete_records(-1) == 7
            assert await values_of(partition, 7) == []
            await partition.deletion.enforce_retention(partition.config)
            assert (log_files(tmp_path), partition.log.size_bytes) == (1, 0), "the last segment goes as well"
            await append(partition, b"next")
            assert await values_of(partition, 7) == [b"next"]

    run_real(body)


def test_what_is_committed_without_a_sync_can_be_deleted_too(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, background_sync_interval_s=60) as broker:
            await broker.catalog.create_stream("orders", config={"logboom.flush": "none"})
            partition = broker.replicas.find("orders", 0)
            await fill(partition, 2)
            assert partition.log.durable_end == 0
            assert await partition.deletion.delete_records(-1) == 2
            assert partition.log.durable_end == 2

    run(body)


def test_nothing_is_deleted_on_a_disk_that_failed(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            await append(partition, b"a")
            disk.break_sync("orders-0")
            with pytest.raises(StorageError):
                await append(partition, b"b")
            disk.mend()
            with pytest.raises(StorageError):
                await partition.deletion.delete_records(1)
            assert await values_of(partition) == [b"a"]

    run(body)


def test_a_stream_that_is_deleted_meanwhile_ends_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", config={**SMALL, "retention.ms": "1"})
            partition = broker.replicas.find("orders", 0)
            await fill(partition, 8)
            both = asyncio.gather(
                partition.deletion.enforce_retention(partition.config),
                broker.catalog.delete_stream("orders"),
                return_exceptions=True,
            )
            first, second = await both
            assert isinstance(first, int | UnknownStreamError)
            assert second is None

    run(body)


def test_settings_of_the_disk_are_honoured_while_it_runs(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            await fill(partition, 4)
            assert log_files(tmp_path) == 1
            await broker.catalog.change_stream_config("orders", {"segment.bytes": "16384"})
            await fill(partition, 4)
            assert log_files(tmp_path) == 3
            await broker.catalog.change_stream_config("orders", {"segment.bytes": None, "segment.ms": "1"})
            async with asyncio.timeout(WAIT_S):
                while log_files(tmp_path) == 3:
                    await fill(partition, 1)
            assert log_files(tmp_path) == 4
            tried = await broker.catalog.change_stream_config("orders", {"segment.ms": "7"}, validate_only=True)
            assert tried.overrides == {"segment.ms": "1"}

    run_real(body)


async def race(broker: Broker, chance: random.Random) -> None:
    """Writers, readers and deletion at once: what is read is right, what is gone says so."""
    partition = broker.replicas.find("orders", 0)
    stop = asyncio.Event()

    async def write() -> None:
        for n in range(250):
            await append_soon(partition, batch(b"%d" % n + bytes(2_000), timestamp_ms=1_000))
        stop.set()

    async def delete() -> None:
        while not stop.is_set():
            end = partition.high_watermark
            await partition.deletion.delete_records(chance.randint(partition.log_start_offset, end))
            await partition.deletion.enforce_retention(partition.config)

    async def read() -> None:
        while not stop.is_set():
            # Simulated time stands still while the readers work: some ten reads for each sync, rather than a thousand.
            await asyncio.sleep(chance.random() / 10_000)
            offset = chance.randint(0, partition.log_end_offset)
            try:
                values = await values_of(partition, offset, 4_000)
            except OffsetOutOfRangeError:
                continue
            assert [int(value.split(b"\0")[0]) for value in values if value] == list(
                range(offset, offset + len(values))
            )
            found = await partition.reads.offset_for_time(500)
            assert found is None or found.offset <= partition.log_end_offset
            await partition.reads.max_timestamp()

    await asyncio.gather(write(), delete(), read(), read())


@pytest.mark.parametrize("seed", range(3))
def test_deletion_beside_readers_and_writers(tmp_path: Path, seed: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", config={**SMALL, "logboom.retention.messages": "40"})
            await race(broker, random.Random(seed))
            assert broker.replicas.find("orders", 0).log_end_offset == 250

    run(body)
