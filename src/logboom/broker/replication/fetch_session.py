"""What one follower has asked a leader for and is not answered yet, and what the leader knows of that follower.

A fetch *stands* if the leader answers it in parts and moves it on by itself, so that the follower need not send it
again. Knows fetches and their answers; what is read for them, and when, is decided in `serving`. On the loop.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import structs

from logboom.base.ids import BrokerEpoch, BrokerId, Offset, PartitionEpoch
from logboom.broker.partition.gathering import FEW_BYTES
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import StreamIdPartition
from logboom.broker.replication import wire

_AHEAD_BYTES_MAX: Final = 4 << 20
"""Bytes that may have been sent for the standing fetches of a session and are not yet reported durable by the
follower."""
_ABOVE_ALL: Final = Offset(2**63 - 1)
"""The log start of a follower that does not report one: nobody waits until it has deleted something."""


class Has(NamedTuple):
    """What a follower reports to have, and the partition epoch in which it does."""

    durable_end: Offset
    partition_epoch: PartitionEpoch
    log_start: Offset
    lacks_room: bool = False


class SentMark(NamedTuple):
    """The high-water mark and the first offset of the log, as sent with the answer to the fetch of a number."""

    number: int
    mark: Offset
    log_start: Offset


_NOTHING_SENT: Final = SentMark(0, Offset(-1), Offset(-1))


class _Ahead:
    """What was sent for standing fetches and is not yet reported durable by the follower."""

    def __init__(self) -> None:
        self._bytes = 0
        self._sent: dict[StreamIdPartition, deque[tuple[Offset, int]]] = {}
        """The end offset and the size of each piece that was sent."""
        self._position: dict[StreamIdPartition, tuple[Offset, int]] = {}
        """Where the leader's log ended when something was sent last: its last segment, and the bytes in that."""

    def __contains__(self, key: StreamIdPartition) -> bool:
        return key in self._sent

    def has_room(self, size_bytes: int) -> bool:
        """Whether this much more may be sent."""
        return self._bytes + size_bytes <= _AHEAD_BYTES_MAX

    def bytes_behind(self, key: StreamIdPartition, partition: Partition) -> int | None:
        """Bytes written after what is in flight; None if nothing is, or if they are in another segment."""
        if not self._sent.get(key):
            return None
        segment, position = self._position[key]
        active = partition.log.segments[-1]
        return active.size_bytes - position if active.base == segment else None

    def add(self, key: StreamIdPartition, partition: Partition, end: Offset, size_bytes: int) -> None:
        """Records below `end` were sent."""
        sent = self._sent.get(key)
        if sent is None:
            sent = self._sent[key] = deque()
        if size_bytes:
            sent.append((end, size_bytes))
            self._bytes += size_bytes
            active = partition.log.segments[-1]
            self._position[key] = active.base, active.size_bytes

    def durable(self, key: StreamIdPartition, end: Offset) -> None:
        """The follower has synced everything below `end`."""
        sent = self._sent.get(key, ())
        while sent and sent[0][0] <= end:
            self._bytes -= sent.popleft()[1]

    def forget(self, key: StreamIdPartition) -> None:
        """The fetch no longer stands."""
        self._bytes -= sum(size_bytes for _, size_bytes in self._sent.pop(key, ()))
        self._position.pop(key, None)


class FetchSession:
    """What one follower has asked for and was not answered yet."""

    def __init__(self, number: int, replica: BrokerId, observer: bool, broker_epoch: BrokerEpoch) -> None:
        self.number = number
        self.replica = replica
        self.observer = observer
        self.broker_epoch = broker_epoch
        self.pending: dict[StreamIdPartition, wire.FetchItem] = {}
        self.new: set[StreamIdPartition] = set()
        """Fetches that were not looked at yet."""
        self.ready: dict[StreamIdPartition, None] = {}
        """Fetches to look at, the one that has waited longest first."""
        self.behind: dict[StreamIdPartition, None] = {}
        """Fetches of replicas that are not in sync and have records to catch up with: their turn comes after all
        others."""
        self.held: dict[StreamIdPartition, None] = {}
        """Fetches that wait for the throttle."""
        self.held_timer: asyncio.TimerHandle | None = None
        self.sent_marks: dict[StreamIdPartition, SentMark] = {}
        """The high-water marks that the follower knows, and the first offsets of the leader's log."""
        self.ends: dict[StreamIdPartition, wire.DurableEnd] = {}
        """The durable ends that the follower reported besides its fetches."""
        self.ends_received = 0
        """How many messages with durable ends came in this session."""
        self.ahead = _Ahead()
        self.mark_due: set[StreamIdPartition] = set()
        self.mark_timer: asyncio.TimerHandle | None = None
        self.last_request_s = 0.0
        """When the last request came, on the monotonic clock."""
        self.latest: wire.FetchRequest | None = None
        """The request that waits, or is about to."""
        self.waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Have the request that waits looked at, if one does."""
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            resolve(waiter)

    def look_at(self, key: StreamIdPartition) -> None:
        """There is something to send for this fetch."""
        self.ready[key] = None
        self.wake()

    @property
    def has_ready(self) -> bool:
        """Whether there is a fetch to look at."""
        return bool(self.ready or self.behind)

    @property
    def left(self) -> list[tuple[bytes, int]]:
        """Fetches for which something may be left to send; observers judge their age by it."""
        if not self.observer:
            return []
        keys = {**self.ready, **self.behind, **self.held, **dict.fromkeys(self.mark_due)}
        return [(key.stream_bytes, key.index) for key in keys if key in self.pending]

    def hold(self, key: StreamIdPartition, wait_s: float) -> None:
        """Look at a fetch again after a while, together with all that wait by then."""
        self.held[key] = None
        if self.held_timer is None:
            self.held_timer = asyncio.get_running_loop().call_later(wait_s, self._release)

    def _release(self) -> None:
        self.held_timer = None
        held, self.held = self.held, {}
        self.behind.update(held)
        self.wake()

    def is_behind(self, key: StreamIdPartition, partition: Partition) -> bool:
        """Whether the follower does not know yet how far the partition is committed, or where it begins."""
        sent = self.sent_marks.get(key, _NOTHING_SENT)
        return partition.role.leader.high_watermark > sent.mark or partition.log.start.deleted_below > sent.log_start

    def add(self, items: Sequence[wire.FetchItem]) -> None:
        for item in items:
            key = wire.key_of(item.stream, item.index)
            self.pending[key] = item
            sent, stood = self.sent_marks.get(key), key in self.ahead
            if stood:
                self.ahead.forget(key)
            if sent is not None and (stood or item.last_answer not in (sent.number, -1)):
                # That answer came too late for the follower, which dropped it. Of a fetch that stood, who knows which.
                del self.sent_marks[key]
            self.new.add(key)
            self.ready[key] = None

    def has(self, key: StreamIdPartition, item: wire.FetchItem) -> Has:
        """What the follower reported last. The leadership itself forgets what a follower had that leaves the ISR."""
        asked, reported = has_of(item), self.ends.get(key)
        if reported is None or reported.number != item.number or reported.partition_epoch < item.partition_epoch:
            return asked
        beside = has_of(reported)
        end, start = max(asked.durable_end, beside.durable_end), max(asked.log_start, beside.log_start)
        return Has(end, beside.partition_epoch, start)

    def has_enough(self, key: StreamIdPartition, item: wire.FetchItem, partition: Partition) -> bool:
        """Whether there are records to send now. A few records wait until the follower has synced those in flight, and
        go together with what arrives by then: it would sync them after those anyway (as TCP holds back small segments,
        RFC 896)."""
        if partition.log.written_end <= item.offset:
            return False
        behind = self.ahead.bytes_behind(key, partition)
        return behind is None or behind >= FEW_BYTES

    def stands(self, key: StreamIdPartition) -> bool:
        """Whether a fetch of this partition stands, so that its next records follow on what was sent for it."""
        return key in self.ahead

    def stand(
        self, key: StreamIdPartition, item: wire.FetchItem, partition: Partition, size_bytes: int, end: Offset | None
    ) -> wire.FetchItem | None:
        """The number under which a fetch stands after an answer with this many bytes of records below `end`; None if it
        does not stand, since the records came from the disk or too much is in flight."""
        if end is None or not self.ahead.has_room(size_bytes):
            return None
        self.ahead.add(key, partition, end, size_bytes)
        if not size_bytes:
            return item
        if end < partition.log.written_end:
            self.ready[key] = None
        last_epoch = partition.log.epochs.at(Offset(end - 1))
        return structs.replace(item, offset=end, last_epoch=last_epoch, lacks_room=False)

    def answered(self, key: StreamIdPartition, item: wire.FetchItem, stands: wire.FetchItem | None) -> None:
        """A fetch was answered; `stands`: the number under which it stands, or None."""
        if self.pending.get(key) is not item:
            return
        self.new.discard(key)
        if stands is not None:
            self.pending[key] = stands
        else:
            del self.pending[key]
            self.ahead.forget(key)

    def answer(
        self, key: StreamIdPartition, item: wire.FetchItem, partition: Partition, size_bytes: int, *, stands: bool
    ) -> wire.AnswerItem:
        """The answer to a fetch with this many bytes of records, and the high-water mark, which the follower then
        knows."""
        # It takes no mark above the end that it asked from; with a log start above that, it would start over there.
        mark, start = partition.role.leader.high_watermark, min(partition.log.start.deleted_below, Offset(item.offset))
        self.sent_marks[key] = SentMark(item.number, min(mark, Offset(item.offset)), start)
        self.mark_due.discard(key)
        return wire.AnswerItem(
            item.stream,
            item.index,
            item.number,
            mark,
            start,
            size_bytes,
            offset=item.offset,
            stands=stands,
            start_is_known=partition.log.start.is_known,
        )

    def forget(self, key: StreamIdPartition) -> None:
        """The partition is gone. A fetch that waits for it is looked at once more, to be refused."""
        self.ahead.forget(key)
        self.sent_marks.pop(key, None)
        self.ends.pop(key, None)
        self.mark_due.discard(key)
        self.behind.pop(key, None)
        self.held.pop(key, None)
        if key in self.pending:
            self.look_at(key)

    def end(self) -> None:
        if self.mark_timer is not None:
            self.mark_timer.cancel()
            self.mark_timer = None
        if self.held_timer is not None:
            self.held_timer.cancel()
            self.held_timer = None
        for keys in (self.pending, self.ready, self.behind, self.held):
            keys.clear()
        self.wake()


def has_of(said: wire.FetchItem | wire.DurableEnd) -> Has:
    """What a follower reports to have in a message."""
    start = _ABOVE_ALL if said.log_start == -1 else Offset(said.log_start)
    lacks_room = isinstance(said, wire.FetchItem) and said.lacks_room
    return Has(Offset(said.durable_end), PartitionEpoch(said.partition_epoch), start, lacks_room)


def resolve(waiter: "asyncio.Future[None]") -> None:
    """Set the result, unless that was done."""
    if not waiter.done():
        waiter.set_result(None)
