"""Throttles of replication (KIP-73): how fast replicas that are not in sync may copy, as administrators set it.

A broker has one rate for what it sends as a leader and one for what it fetches as a follower. Each holds for the
partitions that their stream names for it (`leader.replication.throttled.replicas` and the like, as `PARTITION:BROKER`),
and for replicas outside the ISR alone: what in-sync replicas copy is neither held nor counted, because producers wait
for it. Kafka counts it, so that a rate below that of the producers never lets a new replica catch up;
here it always does.

A debt is paid off at the rate: a read is let through once everything before it is, and then owes its bytes. So the rate
holds over any time longer than one read takes to pay off, and nothing is saved up while nobody copies.
"""

from collections.abc import Callable
from typing import Final

from logboom.base.ids import BrokerId, PartitionIndex, StreamId
from logboom.base.ports import Clock
from logboom.broker.metadata_view import MetadataView
from logboom.broker.partition.replication_port import StreamIdPartition

LOOK_S: Final = 1.0
"""The longest wait before a throttle is asked again: the rate may have changed, or the replica may be in sync."""
_WAIT_MIN_S: Final = 0.001
"""A timer cannot be much more exact than this."""
_TURN_S: Final = 0.25
_TURN_MIN_BYTES: Final = 64 << 10
_ALL: Final = "*"


class ReplicationThrottle:
    """One of the two rates of a broker. On the loop."""

    def __init__(
        self,
        setting: str,
        rate: Callable[[], int | None],
        broker_id: BrokerId,
        metadata: MetadataView,
        clock: Clock,
    ) -> None:
        """`setting`: the stream's setting that names the throttled replicas. `rate`: bytes a second, None
        for no limit."""
        self._setting = setting
        self._rate = rate
        self._broker_id = broker_id
        self._metadata = metadata
        self._clock = clock
        self._named: dict[StreamId, tuple[str, frozenset[PartitionIndex]]] = {}
        self._debt = 0.0
        self._paid_s = 0.0
        self._owed: dict[StreamIdPartition, int] = {}

    def holds(self, key: StreamIdPartition, replica: BrokerId) -> bool:
        """Whether `replica` copies this partition under the throttle now."""
        if self._rate() is None:
            return False
        stream, index = self._metadata.image.by_id.get(key.stream), key.index
        if stream is None or not index < len(stream.assignments) or replica in stream.assignments[index].isr:
            return False
        text = stream.overrides.get(self._setting, "")
        return text == _ALL or (bool(text) and index in self._partitions(stream.id, text))

    def _partitions(self, stream: StreamId, text: str) -> frozenset[PartitionIndex]:
        """Those that a setting names for this broker."""
        known = self._named.get(stream)
        if known is None or known[0] != text:
            pairs = (one.split(":") for one in text.split(","))
            found = frozenset(PartitionIndex(int(index)) for index, broker in pairs if int(broker) == self._broker_id)
            known = self._named[stream] = text, found
        return known[1]

    def wait_s(self) -> float:
        """How long to wait before the next read, and then to ask again; 0 where it may go."""
        rate = self._rate()
        now_s = self._clock.monotonic_s()
        passed_s, self._paid_s = now_s - self._paid_s, now_s
        if rate is None:
            self._debt = 0.0
        else:
            self._debt = max(self._debt - passed_s * rate, 0.0)
        if rate == 0:
            return LOOK_S
        if rate is None or self._debt < 1:
            return 0.0
        return min(max(self._debt / rate, _WAIT_MIN_S), LOOK_S)

    @property
    def turn_bytes(self) -> int:
        """How much one read may bring, so that others get their turn soon."""
        rate = self._rate()
        return 1 << 62 if rate is None else max(int(rate * _TURN_S), _TURN_MIN_BYTES)

    def charge(self, size_bytes: int) -> None:
        """These bytes were sent or fetched."""
        self._debt += size_bytes

    def expect(self, key: StreamIdPartition, size_bytes: int) -> None:
        """Up to this many bytes of a partition were asked for: they are owed until it is known how many came."""
        rate = self._rate()
        owed = size_bytes if rate is None else min(size_bytes, rate)  # at least one request a second
        self._debt += owed - self._owed.get(key, 0)
        self._owed[key] = owed

    def forget(self, key: StreamIdPartition) -> None:
        """A partition is gone from this broker."""
        self.came(key, 0)
        self._named.pop(key.stream, None)

    def came(self, key: StreamIdPartition, size_bytes: int) -> bool:
        """This many bytes came; returns whether they were asked for under the throttle."""
        owed = self._owed.pop(key, None)
        if owed is not None:
            self._debt = max(self._debt + size_bytes - owed, 0.0)
        return owed is not None
