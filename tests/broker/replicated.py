"""Brokers of one test that replicate partitions: real shells, peers in memory, and a controller that is one object.

The controller keeps one image and runs the metadata's commands on it; each broker commits the same records to its own
metadata log, one after the other, as a follower of the group does.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import structlog
from tests.support.peers import MemoryNetwork
from tests.support.simulated import machine, replace_disk

from logboom.base.errors import LogboomError, StorageError
from logboom.base.ids import BrokerEpoch, BrokerId, DirectoryId, PartitionIndex, StreamId, StreamName
from logboom.broker.broker import Broker
from logboom.broker.config import BrokerConfig
from logboom.broker.partition.replica import Partition
from logboom.broker.peers import PeerUnavailableError
from logboom.broker.replication.ports import ClusterPorts
from logboom.metadata import Image, MetadataRecord, Stream, StreamCreated, apply_all
from logboom.metadata.assignment import Assignment, Eligibility, PartitionUpdate, decide
from logboom.metadata.leadership import IsrProposal, change_isr
from logboom.metadata.membership import Registration, fence, partitions_changed, register, unfence
from logboom.metadata.placement import start
from logboom.metadata.records import Placed
from logboom.sim.disk import SimDisk
from logboom.storage import PartitionLog

LAG_MAX_MS = 2_000


class Member:
    """One broker of the cluster, and what the controller is to it."""

    def __init__(self, cluster: "Cluster", broker_id: BrokerId) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.epoch: BrokerEpoch | None = None
        self.applied = 0
        self.broker: Broker | None = None
        self.lost: list[tuple[StreamId, PartitionIndex]] = []

    async def change_isr(self, proposals: Sequence[IsrProposal]) -> list[LogboomError | None]:
        if self.cluster.controller_is_away or self.epoch is None:
            raise PeerUnavailableError("the controller does not answer")
        results: list[LogboomError | None] = []
        for proposal in proposals:
            try:
                records = change_isr(self.cluster.image, self.id, self.epoch, proposal, self.cluster.minimum_of)
            except LogboomError as error:
                results.append(error)
                continue
            await self.cluster.take(records)
            results.append(None)
        return results

    async def replicas_lost(self, lost: Sequence[tuple[StreamId, PartitionIndex]]) -> None:
        self.lost += lost
        for stream_id, index in lost:
            stream = self.cluster.image.by_id[stream_id]
            update = PartitionUpdate(wiped=frozenset({self.id}))
            await self.cluster.change(stream.name, index, update)


class Cluster:
    """See the module."""

    def __init__(self, path: Path, *, minimum: int = 2, **config: Any) -> None:
        self.path = path
        self.minimum = minimum
        self.config: dict[str, Any] = {"replica_lag_max_ms": LAG_MAX_MS, "auto_create_streams": False, **config}
        self.network = MemoryNetwork()
        self.image = Image()
        self.history: list[MetadataRecord] = []
        self.members: dict[BrokerId, Member] = {}
        self.controller_is_away = False
        self._taking = asyncio.Lock()
        self._starts = 0

    def minimum_of(self, _: Stream) -> int:
        return self.minimum

    # --- brokers ------------------------------------------------------------------------------------------------

    async def start(self, broker_id: int, *, unfenced: bool = True, **config: Any) -> Broker:
        member = self.members.setdefault(BrokerId(broker_id), Member(self, BrokerId(broker_id)))
        runtime, disk_of = machine()
        self._starts += 1
        ports = ClusterPorts(
            peers=self.network.join(broker_id), isr=member, losses=member, own_epoch=lambda: member.epoch
        )
        member.epoch = None
        broker = await Broker.start(
            BrokerConfig(data_dir=self.path / str(broker_id), broker_id=broker_id, **{**self.config, **config}),
            runtime=runtime,
            log=structlog.wrap_logger(structlog.testing.CapturingLogger()),
            open_disk=disk_of,
            cluster=ports,
        )
        member.broker = broker
        await self._catch_up(member)
        wanted = Registration(member.id, DirectoryId(str(broker_id)), str(self._starts), {})
        records = register(self.image, wanted, self.minimum_of)
        member.epoch = self.image.next_broker_epoch
        await self.take(records)
        if unfenced:
            await self.unfence(broker_id)
        return broker

    async def unfence(self, broker_id: int) -> None:
        member = self.members[BrokerId(broker_id)]
        assert member.epoch is not None
        await self.take(unfence(self.image, member.id, member.epoch, self.minimum_of))

    async def fence(self, broker_id: int) -> None:
        await self.take(fence(self.image, BrokerId(broker_id), self.minimum_of))

    async def stop(self, broker_id: int) -> None:
        """The process ends; the controller fences it."""
        member = self.members[BrokerId(broker_id)]
        broker, member.broker = member.broker, None
        assert broker is not None
        self.network.leave(broker_id)
        await broker.stop()
        await self.fence(broker_id)

    async def crash(self, broker_id: int, random: Random) -> None:
        """The machine of a broker loses its power; what it does from now on is seen by nobody."""
        member = self.members[BrokerId(broker_id)]
        async with self._taking:  # no metadata is on its way to its disk
            broker, member.broker, member.epoch = member.broker, None, None
            assert broker is not None
            self.network.leave(broker_id)
            left = self.disk(broker_id).power_cut(random)
        await broker.stop()
        replace_disk(str(self.path / str(broker_id)), left)
        await self.fence(broker_id)

    def disk(self, broker_id: int) -> SimDisk:
        """The simulated disk of a broker."""
        _, disk_of = machine()
        disk = disk_of(str(self.path / str(broker_id)))
        assert isinstance(disk, SimDisk)
        return disk

    def __getitem__(self, broker_id: int) -> Broker:
        broker = self.members[BrokerId(broker_id)].broker
        assert broker is not None, f"broker {broker_id} does not run"
        return broker

    # --- metadata -----------------------------------------------------------------------------------------------

    async def take(self, records: Sequence[MetadataRecord]) -> None:
        """Commit records; every broker has applied them on return."""
        if not records:
            return
        async with self._taking:
            self.image = apply_all(self.image, records)
            self.history += records
            for member in self.members.values():
                await self._catch_up(member)

    async def _catch_up(self, member: Member) -> None:
        records = self.history[member.applied :]
        if member.broker is not None and records:
            member.applied += len(records)
            with contextlib.suppress(StorageError):  # a broker whose disk failed follows no more
                await member.broker.catalog._commit(records)

    async def create(self, name: str, replicas: Sequence[int], partitions: int = 1, **config: str) -> Stream:
        placed = Placed.of(start(tuple(map(BrokerId, replicas)), self.image.brokers))
        settings = {"min.insync.replicas": str(self.minimum), **{key.replace("_", "."): v for key, v in config.items()}}
        record = StreamCreated(
            name=StreamName(name),
            id=StreamId(UUID(int=len(self.history) + 1)),
            partitions=partitions,
            config=settings,
            placed=(placed,) * partitions,
        )
        await self.take((record,))
        return self.image.by_name[StreamName(name)]

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
        for broker_id in range(1, count + 1):
            await cluster.start(broker_id)
        yield cluster
    finally:
        for member in cluster.members.values():
            if member.broker is not None:
                await member.broker.stop()


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
