"""A file system that is really full (a small tmpfs; needs the right to mount one)."""

import asyncio
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.node import append, run, start, values_of

from logboom.base.errors import DiskFullError
from logboom.broker.partition.replica import Partition

pytestmark = pytest.mark.usefixtures("both_ways")

WRITES = 600


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    target = tmp_path / "small"
    target.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(target)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small file system to fill: {mounted.stderr.strip()}")
    yield target
    subprocess.run(["umount", "--lazy", str(target)], check=True)


def test_a_full_disk_loses_nothing_that_was_acked_and_writing_resumes_by_itself(small_disk: Path) -> None:
    async def body() -> None:
        broker = await start(small_disk, checkpoint_interval_s=1)
        await broker.catalog.create_stream("ballast")
        for _ in range(3):
            await append(broker.replicas.find("ballast", 0), os.urandom(900_000))
        await broker.catalog.create_stream("orders", partitions=2)
        partitions = [broker.replicas.find("orders", n) for n in range(2)]
        chance = random.Random(7)
        acked: list[list[bytes]] = [[], []]
        refused = 0
        for number in range(WRITES):
            value = chance.randbytes(chance.choice((50, 500, 5_000, 50_000)))
            try:
                await append(partitions[number % 2], value)
                acked[number % 2].append(value)
            except DiskFullError:
                refused += 1
        assert refused
        for _ in range(3):  # checkpoints meet the full disk too
            await asyncio.sleep(0.5)
        assert broker.health.log_dir().failure is None
        with pytest.raises(DiskFullError):
            await broker.catalog.create_stream("more")
        assert await broker.producer_ids.allocate() == 0  # room for metadata was kept
        assert [await values_of(partition) for partition in partitions] == acked
        await broker.catalog.delete_stream("ballast")
        for index in range(2):
            await _append_when_there_is_room(partitions[index], b"again" * 1000)
            acked[index].append(b"again" * 1000)
        await broker.stop()
        broker = await start(small_disk)
        for index in range(2):
            assert await values_of(broker.replicas.find("orders", index)) == acked[index]
        await broker.stop()

    run(body)


async def _append_when_there_is_room(partition: Partition, value: bytes) -> None:
    """A deleted stream's files go in the background."""
    while True:
        try:
            await append(partition, value)
            return
        except DiskFullError:
            await asyncio.sleep(0.01)
