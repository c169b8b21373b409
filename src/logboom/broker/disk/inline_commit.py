"""Small rounds of a few logs, written on the loop and synced asynchronously, so that no thread has to wake up for them.

Handing a round to a thread and its outcome back costs two wake-ups and two waits for the interpreter lock, which is
most of what a small fsynced append takes on a fast disk (docs/decisions/0016). The kernel can do the waiting instead:
the loop writes into the page cache, begins a sync for each log, and is called when they have ended. The kernel syncs
several files at once for little more than one, since their journal commits become one.

That must never block the loop. The write is refused where the file system knows that it would wait. Where it does not
know, the duration of each write and sync is watched, and after a slow one everything goes through the thread until the
disk has been left alone for a while, longer each time. While a sync is in progress nothing else is written here, to no
log, so a disk that hangs is met by the sync and not by the loop.

On a busy machine most of what takes long has waited for a processor, not for the disk, and the thread would wait for
one too, more often. So a write is slow only if this thread slept in it, and a sync only if the loop has looked, after
that time, and found that it had not ended.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from logboom.base.errors import LogboomError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Clock, File, Workers
from logboom.base.units import KIB
from logboom.broker.disk.flush_runner import FlushRunner, Outcome
from logboom.broker.group_commit import FlushTarget
from logboom.broker.metrics import Counters

ROUND_BYTES_MAX: Final = 256 * KIB
"""Two to four requests of 64 KiB, which is what a Java producer's rounds are, cost a quarter more CPU time through the
thread, most of it for turns at the interpreter lock. Rounds of a MiB, which many clients at full speed bring, are 5 to
10 % faster there: the thread writes and syncs while the loop reads."""
ROUND_LOGS_MAX: Final = 16
"""Each takes the loop some 50 us. More share the thread and its helpers."""
SLOW_WRITE_MS: Final = 5
SLOW_SYNC_MS: Final = 50
_SLOW_SYNC_S: Final = SLOW_SYNC_MS / 1_000
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

    def wrote(self, took_ns: int, now_ns: int, *, waited: bool) -> None:
        """Note how long a write on the loop took, and whether it waited for anything but a processor."""
        if waited and took_ns >= SLOW_WRITE_MS * _NS_PER_MS:
            self.leave(now_ns)

    def synced(self, took_ns: int) -> None:
        """Note how long it took until the loop knew that a sync had ended, which was not found slow before."""
        if took_ns < SLOW_SYNC_MS * _NS_PER_MS:
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
        workers: Workers,
        runner: FlushRunner,
        counters: Counters,
        deliver: Callable[[list[Outcome], int], None],
        begin_next: Callable[[], None],
    ) -> None:
        """`begin_next` begins the round that has waited for a sync. It is called before the outcomes of a round go to
        `deliver`, so that the disk works while clients are answered."""
        self.busy = False
        """Whether syncs are under way. Nothing else may change any log until all have ended."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._workers = workers
        self._runner = runner
        self._counters = counters
        self._deliver = deliver
        self._begin_next = begin_next
        self._policy = InlinePolicy()
        self._began_ns = 0
        self._size_bytes = 0
        self._under_way = 0
        self._found_slow = False
        """Whether the current syncs were still under way after `SLOW_SYNC_MS`."""
        self._look: asyncio.TimerHandle | None = None
        self._ended: list[tuple[FlushTarget, OSError | None]] = []

    @property
    def busy_s(self) -> float:
        """For how long the current syncs have been running; 0 if there are none."""
        return (self._clock.monotonic_ns() - self._began_ns) / 1e9 if self.busy else 0.0

    def takes(self, targets: Collection[FlushTarget], size_bytes: int) -> bool:
        """Whether to begin a round of these logs here."""
        return (
            size_bytes <= ROUND_BYTES_MAX
            and len(targets) <= ROUND_LOGS_MAX
            and all(target.syncs for target in targets)
            and self._runner.blocked.isdisjoint(targets)
            and self._policy.allows(self._clock.monotonic_ns())
        )

    def begin(self, round_bytes: Mapping[FlushTarget, int]) -> dict[FlushTarget, int]:
        """Write the round, so many bytes of each log, and begin its syncs; the outcomes go to `deliver`.

        Returns what a thread has to flush: all of it, or what comes next once this round has ended.
        """
        self._began_ns = self._clock.monotonic_ns()
        # All is written before the first sync begins: a disk that hangs is then met by the syncs alone.
        written, failed = self._write(round_bytes)
        begun = self._begin_syncs(written)
        left = {target: size for target, size in round_bytes.items() if target not in begun and target not in failed}
        if begun:
            self.busy, self._size_bytes = True, sum(round_bytes[target] for target in begun)
            self._found_slow = False
            if self._look is None:
                self._look = self._loop.call_later(_SLOW_SYNC_S, self._look_at_syncs)
        if failed:
            self._deliver([*failed.values()], sum(round_bytes[target] for target in failed))
        return left

    def _write(self, targets: Iterable[FlushTarget]) -> tuple[dict[FlushTarget, File], dict[FlushTarget, Outcome]]:
        """The files that are to be synced now, and what failed. Others are left to the thread."""
        written: dict[FlushTarget, File] = {}
        failed: dict[FlushTarget, Outcome] = {}
        for target in targets:
            began_ns, waits = self._clock.monotonic_ns(), self._workers.waits()
            try:
                file = target.log.inline.write(ROUND_BYTES_MAX)
            except BlockingIOError:
                self._policy.leave(began_ns)
                break
            except Exception as fault:  # noqa: BLE001 - outermost, as on the thread: a bug of ours stops one log
                failed[target] = self._runner.failed(target, fault)
                continue
            now_ns = self._clock.monotonic_ns()
            self._policy.wrote(now_ns - began_ns, now_ns, waited=self._workers.waits() != waits)
            if file is not None:
                written[target] = file
        return written, failed

    def _begin_syncs(self, written: Mapping[FlushTarget, File]) -> set[FlushTarget]:
        """The logs whose syncs were begun. What is written and not synced here is synced by the thread's flush."""
        begun: set[FlushTarget] = set()
        for target, file in written.items():
            if not file.begin_sync(partial(self._sync_ended, target)):
                self._policy.leave(self._clock.monotonic_ns())
                break
            begun.add(target)
        self._under_way = len(begun)
        return begun

    def _look_at_syncs(self) -> None:
        """The loop runs, and has been told of every sync that has ended: asyncio calls what is due after that."""
        self._look = None
        if not self.busy or self._found_slow:
            return  # the next round has this called again
        left_s = _SLOW_SYNC_S - self.busy_s
        if left_s <= 0:
            self._found_slow = True
            self._policy.leave(self._clock.monotonic_ns())
            self._report_failures()
        else:
            self._look = self._loop.call_later(left_s, self._look_at_syncs)

    def _sync_ended(self, target: FlushTarget, error: OSError | None) -> None:
        now_ns = self._clock.monotonic_ns()
        if not self._found_slow:
            self._policy.synced(now_ns - self._began_ns)
        self._ended.append((target, error))
        self._under_way -= 1
        if not self._under_way:
            self._round_ended(now_ns)
        elif self._found_slow:
            self._report_failures()

    def _report_failures(self) -> None:
        """Take the log dir offline before the round has ended: a disk that fails one sync may never end another one,
        and other brokers are to lead. Only for a round that is slow: of any other, what was synced is acked first."""
        for target, error in self._ended:
            if error is not None:
                self._runner.disk_failed(target.log.inline.sync_failed(error))

    def _round_ended(self, now_ns: int) -> None:
        """The durable ends are noted only now, since a note is a write, which must meet no sync under way."""
        ended, self._ended = self._ended, []
        size_bytes, self._size_bytes = self._size_bytes, 0
        self._counters.flush_rounds += 1
        self._counters.inline_flush_rounds += 1
        self._counters.flushed_partitions += len(ended)
        self._counters.flush_ns += now_ns - self._began_ns
        waits = self._workers.waits()
        ended.sort(key=_failed)  # after an error the log dir takes no more
        outcomes = [self._runner.run(target, partial(_complete, target, error)) for target, error in ended]
        ended_ns = self._clock.monotonic_ns()
        took_ns = (ended_ns - now_ns) // len(ended)
        self._policy.wrote(took_ns, ended_ns, waited=self._workers.waits() != waits)
        self.busy = False
        if not any(isinstance(outcome, LogboomError) for _, outcome in outcomes):
            self._begin_next()
        self._deliver(outcomes, size_bytes)


def _failed(ended: tuple[FlushTarget, OSError | None]) -> bool:
    return ended[1] is not None


def _complete(target: FlushTarget, error: OSError | None) -> Offset:
    if error is not None:
        failed: StorageError = target.log.inline.sync_failed(error)
        raise failed
    return target.log.inline.synced()
