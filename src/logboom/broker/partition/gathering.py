"""Small appends to a replicated partition wait while earlier ones are being committed, and are then written together.

A record that every in-sync replica has to sync is committed one exchange with the followers after it was written.
Records that arrive during that exchange are sent with the next one, whether or not they are written before. Writing and
syncing them at once would only cost this broker a round of its disk for every few records, and would cost the followers
time if they share its processor and disk. So such records are enqueued when the high-water mark moves, all in one
round: the rule by which TCP holds back small segments while others are not acknowledged (Nagle, RFC 896).

Only records that wait for commit are held, only a few bytes of them, and not for long. Only their write waits: they are
checked meanwhile. On the loop; knows nothing of the log but where it ends.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from logboom.base.ids import BrokerId, Offset
from logboom.broker.partition.publications import ACKS_ALL

FEW_BYTES: Final = 8 << 10
"""Fewer bytes of records than this wait: less than one request of a producer with Kafka's default batch size
(16 KiB)."""
_HELD_MAX_S: Final = 0.02
"""A follower that stands still for longer than this must not keep records out of the leader's own log."""


class Commits(Protocol):
    """What a leader knows of commits."""

    @property
    def isr(self) -> frozenset[BrokerId]:
        """The in-sync replicas; empty where this broker does not lead."""

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed."""


class AppendedLog(Protocol):
    """What a log knows of appends."""

    @property
    def log_end_offset(self) -> Offset:
        """Where the next record goes; what is staged counts."""


class Queue(Protocol):
    """Where appends wait until they are drained."""

    def check_last(self) -> None:
        """Check what came last now, since it is not drained at once."""


class HeldAppends:
    """The bytes that are held, and the time for which they may be. Life: that of the partition."""

    __slots__ = ("_enqueue", "_timer", "size_bytes")

    def __init__(self, enqueue: Callable[[int], None]) -> None:
        """`enqueue` has the group commit drain the partition at the end of this turn of the loop, for so many bytes."""
        self._enqueue = enqueue
        self._timer: asyncio.TimerHandle | None = None
        self.size_bytes = 0

    def hold(self) -> None:
        """Hold them, for the longest time allowed since the first of them arrived."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_HELD_MAX_S, self.release)

    def release(self) -> None:
        """The high-water mark has moved, or nothing may be held any longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.size_bytes:
            size_bytes, self.size_bytes = self.size_bytes, 0
            self._enqueue(size_bytes)


class AppendGathering:
    """Which appends are held. Life: that of the partition."""

    __slots__ = ("_commits", "_held", "_log", "_queue")

    def __init__(self, commits: Commits, log: AppendedLog, queue: Queue, held: HeldAppends) -> None:
        self._commits = commits
        self._log = log
        self._queue = queue
        self._held = held

    def arrived(self, size_bytes: int, acks: int) -> None:
        """This many bytes with these acks are in the append queue. If these are not to be held, all that is held goes
        with them."""
        held = self._held
        held.size_bytes += size_bytes
        if acks != ACKS_ALL or held.size_bytes >= FEW_BYTES or not self._is_committing:
            held.release()
        else:
            held.hold()
            self._queue.check_last()

    @property
    def _is_committing(self) -> bool:
        """Whether something waits for followers, whose next answer moves the high-water mark."""
        commits = self._commits
        return len(commits.isr) > 1 and commits.high_watermark < self._log.log_end_offset
