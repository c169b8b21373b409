"""What the partitions of one broker share: the group commit, threads, counters, caches and settings."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import RetriableStorageError
from logboom.base.ids import BrokerId, StreamId
from logboom.base.ports import Clock
from logboom.broker.config import BrokerConfig
from logboom.broker.group_commit import GroupCommit
from logboom.broker.metrics import Counters
from logboom.broker.partition.condition_check import WindowMemory
from logboom.broker.partition.id_memory import IdMemory
from logboom.broker.partition.read_cache import ReadCache
from logboom.broker.partition.reader_threads import ReaderThreads
from logboom.broker.partition.refused_producers import RefusedMemory
from logboom.broker.partition.replication_port import NoReplication, Replication
from logboom.broker.settled_clock import SettledClock
from logboom.storage import OpenFiles

_NO_REPLICATION: Final = NoReplication()


class Rejections(Protocol):
    """Keeps account of writes that are refused for lack of room or of file handles."""

    def record(self, partition: str, error: RetriableStorageError) -> None:
        """A write of the partition was taken back."""

    def clear(self) -> None:
        """A write got through."""


class Standing(Protocol):
    """What this broker knows of its place in the cluster at this moment, whatever it was last told."""

    @property
    def holds_lease(self) -> bool:
        """Whether it may act as a leader, by the clock: the end of a lease is reported late where the process was
        paused."""

    @property
    def is_current(self) -> bool:
        """Whether it has applied what the controller had as of the last answered heartbeat."""


class Undisputed:
    """The standing of a broker that is alone."""

    holds_lease = True
    is_current = True


_UNDISPUTED: Final = Undisputed()


class LeadershipChanges:
    """Notifies that this broker has begun or ceased to lead a partition, at the moment when it does. On the loop."""

    __slots__ = ("_watchers",)

    def __init__(self) -> None:
        self._watchers: list[Callable[[StreamId], None]] = []

    def watch(self, callback: Callable[[StreamId], None]) -> None:
        """Call `callback` with the stream of each such partition. It may look at the partition, and change nothing."""
        self._watchers.append(callback)

    def announce(self, stream_id: StreamId) -> None:
        """A partition of this stream is led here from now on, or is not any more."""
        for callback in self._watchers:
            callback(stream_id)


class PartitionServices(NamedTuple):
    """What the partitions of one broker share."""

    broker_id: BrokerId
    clock: Clock
    settled_clock: SettledClock
    flusher: GroupCommit
    readers: ReaderThreads
    counters: Counters
    rejections: Rejections
    config: Current[BrokerConfig]
    read_cache: ReadCache
    window_memory: WindowMemory
    id_memory: IdMemory
    refused_memory: RefusedMemory
    open_files: OpenFiles
    log: FilteringBoundLogger
    leadership_changes: LeadershipChanges
    replication: Replication = _NO_REPLICATION
    standing: Standing = _UNDISPUTED
