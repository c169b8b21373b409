"""Random lives of a broker with a compacted stream, in simulated time: writes, tombstones, changed settings, full
disks, stops, kills and power failures; the table that the stream makes is what was written, after each step.
"""

import asyncio
import random
from typing import Any

import pytest
from tests.broker.node import append_soon, disk_after, start
from tests.support.simulated import run

from logboom.base.errors import DiskFullError, InvalidRecordError
from logboom.base.ids import Offset, ProducerEpoch, ProducerId
from logboom.broker.broker import Broker
from logboom.broker.partition.replica import Partition
from logboom.records import Codec, Record, build_batch, iter_batches, iter_records
from logboom.sim.disk import SimDisk

STEPS = 80
KEYS = 12
PARTITIONS = 2
CONFIG = {"cleanup.policy": "compact", "segment.bytes": "16384", "delete.retention.ms": "1000"}
SETTINGS: dict[str, tuple[str | None, ...]] = {
    "cleanup.policy": ("compact", "compact", "compact,delete", "delete"),
    "min.cleanable.dirty.ratio": ("0", "0.3", "0.9"),
    "min.compaction.lag.ms": ("0", "500"),
    "delete.retention.ms": ("0", "5000", "100000"),
    "compression.type": ("producer", "zstd", "uncompressed", "lz4"),
    "segment.bytes": ("16384", "40000"),
    "max.message.bytes": (None, "20000"),
}

Written = tuple[bytes, bytes | None]


class Life:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimDisk()
        self.broker: Broker
        self.numbers = 0
        self.sequences = [0] * PARTITIONS
        self.tables: list[dict[bytes, bytes | None]] = [{} for _ in range(PARTITIONS)]
        """What was acked last of each key."""
        self.pending: list[list[Written] | None] = [None] * PARTITIONS
        """A batch that was not acked: its producer repeats it until it is."""
        self.ends = [0] * PARTITIONS

    async def begin(self) -> None:
        self.broker = await start(
            "/data",  # type: ignore[arg-type]
            open_disk=lambda _: self.disk,
            inline_flush=False,
            cleaner={"backoff_ms": 20, "max_io_bytes_per_s": self.chance.choice((None, 100_000, 1_000_000))},
        )

    def partition(self, index: int) -> Partition:
        return self.broker.replicas.find("table", index)

    def batch_of(self, index: int, written: list[Written]) -> bytearray:
        now_ms = self.broker.clock.wall_ms()
        return build_batch(
            [Record(Offset(n), now_ms, key, value) for n, (key, value) in enumerate(written)],
            codec=self.chance.choice(list(Codec)),
            producer_id=ProducerId(index),
            producer_epoch=ProducerEpoch(0),
            base_sequence=self.sequences[index],
        )

    def next_batch(self) -> list[Written]:
        written: list[Written] = []
        for _ in range(self.chance.randint(1, 8)):
            self.numbers += 1
            key = b"key-%d" % self.chance.randrange(KEYS)
            deleted = self.chance.random() < 0.2
            written.append((key, None if deleted else b"%d " % self.numbers + bytes(self.chance.randrange(400))))
        return written

    async def append(self, index: int) -> None:
        written = self.pending[index] = self.pending[index] or self.next_batch()
        try:
            await append_soon(self.partition(index), self.batch_of(index, written))
        except DiskFullError:
            return
        self.acked(index, written)

    def acked(self, index: int, written: list[Written]) -> None:
        self.tables[index].update(written)
        self.sequences[index] += len(written)
        self.pending[index] = None

    async def write(self) -> None:
        for _ in range(self.chance.randint(1, 12)):
            await asyncio.gather(*(self.append(index) for index in range(PARTITIONS)))
        if self.chance.random() < 0.2:
            with pytest.raises(InvalidRecordError):
                await append_soon(self.partition(0), build_batch([Record(Offset(0), 0, None, b"x")]))

    async def change(self) -> None:
        name = self.chance.choice(list(SETTINGS))
        await self.broker.catalog.change_stream_config("table", {name: self.chance.choice(SETTINGS[name])})
        if name == "cleanup.policy":  # records without a key would be taken, and are for other tests
            await self.broker.catalog.change_stream_config("table", {name: self.chance.choice(SETTINGS[name][:3])})

    async def end(self, how: str) -> None:
        """Stop, kill or cut the power at some moment while appends and perhaps a compaction are under way."""
        for index in range(PARTITIONS):
            written = self.pending[index] = self.pending[index] or self.next_batch()
            sent = append_soon(self.partition(index), self.batch_of(index, written))
            sent.add_done_callback(lambda future: future.cancelled() or future.exception())
        await asyncio.sleep(self.chance.choice((0, 0.001, 0.01, 0.05)))
        self.disk = await disk_after(how, self.broker, self.disk, self.chance)
        await self.begin()

    async def check(self) -> None:
        for index in range(PARTITIONS):
            partition = self.partition(index)
            found, offsets = await table_of(partition)
            assert offsets == sorted(set(offsets))
            assert partition.log_end_offset >= self.ends[index], "the end never goes back"
            self.ends[index] = partition.log_end_offset
            expected = live(self.tables[index])
            after = live({**self.tables[index], **dict(self.pending[index] or ())})
            assert found in (expected, after), f"partition {index}"

    async def live(self) -> None:
        await self.begin()
        await self.broker.catalog.create_stream("table", partitions=PARTITIONS, config=CONFIG)
        compactions = 0
        for _ in range(STEPS):
            match self.chance.randrange(14):
                case 0:
                    self.disk.capacity_bytes = used(self.disk) + self.chance.choice((0, 5_000, 30_000))
                    await self.write()
                    await asyncio.sleep(1)
                    self.disk.capacity_bytes = 1 << 40
                case 1 | 2:
                    await self.change()
                case 3 | 4 | 5:
                    compactions += self.broker.counters.compactions
                    await self.end(self.chance.choice(("stop", "kill", "power")))
                case 6 | 7:
                    await asyncio.sleep(self.chance.choice((0.1, 1, 10)))
                case _:
                    await self.write()
            await self.check()
            assert not self.broker.cleaner.state.uncleanable
        assert compactions + self.broker.counters.compactions > 0
        await self.broker.stop()


def live(table: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in table.items() if value is not None}


def used(disk: SimDisk) -> int:
    return disk.capacity_bytes - disk.free_bytes


async def table_of(partition: Partition) -> tuple[dict[bytes, bytes], list[int]]:
    table: dict[Any, Any] = {}
    offsets, offset = list[int](), partition.log_start_offset
    while data := await partition.reads.read(offset, 50_000):
        for position, header in iter_batches(data):
            for record in iter_records(data, position, header, 1 << 26):
                table[record.key] = record.value
                offsets.append(record.offset)
            offset = header.next_offset
    return live(table), offsets


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_random_life_keeps_the_table(seed: int) -> None:
    """`Life.check` asserts after each step that the latest of each key is there."""
    run(Life(seed).live, seed=seed)
