"""What a partition asks of the replication between brokers (`broker.replication` performs it)."""

from typing import Protocol, TypeAlias

from logboom.base.ids import PartitionIndex, StreamId
from logboom.replication.following import Fetch, ReportDurableEnd

ReplicaKey: TypeAlias = tuple[StreamId, PartitionIndex]


class Replication(Protocol):
    """See the module. On the loop."""

    def fetch(self, key: ReplicaKey, request: Fetch) -> None:
        """Ask the leader; the answer goes to `Follower.answered`, or `Follower.failed` is called."""

    def report(self, key: ReplicaKey, end: ReportDurableEnd) -> None:
        """Tell the leader how far this log is synced. May get lost: the next request says it too."""

    def quiet_s(self, key: ReplicaKey) -> float | None:
        """When the leader was last known to have nothing new of a partition that this broker observes, on the monotonic
        clock; None where that is not known."""

    def leads(self, key: ReplicaKey, leads: bool) -> None:
        """This broker begins or ends to lead a partition that has followers."""

    def moved(self, key: ReplicaKey) -> None:
        """A partition with followers, which this broker leads, has more records, another high-water
        mark or another beginning."""

    def propose(self, key: ReplicaKey) -> None:
        """The leader of a partition has a proposal for the controller."""

    def await_join(self, key: ReplicaKey) -> None:
        """The leader of a partition holds its high-water mark for a follower: feed it `Ticked` after
        `replication.join_wait.JOIN_WAIT_S`."""

    def forget(self, key: ReplicaKey) -> None:
        """A partition is gone from this broker: it was deleted, or others hold it."""


class NoReplication:
    """Of a broker that is alone: no partition has another replica."""

    def fetch(self, key: ReplicaKey, request: Fetch) -> None:
        """Nobody leads what this broker follows."""

    def report(self, key: ReplicaKey, end: ReportDurableEnd) -> None:
        """As `fetch`."""

    def quiet_s(self, key: ReplicaKey) -> float | None:
        """As `fetch`."""
        return None

    def leads(self, key: ReplicaKey, leads: bool) -> None:
        """Nobody follows."""

    def moved(self, key: ReplicaKey) -> None:
        """Nobody follows."""

    def propose(self, key: ReplicaKey) -> None:
        """There is no other member."""

    def await_join(self, key: ReplicaKey) -> None:
        """Nobody is to join."""

    def forget(self, key: ReplicaKey) -> None:
        """Nothing was kept of it."""
