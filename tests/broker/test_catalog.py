"""The way of a change of metadata: one at a time, to its end, and followed by everything that depends on it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
import structlog
from tests.broker.node import FaultyDisk, append, run, running, start, values_of

from logboom.base.dynamic import Current, DynamicSettings
from logboom.base.errors import StorageError, UnknownStreamError
from logboom.base.ids import BrokerId
from logboom.broker.catalog import Catalog
from logboom.broker.config import BrokerConfig
from logboom.broker.metrics import Counters
from logboom.host import SystemIds
from logboom.metadata import Image, ImageDelta, MetadataRecord


class MemoryLog:
    """A commit port in memory that wants a snapshot after so many commits."""

    def __init__(self, long_after: int) -> None:
        self.commits = self.snapshots = 0
        self._long_after = long_after

    async def commit(self, records: Sequence[MetadataRecord]) -> None:
        await asyncio.sleep(0)
        self.commits += 1

    def is_long(self, image: Image, records_min: int) -> bool:
        return self.commits == self._long_after

    async def take_snapshot(self, image: Image) -> int:
        for _ in range(20):  # turns of the loop, as writing takes
            await asyncio.sleep(0)
        self.snapshots += 1
        return len(list(image.snapshot()))


class NoReplicas:
    """A follower without partitions."""

    async def prepare(self, delta: ImageDelta) -> None:
        assert not delta.grown

    async def abandon(self, delta: ImageDelta) -> None:
        raise AssertionError

    async def apply(self, delta: ImageDelta) -> None:
        await asyncio.sleep(0)


def test_drain_waits_for_the_snapshot_that_the_last_change_starts() -> None:
    async def body() -> None:
        port = MemoryLog(long_after=3)
        log = structlog.wrap_logger(structlog.testing.CapturingLogger())
        catalog = Catalog(
            Image(),
            port,
            broker_id=BrokerId(1),
            config=Current(BrokerConfig()),
            dynamic_settings=DynamicSettings(log.error),
            ids=SystemIds(),
            counters=Counters(),
            log=log,
        )
        catalog.attach(NoReplicas())
        changes = [asyncio.create_task(catalog.allocate_producer_ids(5)) for _ in range(3)]
        await asyncio.sleep(0)
        await catalog.drain()
        assert (port.commits, port.snapshots) == (3, 1)
        assert [await change for change in changes] == [range(5), range(5, 10), range(10, 15)]

    run(body)


def test_a_stop_right_after_a_change_of_settings_ends_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        broker = await start(tmp_path, checkpoint_interval_s=3_600, retention_check_interval_s=3_600)
        change = asyncio.create_task(broker.catalog.change_broker_config("1", {"log.retention.ms": "1000000"}))
        await asyncio.sleep(0)
        await broker.stop()
        await change

    run(body)


def test_a_change_goes_on_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            create = asyncio.create_task(broker.catalog.create_stream("orders", partitions=3))
            await asyncio.sleep(0)
            create.cancel()
            with pytest.raises(asyncio.CancelledError):
                await create
            await broker.catalog.drain()
            for index in range(3):
                await append(broker.replicas.find("orders", index), b"a")

    run(body)


def test_what_was_prepared_for_a_commit_that_failed_is_undone(tmp_path: Path) -> None:
    """Directories come before the commit: without it neither the stream nor a directory may be left."""

    async def body() -> None:
        disks: list[FaultyDisk] = []

        def open_disk(root: str) -> FaultyDisk:
            disks.append(FaultyDisk(root))
            return disks[-1]

        async with running(tmp_path, open_disk=open_disk) as broker:
            await broker.catalog.create_stream("kept")
            version = broker.catalog.image.version
            disks[0].fill("metadata/")
            with pytest.raises(StorageError):
                await broker.catalog.create_stream("lost", partitions=2)
            disks[0].mend()
            assert broker.catalog.image.version == version
            assert broker.catalog.stream("lost") is None
            with pytest.raises(UnknownStreamError):
                broker.replicas.find("lost", 0)
            assert not list((tmp_path / "streams").glob("lost-*"))
            await broker.catalog.create_stream("lost", partitions=2)
            await append(broker.replicas.find("lost", 1), b"a")
        async with running(tmp_path) as broker:
            assert await values_of(broker.replicas.find("lost", 1)) == [b"a"]

    run(body)


def test_producer_ids_of_many_callers_differ_and_cost_one_record_a_block(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, producer_id_block=10) as broker:
            commits = broker.counters.metadata_commits
            given = await asyncio.gather(*(broker.producer_ids.allocate() for _ in range(95)))
            assert sorted(given) == list(range(95))
            assert broker.counters.metadata_commits - commits == 10
        async with running(tmp_path, producer_id_block=10) as broker:
            assert await broker.producer_ids.allocate() == 100

    run(body)
