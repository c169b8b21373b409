"""Gives the partitions of this broker the roles that the image assigns.

Roles change in this order: a role that ends is ended at once (`Role.rest`); then the logs that are to lead are synced
to their ends, all of them together; then they lead. If the disk is full, records that are only staged are dropped for
that: no leader counts on them. What cannot be led even so is tried again for as long as the image says that this broker
leads it.

A role is taken only once the image knows this process. Before that, what it says of this broker's leaderships concerns
an earlier process, and two processes must not write in one leader epoch.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import RetriableStorageError
from logboom.base.ids import BrokerEpoch, BrokerId
from logboom.broker.assignments import Following, Wanted, is_registered, wanted_role
from logboom.broker.disk.log_manager import PartitionKey
from logboom.broker.group_commit import GroupCommit
from logboom.broker.partition.leader import Leading
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import ReplicaKey
from logboom.metadata import Image
from logboom.storage import PartitionLog

_RETRY_S: Final = 0.5
_PARTITIONS_PER_TURN: Final = 200
"""Roles that are taken before the loop gets another turn."""


class RoleKeeper:
    """See the module. Life: that of the replicas. On the loop."""

    def __init__(
        self,
        partitions: Mapping[PartitionKey, Partition],
        broker_id: BrokerId,
        *,
        flusher: GroupCommit,
        own_epoch: Callable[[], BrokerEpoch | None],
        lost: Container[ReplicaKey],
        changing: asyncio.Lock,
        log: FilteringBoundLogger,
    ) -> None:
        """`lost`: replicas that take no role, because they do not have their records. `changing` is held by whoever
        calls `follow`, and by the keeper itself when it tries again."""
        self.image = Image()
        """What roles are taken from."""
        self._partitions = partitions
        self._broker_id = broker_id
        self._flusher = flusher
        self._own_epoch = own_epoch
        self._lost = lost
        self._changing = changing
        self._log = log
        self._unled: set[PartitionKey] = set()
        self._trying: asyncio.Task[None] | None = None
        self._knows_process = False

    def take(self, image: Image, changed: Iterable[PartitionKey]) -> Sequence[PartitionKey]:
        """Another image is in force in which these partitions differ. Roles that it ends have ended on return. Returns
        the partitions to pass to `follow`: all of them if this process has just been registered."""
        self.image = image
        known = is_registered(image, self._broker_id, self._own_epoch())
        keys = tuple(self._partitions) if known != self._knows_process else tuple(changed)
        self._knows_process = known
        self._end(keys)
        return keys

    @property
    def knows_process(self) -> bool:
        """Whether the image is not older than this process."""
        return self._knows_process

    def _end(self, keys: Iterable[PartitionKey]) -> None:
        for partition in self._assigned(keys):
            role, wanted = partition.role, self._wanted(partition)
            leads_on = isinstance(wanted, Leading) and role.leads
            follows_on = isinstance(wanted, Following) and role.follows
            if wanted is None or wanted.epoch != role.epoch or not (leads_on or follows_on):
                role.rest()

    async def follow(self, keys: Iterable[PartitionKey]) -> None:
        """Give partitions the role that the image assigns."""
        keys = tuple(keys)
        self._end(keys)
        to_lead = []
        for number, partition in enumerate(self._assigned(keys), 1):
            if number % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)  # another image may come into force; what is wanted is asked of the latest
            match self._wanted(partition):
                case Following(leader, epoch, partition_epoch, in_sync, observes):
                    partition.role.follow(leader, epoch, partition_epoch, in_sync=in_sync, observes=observes)
                case Leading() as leading if partition.role.leads:
                    partition.role.lead(leading)
                case Leading():
                    to_lead.append(partition)
        await self._lead(to_lead)

    def _wanted(self, partition: Partition) -> Wanted:
        stream = self.image.by_id.get(partition.stream.id)
        if stream is None or not stream.assignments or (stream.id, partition.index) in self._lost:
            return None
        if not self._knows_process:
            return None
        wanted = wanted_role(stream.assignments[partition.index], self._broker_id)
        if isinstance(wanted, Leading) and wanted.epoch < partition.log.epochs.latest:
            self._log.error(
                "a partition is not led: its log knows a later leader epoch than the metadata",
                partition=str(partition),
                epoch=wanted.epoch,
                latest=partition.log.epochs.latest,
            )
            return None
        return wanted

    def _assigned(self, keys: Iterable[PartitionKey]) -> list[Partition]:
        """Those that are here, with the stream as it is now; none of a stream that has no assignments."""
        found = []
        for key in keys:
            partition, stream = self._partitions.get(key), self.image.by_name.get(key[0])
            if partition is not None and stream is not None and stream.assignments:
                partition.stream = stream
                found.append(partition)
        return found

    async def _lead(self, partitions: Sequence[Partition]) -> None:
        """Lead once everything is durable that was staged before: a leader's log is safe to its end."""
        unsafe = [partition for partition in partitions if not partition.role.is_settled]
        syncs = [self._flusher.run(partial(_make_safe, partition.log)) for partition in unsafe]
        for partition, outcome in zip(unsafe, await asyncio.gather(*syncs, return_exceptions=True), strict=True):
            if isinstance(outcome, BaseException):
                self._log.error("a partition is not led", partition=str(partition), reason=str(outcome))
        for number, partition in enumerate(partitions, 1):
            if number % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            wanted = self._wanted(partition)
            if not isinstance(wanted, Leading):
                continue
            if partition.role.is_settled:
                partition.role.lead(wanted)
            elif self._flusher.failure is None:
                self._try_again((partition.stream.name, partition.index))

    def _try_again(self, key: PartitionKey) -> None:
        self._unled.add(key)
        if self._trying is None:
            self._trying = asyncio.ensure_future(self._try_later())
            self._trying.add_done_callback(self._tried)

    async def _try_later(self) -> None:
        while self._unled:
            await asyncio.sleep(_RETRY_S)
            async with self._changing:
                unled, self._unled = self._unled, set()
                await self.follow(unled)

    def _tried(self, task: asyncio.Task[None]) -> None:
        self._trying = None
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._log.error("taking leaderships failed on an internal error", exc_info=fault)

    async def stop(self) -> None:
        """Stop trying."""
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.gather(self._trying, return_exceptions=True)


def _make_safe(log: PartitionLog) -> None:
    """Sync a log to its end, or to the end of what is written if the disk is full."""
    try:
        log.flush(sync=True)
    except RetriableStorageError:
        log.abandon_staged()
        log.flush(sync=True)
