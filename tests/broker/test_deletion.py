"""Deleting a stream while a disk does not answer a read of it: nothing else waits for that read."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.broker.node import FaultyDisk, append, run, running, start, values_of

from logboom.base.errors import UnknownStreamError
from logboom.base.ids import Offset
from logboom.broker.broker import Broker

PATIENCE_S = 20.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FaultyDisk]:
    disk = FaultyDisk(str(tmp_path))
    try:
        yield disk
    finally:
        disk.release_reads()


async def with_orders(path: Path, disk: FaultyDisk) -> Broker:
    """A broker whose stream `orders` has a record that is not in memory."""
    async with running(path) as broker:
        await broker.catalog.create_stream("orders")
        await append(broker.replicas.find("orders", 0), b"old")
    return await start(path, open_disk=lambda root: disk)


async def hanging_read(broker: Broker, disk: FaultyDisk) -> "asyncio.Task[object]":
    """A read of that record that hangs until the disk is told to go on."""
    disk.hold_reads_of = "orders-0"
    read = asyncio.create_task(broker.replicas.find("orders", 0).reads.read(Offset(0), 1_000))
    await until(lambda: disk.reads_held > 0)
    return read


def set_aside(path: Path) -> list[Path]:
    return list((path / "streams").glob("*.deleted"))


def test_neither_the_deletion_nor_later_changes_wait_for_a_read(tmp_path: Path, disk: FaultyDisk) -> None:
    async def body() -> None:
        broker = await with_orders(tmp_path, disk)
        read = await hanging_read(broker, disk)
        async with asyncio.timeout(PATIENCE_S):
            await broker.catalog.delete_stream("orders")
            await broker.catalog.create_stream("other")
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            await append(partition, b"new")
        assert not read.done()
        assert set_aside(tmp_path), "its files stay while they are read"
        disk.release_reads()
        with pytest.raises(UnknownStreamError):
            await read
        await until(lambda: not set_aside(tmp_path))
        assert await values_of(partition) == [b"new"]
        await broker.stop()

    run(body)


def test_a_stop_leaves_what_is_still_read_to_the_next_start(tmp_path: Path, disk: FaultyDisk) -> None:
    async def body() -> None:
        broker = await with_orders(tmp_path, disk)
        read = await hanging_read(broker, disk)
        async with asyncio.timeout(PATIENCE_S):
            await broker.catalog.delete_stream("orders")
            await broker.stop()
        assert not read.done()
        assert set_aside(tmp_path)
        async with running(tmp_path) as again:
            assert again.catalog.stream("orders") is None
            assert not set_aside(tmp_path)
        disk.release_reads()
        with pytest.raises(UnknownStreamError):
            await read

    run(body)
