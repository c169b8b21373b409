"""Lives of a replicated cluster under a seed: brokers crash, links break, leaders change, disks fill up. Whatever was
acked is there in the end, at the offset it was acked with, and all copies are the same."""

import asyncio
import contextlib
import errno
from pathlib import Path
from random import Random

import pytest
from tests.broker.node import append_soon, batch, values_of
from tests.broker.replicated import DIRECTOR, Cluster, bytes_of, until
from tests.support.simulated import run
from tests.support.waiting import WAIT_S

from logboom.base.errors import LogboomError, NotEnoughReplicasError, NotLeaderError
from logboom.base.ids import Offset
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.waiters import AppendResult
from logboom.metadata.reassignment import reassign

BROKERS = (1, 2, 3, 4)
PARTITIONS = 3
STEPS = 60


class Life:
    """One life."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(path, inline_flush=seed % 2 == 0, replica_fetch_wait_ms=200)
        self.acked: list[tuple[int, int, bytes]] = []
        """Partition, offset and value of each record that was acked."""
        self.shown: dict[int, list[bytes | None]] = {index: [] for index in range(PARTITIONS)}
        """The longest log that a reader has seen, by partition."""
        self.sent = 0
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def alive(self) -> list[int]:
        return [number for number in self.cluster.brokers if number != DIRECTOR]

    # --- what may happen ----------------------------------------------------------------------------------------

    async def produce(self) -> None:
        for _ in range(self.random.randint(1, 8)):
            index = self.random.randrange(PARTITIONS)
            leader = self.cluster.assignment("orders", index).leader
            broker = leader if self.random.random() < 0.8 and leader in self.alive else self.random.choice(self.alive)
            with contextlib.suppress(LogboomError):
                partition = self.cluster.partition(broker, "orders", index)
                self.sent += 1
                value = b"%d-" % self.sent + b"x" * self.random.randint(0, 2_000)
                task = asyncio.ensure_future(self._acked(index, value, append_soon(partition, batch(value))))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    async def _acked(self, index: int, value: bytes, appended: "asyncio.Future[AppendResult]") -> None:
        with contextlib.suppress(LogboomError):
            result = await appended
            self.acked.append((index, result.base_offset, value))

    async def read(self) -> None:
        """Readers of any copy see what readers of any other have seen, or more of it."""
        index, broker = self.random.randrange(PARTITIONS), self.random.choice(self.alive)
        with contextlib.suppress(LogboomError):
            seen = await values_of(self.cluster.partition(broker, "orders", index))
            known = self.shown[index]
            both = min(len(seen), len(known))
            assert seen[:both] == known[:both], f"copies of orders-{index} show different records"
            if len(seen) > len(known):
                self.shown[index] = seen

    async def cut(self) -> None:
        self.cluster.network.cut(*self.random.sample(BROKERS, 2))

    async def heal(self) -> None:
        self.cluster.network.heal()

    async def crash(self) -> None:
        if len(self.alive) > 2:
            await self.cluster.crash(self.random.choice(self.alive), self.random)

    async def stop(self) -> None:
        if len(self.alive) > 2:
            await self.cluster.stop(self.random.choice(self.alive))

    async def restart(self) -> None:
        for broker in BROKERS:
            if broker not in self.alive and self.random.random() < 0.5:
                self.cluster.network.heal()  # a broker starts once it has found the controller
                await self.cluster.start(broker)

    async def elect(self) -> None:
        index = self.random.randrange(PARTITIONS)
        candidates = [one for one in self.cluster.assignment("orders", index).isr if one in self.alive]
        if candidates:
            await self.cluster.elect("orders", index, self.random.choice(candidates))

    async def lease(self) -> None:
        """A broker cannot reach the controller: it loses its lease, and then what it leads."""
        self.cluster.network.cut(self.random.choice(self.alive), DIRECTOR)
        await asyncio.sleep(2 * self.random.random())

    async def move(self) -> None:
        index = self.random.randrange(PARTITIONS)
        replicas = self.random.sample(BROKERS, 3)
        await self.cluster.take(reassign(self.cluster.image, "orders", index, replicas, self.cluster.minimum_of))

    async def fill(self) -> None:
        broker = self.random.choice(self.alive)
        disk = self.cluster.disk(broker)

        def full(operation: str, path: str) -> None:
            if operation in ("write", "allocate") and "orders" in path:
                raise OSError(errno.ENOSPC, "no room", path)

        disk.fault = full
        await asyncio.sleep(self.random.random())
        disk.fault = lambda operation, path: None

    # --- its end ------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        cluster, random = self.cluster, self.random
        for broker in (DIRECTOR, *BROKERS):
            await cluster.start(broker)
        await cluster.create("orders", [1, 2, 3], partitions=PARTITIONS, segment_bytes="16384")
        happenings = [self.produce] * 12 + [self.read] * 4 + [self.cut, self.heal, self.restart] * 2
        happenings += [self.crash, self.stop, self.elect, self.lease, self.lease, self.move, self.fill]
        for _ in range(STEPS):
            await random.choice(happenings)()
            await asyncio.sleep(random.random() * 0.3)
        await self._become_whole()
        await self._check()

    async def _become_whole(self) -> None:
        cluster = self.cluster
        cluster.network.heal()
        for broker in BROKERS:
            if broker not in self.alive:
                await cluster.start(broker)
        for index in range(PARTITIONS):
            await cluster.in_sync("orders", index)
            leader = await self._append_last(index)
            end = leader.log_end_offset

            def is_shown(index: int = index, end: Offset = end) -> bool:
                """By all that are replicas now: a move may end meanwhile."""
                replicas = cluster.assignment("orders", index).replicas
                return all(cluster.partition(one, "orders", index).high_watermark == end for one in replicas)

            await until(is_shown, "all is shown")
        while self.tasks:
            await asyncio.wait(self.tasks, timeout=60)

    async def _append_last(self, index: int) -> Partition:
        """Append one more record, where the leader may be changing still; the leader."""
        async with asyncio.timeout(WAIT_S):
            while True:
                leader = self.cluster.leader("orders", index)
                with contextlib.suppress(NotLeaderError, NotEnoughReplicasError):
                    await append_soon(leader, batch(b"last"))
                    return leader
                await asyncio.sleep(0.05)

    async def _check(self) -> None:
        for index in range(PARTITIONS):
            assignment = self.cluster.assignment("orders", index)
            logs = [self.cluster.partition(one, "orders", index).log for one in assignment.replicas]
            contents = [bytes_of(log) for log in logs]
            assert all(content == contents[0] for content in contents), f"copies of orders-{index} differ"
            assert len({log.epochs.entries for log in logs}) == 1
        for index, offset, value in self.acked:
            leader = self.cluster.leader("orders", index)
            found = await leader.reads.read(Offset(offset), 1)
            assert value in bytes(found), f"{value[:12]!r} was acked at {index}:{offset}, and is gone"


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", range(8))
def test_what_was_acked_is_there_in_the_end_and_all_copies_are_the_same(tmp_path: Path, seed: int) -> None:
    life: list[Life] = []

    async def body() -> None:
        life.append(Life(tmp_path, seed))
        try:
            await life[0].live()
        finally:
            for broker in reversed(life[0].cluster.brokers.values()):
                await broker.stop()

    run(body, seed=seed)
    assert len(life[0].acked) > 5, "something was acked at all"
