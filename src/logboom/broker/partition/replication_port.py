"""What a partition asks of the replication between brokers (`broker.replication` performs it)."""

from collections.abc import Collection
from typing import Final, Protocol, Self, TypeAlias
from uuid import UUID

from logboom.base.ids import BrokerId, PartitionIndex, StreamId
from logboom.replication.following import Fetch, ReportDurableEnd

ReplicaKey: TypeAlias = tuple[StreamId, PartitionIndex]

_INDEX_BITS: Final = 32
_INDEX_MASK: Final = (1 << _INDEX_BITS) - 1


class StreamIdPartition(int):
    """A partition by its stream's id and its index (Kafka's `TopicIdPartition`).

    A number, since what is kept under it is looked for some sixty times in a commit of three replicas, and each hash of
    a UUID is a call of a Python function.
    """

    __slots__ = ()

    def __new__(cls, stream: StreamId, index: int) -> Self:
        return super().__new__(cls, stream.int << _INDEX_BITS | index)

    @property
    def stream(self) -> StreamId:
        """The id of the stream."""
        return StreamId(UUID(int=self >> _INDEX_BITS))

    @property
    def stream_bytes(self) -> bytes:
        """The 16 bytes of the stream's id."""
        return (self >> _INDEX_BITS).to_bytes(16, "big")

    @property
    def index(self) -> PartitionIndex:
        """Which partition of the stream."""
        return PartitionIndex(self & _INDEX_MASK)

    def __repr__(self) -> str:
        return f"{self.stream}-{self.index}"


class Replication(Protocol):
    """See the module. On the loop."""

    def fetch(self, key: StreamIdPartition, request: Fetch) -> None:
        """Ask the leader; the answer goes to `Follower.answered`, or `Follower.failed` is called."""

    def report(self, key: StreamIdPartition, end: ReportDurableEnd) -> None:
        """Tell the leader how far this log is synced. May get lost: the next request says it too."""

    def quiet_s(self, key: StreamIdPartition) -> float | None:
        """When the leader was last known to have nothing new of a partition that this broker observes, on the monotonic
        clock; None where that is not known."""

    def leads(self, key: StreamIdPartition, leads: bool) -> None:
        """This broker begins or ends to lead a partition that has followers."""

    def copies(self, key: StreamIdPartition, brokers: Collection[BrokerId]) -> None:
        """These brokers have a copy of a partition that this broker leads, and no others."""

    def written(self, key: StreamIdPartition) -> None:
        """Records of a partition with followers, which this broker leads, were just written, on the loop. Called in the
        middle of a round of the group commit: it changes nothing in the partition, and raises nothing."""

    def moved(self, key: StreamIdPartition) -> None:
        """A partition with followers, which this broker leads, has more records or another beginning, or this broker
        begins or ends to lead it."""

    def mark_moved(self, key: StreamIdPartition) -> None:
        """A partition with followers, which this broker leads, has another high-water mark, and nothing else that is
        new."""

    def propose(self, key: StreamIdPartition) -> None:
        """The leader of a partition has a proposal for the controller."""

    def await_join(self, key: StreamIdPartition) -> None:
        """The leader of a partition holds its high-water mark for a follower: feed it `Ticked` after
        `replication.join_wait.JOIN_WAIT_S`."""

    def forget(self, key: StreamIdPartition) -> None:
        """A partition is gone from this broker: it was deleted, or others hold it."""


class NoReplication:
    """Of a broker that is alone: no partition has another replica."""

    def fetch(self, key: StreamIdPartition, request: Fetch) -> None:
        """Nobody leads what this broker follows."""

    def report(self, key: StreamIdPartition, end: ReportDurableEnd) -> None:
        """As `fetch`."""

    def quiet_s(self, key: StreamIdPartition) -> float | None:
        """As `fetch`."""
        return None

    def leads(self, key: StreamIdPartition, leads: bool) -> None:
        """Nobody follows."""

    def copies(self, key: StreamIdPartition, brokers: Collection[BrokerId]) -> None:
        """It is the only one."""

    def written(self, key: StreamIdPartition) -> None:
        """Nobody follows."""

    def moved(self, key: StreamIdPartition) -> None:
        """Nobody follows."""

    def mark_moved(self, key: StreamIdPartition) -> None:
        """Nobody follows."""

    def propose(self, key: StreamIdPartition) -> None:
        """There is no other member."""

    def await_join(self, key: StreamIdPartition) -> None:
        """Nobody is to join."""

    def forget(self, key: StreamIdPartition) -> None:
        """Nothing was kept of it."""
