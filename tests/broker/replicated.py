"""Brokers of one test that replicate partitions: real brokers in one cluster, with peers in memory.

A broker of its own, the director, founds the cluster, is the only voter, and holds no partition: so the links between
the others can be cut, and they can be stopped, without anything else becoming different.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any, Final

import structlog
from tests.support.peers import MemoryNetwork
from tests.support.simulated import machine, replace_disk, run

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId, StreamName
from logboom.broker.broker import Broker
from logboom.broker.config import BrokerConfig
from logboom.broker.partition.replica import Partition
from logboom.metadata import Image, MetadataRecord, Stream
from logboom.metadata.assignment import Assignment, Eligibility, PartitionUpdate, decide
from logboom.metadata.membership import partitions_changed
from logboom.sim.disk import Chance, SimDisk
from logboom.storage import PartitionLog

LAG_MAX_MS: Final = 2_000
DIRECTOR: Final = 9


class Cluster:
    """See the module."""

    def __init__(self, path: Path, *, minimum: int = 2, **config: Any) -> None:
        self.path = path
        self.minimum = minimum
        self.config: dict[str, Any] = {
            "replica_lag_max_ms": LAG_MAX_MS,
            "auto_create_streams": False,
            "voters": 1,
            "groups": {"offsets_replication_factor": 1, "offsets_partitions": 1},
            **config,
        }
        self.network = MemoryNetwork()
        self.brokers: dict[int, Broker] = {}

    @property
    def image(self) -> Image:
        """The metadata as the controller has them."""
        return self[DIRECTOR].catalog.image

    def minimum_of(self, _: Stream) -> int:
        return self.minimum

    # --- brokers ------------------------------------------------------------------------------------------------

    async def start(self, broker_id: int, **config: Any) -> Broker:
        runtime, disk_of = machine()
        join = () if broker_id == DIRECTOR else (f"memory:{DIRECTOR}",)
        settings = {"data_dir": self.path / str(broker_id), "broker_id": broker_id, "join": join}
        broker = await Broker.start(
            BrokerConfig(**{**settings, **self.config, **config}),
            runtime=runtime,
            log=structlog.wrap_logger(structlog.testing.CapturingLogger()),
            open_disk=disk_of,
            peers=self.network.join(broker_id),
        )
        self.brokers[broker_id] = broker
        return broker

    async def stop(self, broker_id: int) -> None:
        """Stop a broker in good order; return when it is fenced."""
        broker = self.brokers.pop(broker_id)
        await broker.leave()
        await broker.stop()
        self.network.leave(broker_id)
        await until(lambda: self.image.brokers[BrokerId(broker_id)].fenced, f"broker {broker_id} is fenced")

    async def crash(self, broker_id: int, random: Chance) -> None:
        """The machine of a broker loses its power; what it does from now on is seen by nobody."""
        broker = self.brokers.pop(broker_id)
        self.network.leave(broker_id)
        left = self.disk(broker_id).power_cut(random)
        await broker.stop()
        replace_disk(str(self.path / str(broker_id)), left)
        await until(lambda: self.image.brokers[BrokerId(broker_id)].fenced, f"broker {broker_id} is fenced")

    def disk(self, broker_id: int) -> SimDisk:
        """The simulated disk of a broker."""
        _, disk_of = machine()
        disk = disk_of(str(self.path / str(broker_id)))
        assert isinstance(disk, SimDisk)
        return disk

    def __getitem__(self, broker_id: int) -> Broker:
        return self.brokers[broker_id]

    # --- metadata -----------------------------------------------------------------------------------------------

    async def take(self, records: Sequence[MetadataRecord]) -> None:
        """Commit records as the controller does; every broker that it can reach has applied them on return."""
        director = self[DIRECTOR].cluster
        await director.controller.in_order(partial(director.state.commit, records))
        await self._applied_everywhere()

    async def _applied_everywhere(self) -> None:
        index = self[DIRECTOR].cluster.state.applied_index
        for broker_id, broker in self.brokers.items():
            if self.network.passes(BrokerId(DIRECTOR), BrokerId(broker_id)) and broker.cluster.view.failure is None:
                await broker.cluster.state.applied(index)

    async def create(self, name: str, replicas: Sequence[int], partitions: int = 1, **config: str) -> Stream:
        settings = {"min.insync.replicas": str(self.minimum), **{key.replace("_", "."): v for key, v in config.items()}}
        stream = await self[DIRECTOR].catalog.create_stream(
            name, config=settings, assignments=[list(replicas)] * partitions
        )
        await self._applied_everywhere()
        return stream

    async def change(self, name: str, index: int, update: PartitionUpdate) -> None:
        """What a command of the controller does to one partition."""
        stream = self.image.by_name[StreamName(name)]
        rules = Eligibility(self.image.is_active, self.minimum)
        change = decide(index, stream.assignments[index], update, rules)
        if change is not None:
            await self.take(tuple(partitions_changed(stream, (change,))))

    async def elect(self, name: str, index: int, leader: int) -> None:
        """Make a broker the leader, and leave the ISR as it is."""
        before = self.assignment(name, index)
        isr = tuple(before.isr)
        await self.change(name, index, PartitionUpdate(leader=BrokerId(leader)))
        await self.change(name, index, PartitionUpdate(isr=isr))

    def assignment(self, name: str, index: int = 0) -> Assignment:
        return self.image.by_name[StreamName(name)].assignments[index]

    async def in_sync(self, name: str, index: int = 0) -> None:
        """Wait until every replica is in the ISR."""

        def all_in_sync() -> bool:
            now = self.assignment(name, index)
            return set(now.isr) == set(now.replicas)

        await until(all_in_sync, f"all replicas of {name}-{index} are in sync")

    # --- partitions ---------------------------------------------------------------------------------------------

    def partition(self, broker_id: int, name: str, index: int = 0) -> Partition:
        return self[broker_id].replicas.find(name, index)

    def leader(self, name: str, index: int = 0) -> Partition:
        return self.partition(self.assignment(name, index).leader, name, index)


@asynccontextmanager
async def cluster_of(path: Path, count: int, **how: Any) -> AsyncIterator[Cluster]:
    """A cluster of running brokers, which are stopped at the end."""
    cluster = Cluster(path, **how)
    try:
        for broker_id in (DIRECTOR, *range(1, count + 1)):
            await cluster.start(broker_id)
        yield cluster
    finally:
        for broker in reversed(cluster.brokers.values()):
            await broker.stop()


def on_brokers(
    count: int, **how: Any
) -> Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], Callable[[Path], None]]:
    """A test of a cluster of running brokers, in simulated time."""

    def decorate(body: Callable[[Cluster], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
        def test(tmp_path: Path) -> None:
            async def live() -> None:
                async with cluster_of(tmp_path, count, **how) as cluster:
                    await body(cluster)

            run(live)

        update_wrapper(test, body)
        del test.__dict__["__wrapped__"]  # pytest would look there for the fixtures
        return test

    return decorate


async def until(condition: Callable[[], bool], what: str = "", *, within_s: float = 60.0) -> None:
    """Wait for it."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never came to be: {what}") from None


async def stays(condition: Callable[[], bool], for_s: float) -> None:
    """It holds for so long, in simulated time."""
    for _ in range(20):
        assert condition()
        await asyncio.sleep(for_s / 20)


def bytes_of(log: PartitionLog) -> bytes:
    """All batches of a log."""
    found, offset = b"", log.log_start_offset
    while offset < log.written_end:
        read = log.reader.read_with_next_offset(offset, 1 << 20, ceiling=log.written_end)
        assert read is not None
        found += bytes(read[0])
        offset = read[1]
    return found


async def refusal_of(work: Awaitable[object]) -> LogboomError | None:
    """The error that it ends with."""
    try:
        await work
    except LogboomError as error:
        return error
    return None
