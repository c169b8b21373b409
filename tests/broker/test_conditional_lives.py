"""Random lives of a broker with writers that race for the keys of a compacted stream, in simulated time.

Each writer knows what it has read, which may be long ago, and sends conditional puts and deletions; some send without a
condition. Stops, kills, power failures, full disks and compactions come between. Whatever happens,
no put that was taken has overwritten a record that its writer did not know, and none that was refused is in the log.
"""

import asyncio
import random
from dataclasses import dataclass

import pytest
from tests.broker.conditions import Put, put, puts
from tests.broker.node import append_soon, disk_after, start
from tests.support.simulated import run

from logboom.base.errors import ConditionFailedError, DiskFullError
from logboom.base.ids import Offset
from logboom.broker.broker import Broker
from logboom.broker.partition.replica import Partition
from logboom.records import Codec, Record, iter_batches, iter_records
from logboom.sim.disk import SimDisk

STEPS = 60
WRITERS = 4
KEYS = 5
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "delete.retention.ms": "200",
    "min.cleanable.dirty.ratio": "0.1",
}
NOTHING = -1
FREE = -2
"""What a put expects that has no condition."""


@dataclass
class Sent:
    """A put that was sent, until it is answered."""

    key: bytes
    value: bytes | None
    expected: int
    read_to: int | None
    codec: Codec
    knows_all: bool
    """Whether its writer had read to the end when it was sent first, and nobody else wrote meanwhile."""


class Writer:
    """An idempotent producer, and what it has read."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sequence = 0
        self.view: dict[bytes, tuple[int, bool]] = {}
        """Of each key the offset of its latest record, and whether it has a value."""
        self.read_to = 0
        self.pending: Sent | None = None


class Life:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimDisk()
        self.broker: Broker
        self.writers = [Writer(number) for number in range(WRITERS)]
        self.numbers = 0
        self.written: dict[int, tuple[bytes, bytes | None, int]] = {}
        """Key, value and expected offset of what was acked, by its offset."""
        self.refused: set[bytes] = set()
        self.taken = self.lost = 0

    async def begin(self) -> None:
        self.broker = await start(
            "/data",  # type: ignore[arg-type]
            open_disk=lambda _: self.disk,
            inline_flush=False,
            cleaner={"backoff_ms": 20},
        )

    @property
    def partition(self) -> Partition:
        return self.broker.replicas.find("table", 0)

    # --- writers ------------------------------------------------------------------------------------------------

    async def read(self, writer: Writer) -> None:
        """Read on from where the writer is to the end."""
        for record in await self.records_from(writer.read_to):
            assert record.key is not None
            if record.offset >= writer.read_to:
                writer.view[record.key] = (record.offset, record.value is not None)
        writer.read_to = self.partition.high_watermark

    async def records_from(self, offset: int) -> list[Record]:
        records: list[Record] = []
        while data := await self.partition.reads.read(Offset(offset), 10_000):
            for position, header in iter_batches(data):
                records += iter_records(data, position, header, 1 << 26)
                offset = header.next_offset
        return records

    def next_put(self, writer: Writer, *, knows_all: bool) -> Sent:
        chance, key = self.chance, b"key-%d" % self.chance.randrange(KEYS)
        self.numbers += 1
        value = None if chance.random() < 0.2 else b"%d " % self.numbers + bytes(chance.randrange(300))
        offset, has_value = writer.view.get(key, (NOTHING, False))
        expected = offset if has_value or (offset >= 0 and chance.random() < 0.5) else NOTHING
        read_to = writer.read_to if expected == NOTHING or chance.random() < 0.7 else None
        if expected == NOTHING and chance.random() < 0.2:
            read_to = None
        if chance.random() < 0.1:
            expected, read_to = FREE, None
        return Sent(key, value, expected, read_to, chance.choice(list(Codec)), knows_all)

    def batch_of(self, writer: Writer, sent: Sent) -> bytearray:
        condition: Put = put(sent.key, sent.value)
        if sent.expected != FREE:
            condition = put(sent.key, sent.value, sent.expected, sent.read_to)
        return puts([condition], codec=sent.codec, producer=(writer.number, 0, writer.sequence))

    async def send(self, writer: Writer, *, knows_all: bool = False) -> None:
        sent = writer.pending = writer.pending or self.next_put(writer, knows_all=knows_all)
        try:
            offset = (await append_soon(self.partition, self.batch_of(writer, sent))).base_offset
        except DiskFullError:
            sent.knows_all = False
            return
        except ConditionFailedError as error:
            if sent.knows_all:
                raise AssertionError("its writer knew all there was") from error
            self.lost += 1
            if sent.value is not None:
                self.refused.add(sent.value)
        else:
            self.taken += 1
            self.written[offset] = (sent.key, sent.value, sent.expected)
            writer.sequence += 1
            if self.chance.random() < 0.5:  # it need not read what it has written
                writer.view[sent.key] = (offset, sent.value is not None)
        writer.pending = None

    # --- what happens -------------------------------------------------------------------------------------------

    async def race(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            for writer in self.writers:
                if self.chance.random() < 0.5:
                    await self.read(writer)
            await asyncio.gather(*(self.send(writer) for writer in self.writers))

    async def write_knowing_all(self) -> None:
        """One writer reads to the end and writes while nobody else does: that must be taken."""
        for writer in self.writers:
            while writer.pending is not None:
                await self.send(writer)
        for writer in self.chance.sample(self.writers, 2):
            await self.read(writer)
            await self.send(writer, knows_all=True)

    async def pass_time(self) -> None:
        await asyncio.sleep(self.chance.choice((0.05, 0.3, 1)))

    async def fill_up(self) -> None:
        self.disk.capacity_bytes -= self.disk.free_bytes
        await asyncio.gather(*(self.send(writer) for writer in self.writers))
        self.disk.capacity_bytes = 1 << 40

    async def end(self, how: str) -> None:
        for writer in self.writers:
            sent = writer.pending = writer.pending or self.next_put(writer, knows_all=False)
            future = append_soon(self.partition, self.batch_of(writer, sent))
            future.add_done_callback(lambda one: one.cancelled() or one.exception())
        await asyncio.sleep(self.chance.choice((0, 0.0005, 0.001, 0.01)))
        self.disk = await disk_after(how, self.broker, self.disk, self.chance)
        await self.begin()

    # --- what must hold -----------------------------------------------------------------------------------------

    async def check(self) -> None:
        records = await self.records_from(0)
        for record in records:
            assert record.value not in self.refused, f"{record.key!r} at {record.offset} was refused"
            assert not record.headers, "a condition was stored"
        found = {int(record.offset): record for record in records}
        before: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value, expected) in sorted(self.written.items()):
            if offset in found:
                assert (found[offset].key, found[offset].value) == (key, value)
            at, value_before = before.get(key, (NOTHING, None))
            unknown = expected != FREE and (expected < at if value_before is not None else NOTHING != expected < at)
            assert not unknown, f"{key!r} at {offset} expected {expected} and replaced {at}"
            before[key] = (offset, value)
        for key, (offset, value) in before.items():
            latest = max((record.offset for record in records if record.key == key), default=NOTHING)
            assert latest >= offset or value is None, f"{key!r} at {offset} was acked and is gone"


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", range(6))
def test_no_put_replaces_a_record_that_its_writer_did_not_know(seed: int) -> None:
    life = Life(seed)

    async def body() -> None:
        await life.begin()
        await life.broker.catalog.create_stream("table", config=dict(CONFIG))
        steps = [life.race, life.race, life.write_knowing_all, life.pass_time, life.fill_up]
        for _ in range(STEPS):
            if life.chance.random() < 0.15:
                await life.end(life.chance.choice(("stop", "kill", "power")))
            else:
                await life.chance.choice(steps)()
            await life.check()
        await life.broker.stop()
        assert min(life.taken, life.lost) > 50

    run(body)
