"""Small rounds of one log, written on the loop and synced asynchronously, so that no thread has to wake up for them.

Handing a round to a thread and its outcome back costs two wake-ups and two waits for the interpreter lock, which is
most of what a small fsynced append takes on a fast disk (docs/decisions/0016). The kernel can do the waiting instead:
the loop writes into the page cache, begins the sync, and is called when it has ended.

That must never block the loop. The write is refused where the file system knows that it would wait. Where it does not
know, the duration of each write and sync is watched, and after a slow one everything goes through the thread until the
disk has been left alone for a while, longer each time. While a sync is in progress nothing else is written here, so a
disk that hangs is met by the sync and not by the loop.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from logboom.base.errors import LogboomError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Clock
from logboom.base.units import KIB
from logboom.broker.disk.flush_runner import FlushRunner, Outcome
from logboom.broker.group_commit import FlushTarget
from logboom.broker.metrics import Counters

ROUND_BYTES_MAX: Final = 256 * KIB
"""Two to four requests of 64 KiB, which is what a Java producer's rounds are, cost a quarter more CPU time through the
thread, most of it for turns at the interpreter lock. Rounds of a MiB, which many clients at full speed bring, are 5 to
10 % faster there: the thread writes and syncs while the loop reads."""
SLOW_WRITE_MS: Final = 5
SLOW_SYNC_MS: Final = 50
QUIET_MIN_MS: Final = 1_000
QUIET_MAX_MS: Final = 60_000
_NS_PER_MS: Final = 1_000_000


class InlinePolicy:
    """Whether the disk is quick enough to be written to on the loop. Pure: durations and times in, a decision out."""

    __slots__ = ("_not_before_ns", "_quiet_ms")

    def __init__(self) -> None:
        self._not_before_ns = 0
        self._quiet_ms = QUIET_MIN_MS

    def allows(self, now_ns: int) -> bool:
        """Whether a round may be written on the loop now."""
        return now_ns >= self._not_before_ns

    def wrote(self, took_ns: int, now_ns: int) -> None:
        """Note how long a write on the loop took."""
        if took_ns >= SLOW_WRITE_MS * _NS_PER_MS:
            self.leave(now_ns)

    def synced(self, took_ns: int, now_ns: int) -> None:
        """Note how long a sync beside the loop took."""
        if took_ns >= SLOW_SYNC_MS * _NS_PER_MS:
            self.leave(now_ns)
        else:
            self._quiet_ms = max(QUIET_MIN_MS, self._quiet_ms - 1)  # trust comes back slowly

    def leave(self, now_ns: int) -> None:
        """The disk was slow or refused: use the thread for a while, twice as long as the last time."""
        self._not_before_ns = now_ns + self._quiet_ms * _NS_PER_MS
        self._quiet_ms = min(2 * self._quiet_ms, QUIET_MAX_MS)


class InlineCommit:
    """One round at a time. Life: that of the flusher. On the loop."""

    def __init__(
        self,
        *,
        clock: Clock,
        runner: FlushRunner,
        counters: Counters,
        deliver: Callable[[list[Outcome], int], None],
        begin_next: Callable[[], None],
    ) -> None:
        """`begin_next` begins the round that has waited for a sync. It is called before the outcome of that sync goes
        to `deliver`, so that the disk works while clients are answered."""
        self.busy = False
        """Whether a sync is under way. Nothing else may change the log until it has ended."""
        self._clock = clock
        self._runner = runner
        self._counters = counters
        self._deliver = deliver
        self._begin_next = begin_next
        self._policy = InlinePolicy()
        self._began_ns = 0

    @property
    def busy_s(self) -> float:
        """For how long the current sync has been running; 0 if there is none."""
        return (self._clock.monotonic_ns() - self._began_ns) / 1e9 if self.busy else 0.0

    def takes(self, target: FlushTarget, size_bytes: int) -> bool:
        """Whether to begin a round of this log alone here."""
        return (
            size_bytes <= ROUND_BYTES_MAX
            and target.syncs
            and target not in self._runner.blocked
            and self._policy.allows(self._clock.monotonic_ns())
        )

    def begin(self, target: FlushTarget, size_bytes: int) -> bool:
        """Write the round and begin its sync; the outcome goes to `deliver`. False: a thread has to flush it."""
        began_ns = self._clock.monotonic_ns()
        try:
            file = target.log.inline.write(ROUND_BYTES_MAX)
        except BlockingIOError:
            self._policy.leave(began_ns)
            return False
        except Exception as fault:  # noqa: BLE001 - outermost, as on the thread: a bug of ours stops one log
            self._deliver([self._runner.failed(target, fault)], size_bytes)
            return True
        now_ns = self._clock.monotonic_ns()
        self._policy.wrote(now_ns - began_ns, now_ns)
        if file is None:
            return False
        # What is written and not synced here is synced by the flush on the thread.
        if not file.begin_sync(partial(self._sync_ended, target, size_bytes, began_ns)):
            self._policy.leave(now_ns)
            return False
        self.busy, self._began_ns = True, began_ns
        return True

    def _sync_ended(self, target: FlushTarget, size_bytes: int, began_ns: int, error: OSError | None) -> None:
        now_ns = self._clock.monotonic_ns()
        self._policy.synced(now_ns - began_ns, now_ns)
        self._counters.flush_rounds += 1
        self._counters.inline_flush_rounds += 1
        self._counters.flushed_partitions += 1
        self._counters.flush_ns += now_ns - began_ns
        outcome = self._runner.run(target, partial(_complete, target, error))
        ended_ns = self._clock.monotonic_ns()
        self._policy.wrote(ended_ns - now_ns, ended_ns)  # the note of the durable end is a write too
        self.busy = False
        if not isinstance(outcome[1], LogboomError):
            self._begin_next()
        self._deliver([outcome], size_bytes)


def _complete(target: FlushTarget, error: OSError | None) -> Offset:
    if error is not None:
        failed: StorageError = target.log.inline.sync_failed(error)
        raise failed
    return target.log.inline.synced()
