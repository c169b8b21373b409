"""A broker reads and checks all of its logs in the background, as slowly as it may, and damage is not kept."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.broker.node import append, running, values_of
from tests.broker.replicated import Cluster, bytes_of, cluster_of, stays, until
from tests.support.simulated import machine, run

from logboom.base.errors import StorageError
from logboom.base.ids import Offset
from logboom.broker.broker import Broker
from logboom.broker.disk.data_dir import METADATA_DIR
from logboom.broker.partition.replica import Partition
from logboom.sim.disk import SimDisk

SMALL = {"segment.bytes": "16384"}
VALUE = bytes(5_000)
EVERY_S = 20
EVERY = {"interval_ms": EVERY_S * 1_000}


async def filled(broker: Broker, name: str = "orders", count: int = 20) -> Partition:
    await broker.catalog.create_stream(name, config=SMALL)
    partition = broker.replicas.find(name, 0)
    for _ in range(count):
        await append(partition, VALUE)
    return partition


def disk_of(path: Path) -> SimDisk:
    disk = machine()[1](str(path))
    assert isinstance(disk, SimDisk)
    return disk


def flip(disk: SimDisk, partition: Partition, segment: int = 1, position: int = 700) -> None:
    """Turn a bit of a batch; a broker that has it open sees it too."""
    disk.nodes[partition.log.segments[segment].path].flip(8 * position)


def sizes(partitions: Iterable[Partition]) -> int:
    return sum(one.log.size_bytes for one in partitions)


def test_a_pass_reads_everything_within_its_interval(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, scrubber=EVERY) as broker:
            await filled(broker)
            await filled(broker, "payments", 3)
            await until(lambda: broker.scrubber.state.last_ended_ms > 0, "the pass that began before there was a log")
            begun, before = asyncio.get_running_loop().time(), broker.counters.scrubbed_bytes
            await until(lambda: broker.scrubber.state.done_ratio >= 0.5, "half of it is read")
            took_s = asyncio.get_running_loop().time() - begun
            assert 0.2 * EVERY_S < took_s < 0.8 * EVERY_S
            last = broker.scrubber.state.last_ended_ms
            await until(lambda: broker.scrubber.state.last_ended_ms > last, "all of it is read", within_s=EVERY_S)
            assert broker.counters.scrubbed_bytes - before == sizes(broker.replicas)
            assert broker.counters.scrub_damages == 0

    run(body)


def test_no_more_is_read_in_a_second_than_is_allowed(tmp_path: Path) -> None:
    async def body() -> None:
        slow = {"interval_ms": 1_000, "max_io_bytes_per_s": "64KiB"}
        async with running(tmp_path, scrubber=slow) as broker:
            partition = await filled(broker, count=100)
            await append(partition, VALUE)
            await until(lambda: broker.counters.scrubbed_bytes > 0, "it has begun")
            loop = asyncio.get_running_loop()
            begun_s, before = loop.time(), broker.counters.scrubbed_bytes
            await until(lambda: broker.counters.scrubbed_bytes >= before + partition.log.size_bytes, "all is read")
            assert partition.log.size_bytes / (loop.time() - begun_s) < 80 * 1024

    run(body)


def test_it_can_be_switched_off_and_on_while_the_broker_runs(tmp_path: Path) -> None:
    """Nothing is read while it is off; all of it, once it is on."""

    async def body() -> None:
        async with running(tmp_path, scrubber={"interval_ms": None}) as broker:
            await filled(broker)
            await stays(lambda: broker.counters.scrubbed_bytes == 0, 200.0)
            await broker.catalog.change_broker_config("", {"logboom.scrubber.interval.ms": "1000"})
            await until(lambda: broker.counters.scrubbed_bytes >= sizes(broker.replicas), "it is read")

    run(body)


def test_a_broker_that_is_restarted_goes_on_where_it_was(tmp_path: Path) -> None:
    """However short it runs each time, a pass comes to its end, and what was read is not read from the start again."""

    async def body() -> None:
        async with running(tmp_path, scrubber={"interval_ms": 400_000}) as broker:
            await filled(broker, count=200)
            size_bytes = sizes(broker.replicas)
        read_bytes = 0
        for _ in range(12):
            async with running(tmp_path, scrubber={"interval_ms": 400_000}) as broker:
                await asyncio.sleep(40)
                ended_ms = broker.scrubber.state.last_ended_ms
                read_bytes += broker.counters.scrubbed_bytes
        assert ended_ms > 0
        assert read_bytes < 3 * size_bytes

    run(body)


def test_damage_on_a_broker_that_is_alone_is_told_and_everything_else_stays(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, scrubber=EVERY) as broker:
            partition = await filled(broker)
            flip(disk_of(tmp_path), partition)
            await until(lambda: broker.counters.scrub_damages > 0, "it is found", within_s=3 * EVERY_S)
            assert broker.counters.scrub_damages == 1
            base = partition.log.segments[1].base
            with pytest.raises(StorageError, match="is damaged at byte"):
                await partition.reads.read(base, 10)
            assert len(await values_of(partition, base + 1)) == 19 - base
            assert await partition.reads.read(Offset(0), 1)

    run(body)


@pytest.mark.parametrize("broker", [1, 2], ids=["leader", "follower"])
@pytest.mark.parametrize("segment", [0, -1], ids=["closed", "last"])
def test_a_damaged_copy_is_fetched_anew_before_anybody_reads_it(tmp_path: Path, broker: int, segment: int) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3, scrubber=EVERY) as cluster:
            await cluster.create("orders", (1, 2, 3), segment_bytes="16384")
            for _ in range(20):
                await append(cluster.leader("orders"), VALUE)
            await cluster.in_sync("orders")
            before = cluster.assignment("orders").partition_epoch
            flip(cluster.disk(broker), cluster.partition(broker, "orders"), segment)
            await until(lambda: cluster.assignment("orders").partition_epoch > before, "it is told", within_s=150.0)
            await alike(cluster)
            assert cluster.leader("orders").high_watermark == 20

    run(body)


async def alike(cluster: Cluster) -> None:
    await cluster.in_sync("orders")
    logs = [cluster.partition(one, "orders").log for one in (1, 2, 3)]
    await until(lambda: len({bytes_of(log) for log in logs}) == 1, "all copies are the same")


def test_a_stream_that_is_deleted_meanwhile_ends_its_turn(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, scrubber=EVERY) as broker:
            await filled(broker)
            await filled(broker, "payments")
            await until(lambda: broker.scrubber.state.done_ratio > 0, "it reads", within_s=2 * EVERY_S)
            await broker.catalog.delete_stream("orders")
            await filled(broker)
            await broker.catalog.delete_stream("payments")
            last = broker.scrubber.state.last_ended_ms
            await until(lambda: broker.scrubber.state.last_ended_ms > last, "the pass ends", within_s=2 * EVERY_S)
            assert broker.counters.scrub_damages == 0

    run(body)


def test_a_broken_position_begins_a_new_pass(tmp_path: Path) -> None:
    async def body() -> None:
        disk = disk_of(tmp_path)
        async with running(tmp_path, scrubber=EVERY) as broker:
            await filled(broker)
        for garbage in (b"", b"LBSC" + bytes(60)):
            file = disk.open("scrub", create=True)
            file.truncate(0)
            file.write(0, [garbage])
            async with running(tmp_path, scrubber=EVERY) as broker:
                await until(lambda: broker.scrubber.state.last_ended_ms > 0, "a pass ends", within_s=2 * EVERY_S)
                assert broker.counters.scrubbed_bytes >= sizes(broker.replicas)

    run(body)


@pytest.mark.parametrize("what", ["log", "snapshot"])
def test_damage_in_the_metadata_is_reported_while_it_is_still_in_memory(tmp_path: Path, what: str) -> None:
    async def body() -> None:
        async with running(tmp_path, scrubber={"interval_ms": 1_000}) as broker:
            await filled(broker, count=1)
            await until(lambda: broker.scrubber.state.last_ended_ms > 0, "one pass")
            assert broker.counters.scrub_damages == 0
            disk = disk_of(tmp_path)
            (path,) = (
                path
                for path in disk.nodes
                if path.startswith(METADATA_DIR) and (path.endswith(".log") if what == "log" else path.endswith(what))
            )
            disk.nodes[path].flip(8 * 30)
            await until(lambda: broker.counters.scrub_damages > 0, "it is found")
            await broker.catalog.create_stream("goes-on")
            disk.nodes[path].flip(8 * 30)

    run(body)
