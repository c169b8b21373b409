"""The metadata log: replay gives the same image whatever was compacted, and wherever the power went."""

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from uuid import UUID

import pytest
import structlog

from logboom.base.errors import DiskFullError, LogboomError, StorageError
from logboom.base.ids import ProducerId, StreamId, StreamName
from logboom.base.ports import Disk
from logboom.broker.disk.data_dir import METADATA_DIR
from logboom.broker.disk.flusher import Flusher
from logboom.broker.metadata_log import MetadataLog
from logboom.broker.metrics import Counters
from logboom.broker.runtime import Runtime
from logboom.host import SystemClock
from logboom.metadata import (
    BrokerConfigChanged,
    ClientQuotasChanged,
    Image,
    MetadataRecord,
    ProducerIdsAllocated,
    StreamConfigChanged,
    StreamCreated,
    StreamDeleted,
    apply_all,
)
from logboom.sim.disk import SimDisk

A, B = StreamId(UUID(int=1)), StreamId(UUID(int=2))
SNAPSHOT: tuple[MetadataRecord, ...] = ()
"""In a history: a snapshot is taken here."""

HISTORY: Sequence[tuple[MetadataRecord, ...]] = (
    (StreamCreated(name=StreamName("a"), id=A, partitions=2, config={}),),
    (StreamCreated(name=StreamName("b"), id=B, partitions=1, config={"segment.ms": "7"}),),
    (BrokerConfigChanged(broker="", config={"num.partitions": "3"}), ProducerIdsAllocated(next_id=ProducerId(1000))),
    SNAPSHOT,
    (StreamConfigChanged(id=A, config={"retention.ms": "5"}),),
    (StreamDeleted(id=B),),
    SNAPSHOT,
    (StreamConfigChanged(id=A, config={}),),
)


def opened(disk: Disk) -> tuple[MetadataLog, Image]:
    return MetadataLog.open(disk, METADATA_DIR, SystemClock(), lambda found: None)


def on_flusher(log: MetadataLog, work: Callable[[], Awaitable[None]]) -> None:
    """Run some work on the log with a flusher of its own."""

    async def body() -> None:
        flusher = Flusher(
            runtime=Runtime(),
            threads=1,
            counters=Counters(),
            log=structlog.wrap_logger(structlog.testing.CapturingLogger()),
            on_failure=lambda error: None,
            inline=False,
            staged_bytes_max=1 << 20,
        )
        log.attach(flusher)
        try:
            await work()
        finally:
            await flusher.stop()

    asyncio.run(asyncio.wait_for(body(), 60))


def live(disk: SimDisk) -> tuple[Image, Image]:
    """Go through the history until the disk fails: the image that was acked, and the one that was tried for last."""
    acked = tried = Image()
    log, _ = opened(disk)

    async def work() -> None:
        nonlocal acked, tried
        for records in HISTORY:
            if records is SNAPSHOT:
                await log.take_snapshot(acked)
            else:
                tried = apply_all(acked, records)
                await log.commit(records)
                acked = tried

    with contextlib.suppress(LogboomError):
        on_flusher(log, work)
    return acked, tried


def failing_at(disk: SimDisk, step: int) -> Callable[[], int]:
    """Let the disk fail from a step on; how many there were."""
    steps = 0

    def fault(operation: str, path: str) -> None:
        nonlocal steps
        if operation == "read":
            return
        steps += 1
        if steps >= step:
            raise OSError(errno.EIO, "crashed", path)

    disk.fault = fault
    return lambda: steps


def test_the_image_after_a_power_failure_at_every_step_is_what_was_acked() -> None:
    disk = SimDisk()
    opened(disk)
    count = failing_at(whole := disk.copy(), 1 << 30)
    acked, _ = live(whole)
    assert acked.by_id[A].overrides == {}
    assert count() > 20
    for step in range(1, count() + 1):
        crashing = disk.copy()
        failing_at(crashing, step)
        try:
            acked, tried = live(crashing)
        except (StorageError, OSError):  # already at the start
            acked = tried = Image()
        for seed in range(3):
            _, image = opened(crashing.power_cut(Random(seed)))
            assert image in (acked, tried), f"step {step}, seed {seed}"
            if B not in image.by_id and A in image.by_id and image.broker_configs:
                assert image.tombstones == (B,), f"step {step}, seed {seed}: its directory is still there"


def test_what_precedes_a_snapshot_is_read_over_even_where_the_start_was_forgotten() -> None:
    disk = SimDisk()
    acked, _ = live(disk)
    after = disk.copy()
    for name in [name for name in after.nodes if name.endswith("durable-end")]:
        after.unlink(name)
    log, image = opened(after)
    assert log.log.log_start_offset == 0
    assert image == acked
    log, image = opened(disk.copy())
    assert log.log.log_start_offset > 0
    assert image == acked
    assert image.tombstones == (B,)


def test_a_log_of_many_alterations_is_kept_in_proportion_to_what_is_alive() -> None:
    disk = SimDisk()
    log, image = opened(disk)
    changes = 3_000

    async def work() -> None:
        nonlocal image
        await log.commit(HISTORY[0])
        image = apply_all(image, HISTORY[0])
        for number in range(changes):
            record = StreamConfigChanged(id=A, config={"segment.ms": str(number + 1)})
            await log.commit((record,))
            image = apply_all(image, (record,))
            if log.is_long(image, records_min=100):
                await log.take_snapshot(image)

    on_flusher(log, work)
    again, replayed = opened(disk.copy())
    assert replayed == image
    assert again.log.log_end_offset > changes
    assert again.log.log_end_offset - again.log.log_start_offset < 200
    assert not again.is_long(replayed, records_min=200)


def test_a_snapshot_of_many_quotas_does_not_call_for_the_next_one() -> None:
    disk = SimDisk()
    log, image = opened(disk)
    quotas = tuple(
        ClientQuotasChanged(entity={"client-id": f"c{n}"}, quotas={"producer_byte_rate": 9.0}) for n in range(200)
    )

    async def work() -> None:
        await log.commit(quotas)
        full = apply_all(image, quotas)
        assert log.is_long(full, records_min=100) is False
        await log.take_snapshot(full)
        assert log.is_long(full, records_min=100) is False

    on_flusher(log, work)
    again, replayed = opened(disk.copy())
    assert again.is_long(replayed, records_min=100) is False


def test_without_room_for_a_snapshot_the_records_stay_and_commits_go_on() -> None:
    disk = SimDisk()
    log, _ = opened(disk)
    large = tuple(
        StreamCreated(name=StreamName(f"s{n}"), id=StreamId(UUID(int=n)), partitions=1, config={"segment.ms": "7" * 9})
        for n in range(1, 25_000)
    )
    image = apply_all(Image(), large)

    async def work() -> None:
        nonlocal image
        await log.commit(large)
        disk.capacity_bytes = sum(len(node.data) for node in disk.nodes.values())
        with pytest.raises(DiskFullError):
            await log.take_snapshot(image)
        more = (StreamDeleted(id=large[0].id),)
        await log.commit(more)
        image = apply_all(image, more)

    on_flusher(log, work)
    assert opened(disk.copy())[1] == image
