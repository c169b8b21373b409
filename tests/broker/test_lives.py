"""Random lives of a broker: appends, retries, full disks, restarts and kills; what was promised holds after each."""

import asyncio
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.broker.node import FaultyDisk, append_soon, batch, run, start, values_of

from logboom.base.errors import DiskFullError
from logboom.broker.broker import Broker

STEPS = 60
PARTITIONS = 2


@dataclass
class Producer:
    """An idempotent producer of one partition: it repeats what was not acked until it is, as clients do."""

    id: int
    partition: int
    sequence: int = 0
    acked: list[bytes] = field(default_factory=list)

    def next_batch(self) -> tuple[bytes, bytearray]:
        value = b"%d:%d:" % (self.id, self.sequence) + bytes(700)
        return value, batch(value, producer=(self.id, 0, self.sequence))


class Life:
    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.chance = root, random.Random(seed)
        self.producers = [Producer(n, n % PARTITIONS) for n in range(4)]
        self.moves = 0
        self.path = root / "0"
        self.disk: FaultyDisk
        self.broker: Broker

    async def begin(self) -> None:
        self.disk = FaultyDisk(str(self.path))
        self.broker = await start(self.path, open_disk=lambda _: self.disk)

    async def append(self) -> None:
        """Several producers at once, one batch each; some send theirs twice, as after a lost connection."""
        chosen = self.chance.sample(self.producers, self.chance.randint(1, len(self.producers)))
        sent = []
        for producer in chosen:
            partition = self.broker.replicas.find("orders", producer.partition)
            value, records = producer.next_batch()
            copies = [append_soon(partition, bytearray(records)) for _ in range(self.chance.choice((1, 1, 2)))]
            sent.append((producer, value, copies))
        for producer, value, copies in sent:
            results = await asyncio.gather(*copies, return_exceptions=True)
            for result in results:
                assert not isinstance(result, BaseException) or isinstance(result, DiskFullError), result
            if not isinstance(results[-1], BaseException):
                producer.sequence += 1
                producer.acked.append(value)

    async def restart(self) -> None:
        self.disk.mend()
        await self.broker.stop()
        await self.begin()

    async def kill(self) -> None:
        """Go on in a copy that was taken while appends were under way."""
        self.moves += 1
        target = self.root / str(self.moves)
        for producer in self.producers:
            _, records = producer.next_batch()
            append_soon(self.broker.replicas.find("orders", producer.partition), records).add_done_callback(
                lambda future: future.exception()
            )
        await asyncio.sleep(0)
        await asyncio.to_thread(self._copy, target)
        self.disk.mend()
        await self.broker.stop()
        self.path = target
        await self.begin()

    def _copy(self, target: Path) -> None:
        with self.disk.standstill:
            shutil.copytree(self.path, target)

    async def check(self) -> None:
        for index in range(PARTITIONS):
            stored = await values_of(self.broker.replicas.find("orders", index))
            assert len(stored) == len(set(stored)), "nothing twice"
            for producer in self.producers:
                if producer.partition == index:
                    mine = [value for value in stored if value is not None and value.startswith(b"%d:" % producer.id)]
                    # One batch more than was acked may be there: the one that is under way.
                    assert mine[: len(producer.acked)] == producer.acked
                    assert len(mine) <= len(producer.acked) + 1

    async def live(self) -> None:
        await self.begin()
        await self.broker.catalog.create_stream("orders", partitions=PARTITIONS, config={"segment.bytes": "16384"})
        for _ in range(STEPS):
            await self.append()
            match self.chance.randrange(12):
                case 0:
                    self.disk.fill(self.chance.choice(("streams/orders-0", "streams/orders", ".log", ".index")))
                case 1 | 2:
                    self.disk.mend()
                case 3:
                    await self.restart()
                case 4:
                    await self.kill()
            await self.check()
        self.disk.mend()
        await self.broker.stop()


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", range(6))
def test_a_random_life_keeps_every_promise(tmp_path: Path, seed: int) -> None:
    """`Life.check` asserts after each step that all that was acked is there, once and in order."""
    run(Life(tmp_path, seed).live)
