"""Group commit: what was marked while a flush ran goes with the next; failures stop what they must and no more."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog
from tests.support.clock import ManualClock
from tests.support.waiting import WAIT_S

from logboom.base.errors import DiskFullError, LogboomError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Clock
from logboom.broker.disk.flusher import EARLY_BYTES, Flusher
from logboom.broker.metrics import Counters
from logboom.broker.runtime import Runtime
from logboom.host import SystemClock


class FakeLog:
    """Counts flushes; a flush waits for the gate and does what it was told."""

    def __init__(self) -> None:
        self.staged = 0
        self.durable = 0
        self.flushes = 0
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.fault: BaseException | None = None

    def flush(self, *, sync: bool, on_part: Callable[[Offset], None] | None = None) -> Offset:
        assert sync
        assert on_part is not None
        self.flushes += 1
        taken = self.staged
        self.entered.set()
        assert self.gate.wait(WAIT_S)
        if self.fault is not None:
            raise self.fault
        self.durable = taken
        return Offset(taken)

    @property
    def inline(self) -> "FakeLog":
        return self

    def write(self, max_bytes: int) -> "FakeFile | None":
        if isinstance(self.fault, DiskFullError):
            return None
        self.flushes += 1
        self.taken = self.staged
        return FakeFile(self)

    def synced(self) -> Offset:
        if self.fault is not None:
            raise self.fault
        self.durable = self.taken
        return Offset(self.taken)

    def sync_failed(self, error: OSError) -> StorageError:
        return StorageError(str(error))


class FakeFile:
    """A file whose sync waits for the gate, on a thread."""

    def __init__(self, log: FakeLog) -> None:
        self._log = log

    def begin_sync(self, done: Callable[[OSError | None], None]) -> bool:
        loop = asyncio.get_running_loop()

        def sync() -> None:
            self._log.entered.set()
            assert self._log.gate.wait(WAIT_S)
            error = OSError(5, "EIO") if isinstance(self._log.fault, (OSError, StorageError)) else None
            loop.call_soon_threadsafe(done, error)

        threading.Thread(target=sync).start()
        return True

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


class Target:
    def __init__(self) -> None:
        self.log = FakeLog()
        self.syncs = True
        self.staged_bytes = 0
        self.ends: list[int] = []
        self.errors: list[LogboomError] = []
        self.changed = asyncio.Event()

    def drain(self) -> int:
        size_bytes, self.staged_bytes = self.staged_bytes, 0
        return size_bytes

    def flushed(self, end: Offset) -> None:
        self.ends.append(end)
        self.changed.set()

    def flush_failed(self, error: LogboomError) -> None:
        self.errors.append(error)
        self.changed.set()

    def stage(self, flusher: Flusher) -> None:
        self.log.staged += 1
        self.staged_bytes += 1
        flusher.enqueue(self, 1)

    async def told(self) -> None:
        await asyncio.wait_for(self.changed.wait(), WAIT_S)
        self.changed.clear()


class House:
    def __init__(self, inline: bool, clock: Clock | None = None) -> None:
        self.inline = inline
        self.counters = Counters()
        self.failures: list[StorageError] = []
        self.flusher = Flusher(
            runtime=Runtime(clock=clock or SystemClock()),
            threads=4,
            counters=self.counters,
            log=structlog.testing.CapturingLogger(),
            on_failure=self.failures.append,
            staged_bytes_max=1_000,
            inline=inline,
        )


def run(body: Callable[[House], Awaitable[None]]) -> None:
    """Over both ways: by the thread alone, and with small rounds on the loop."""

    async def main(inline: bool) -> None:
        house = House(inline)
        await body(house)
        await asyncio.wait_for(house.flusher.stop(), WAIT_S)
        assert (house.counters.inline_flush_rounds > 0) <= inline

    for inline in (False, True):
        asyncio.run(main(inline))


def test_what_is_staged_is_counted_until_it_is_written() -> None:
    async def body(house: House) -> None:
        target, rooms = Target(), list[int]()
        flusher = house.flusher
        flusher.on_capacity(lambda: rooms.append(flusher.staged_bytes))
        target.log.gate.clear()
        for _ in range(999):
            target.stage(flusher)
        await asyncio.sleep(0)  # the turn of the loop ends, and what arrived in it is staged
        assert (flusher.staged_bytes, flusher.backpressured) == (999, False)
        target.stage(flusher)
        await asyncio.sleep(0)
        assert (flusher.staged_bytes, flusher.backpressured, flusher.backpressure_count) == (1_000, True, 1)
        target.log.gate.set()
        while target.log.durable < 1_000:
            await target.told()
        await flusher.run(lambda: None)
        assert (flusher.staged_bytes, flusher.backpressured, rooms) == (0, False, [rooms[0]])
        target.log.gate.clear()
        flusher.limit_staged(1)
        target.stage(flusher)
        await asyncio.sleep(0)
        assert (flusher.staged_bytes, flusher.backpressured) == (1, True)
        flusher.limit_staged(2)
        assert (flusher.staged_bytes, flusher.backpressured) == (1, False)
        target.log.gate.set()

    run(body)


def test_all_that_is_staged_in_one_turn_goes_with_one_flush() -> None:
    async def body(house: House) -> None:
        target, other = Target(), Target()
        for _ in range(10):
            target.stage(house.flusher)
        other.stage(house.flusher)
        await target.told()
        await other.told()
        assert (target.ends, target.log.flushes, other.ends) == ([10], 1, [1])
        assert (house.counters.flush_rounds, house.counters.flushed_partitions) == (1, 2)

    run(body)


def test_a_round_of_many_logs_reports_each_durable_end() -> None:
    async def body(house: House) -> None:
        targets = [Target() for _ in range(30)]
        for number, target in enumerate(targets):
            for _ in range(number + 1):
                target.stage(house.flusher)
        targets[7].log.fault = DiskFullError("no room")
        for target in targets:
            await target.told()
        assert [target.ends for target in targets] == [[n + 1] if n != 7 else [] for n in range(30)]
        assert house.counters.flush_rounds == 1
        assert len(targets[7].errors) == 1

    run(body)


def test_what_arrives_during_a_flush_goes_with_the_next_one() -> None:
    async def body(house: House) -> None:
        target = Target()
        target.log.gate.clear()
        target.stage(house.flusher)
        await asyncio.to_thread(target.log.entered.wait, WAIT_S)
        for _ in range(50):
            target.stage(house.flusher)
            await asyncio.sleep(0)  # a turn of the loop each
        assert target.ends == []
        target.log.gate.set()
        while target.log.durable < 51:
            await target.told()
        assert target.log.flushes == 2

    run(body)


def test_a_full_disk_is_told_and_the_next_write_is_tried() -> None:
    async def body(house: House) -> None:
        target = Target()
        target.log.fault = DiskFullError("no room")
        target.stage(house.flusher)
        await target.told()
        target.log.fault = None
        target.stage(house.flusher)
        await target.told()
        assert ([str(error) for error in target.errors], target.ends) == (["no room"], [2])
        assert house.flusher.failure is None

    run(body)


@pytest.mark.parametrize("fault", [StorageError("EIO"), OSError(5, "Input/output error")])
def test_a_failed_sync_is_never_tried_again_and_stops_the_whole_log_dir(fault: Exception) -> None:
    async def body(house: House) -> None:
        target, other = Target(), Target()
        target.log.fault = fault
        target.stage(house.flusher)
        await target.told()
        target.log.fault = None
        target.stage(house.flusher)
        other.stage(house.flusher)
        await other.told()
        assert target.log.flushes == 1
        assert other.log.flushes == 0
        assert house.failures == [house.flusher.failure] == target.errors == other.errors

    run(body)


def test_a_bug_stops_one_log_only() -> None:
    async def body(house: House) -> None:
        target, other = Target(), Target()
        target.log.fault = AssertionError("cannot be")
        target.stage(house.flusher)
        await target.told()
        other.stage(house.flusher)
        await other.told()
        target.stage(house.flusher)
        await house.flusher.run(lambda: None)
        assert target.log.flushes == 1, "it is not flushed again"
        assert "cannot be" in str(target.errors[0])
        assert other.ends == [1]
        assert house.flusher.failure is None

    run(body)


def test_jobs_keep_their_place_behind_what_was_marked() -> None:
    async def body(house: House) -> None:
        target = Target()
        target.stage(house.flusher)
        assert await house.flusher.run(lambda: target.log.durable) == 1
        assert target.ends == [1]

    run(body)


def test_a_job_that_meets_a_bad_disk_stops_the_log_dir_and_any_other_error_does_not() -> None:
    def fail(error: Exception) -> None:
        raise error

    async def body(house: House) -> None:
        with pytest.raises(DiskFullError):
            await house.flusher.run(lambda: fail(DiskFullError("no room")))
        with pytest.raises(ValueError, match="odd"):
            await house.flusher.run(lambda: fail(ValueError("odd")))
        assert house.flusher.failure is None
        with pytest.raises(StorageError, match="disk failed"):
            await house.flusher.run(lambda: fail(OSError(5, "Input/output error")))
        assert house.failures == [house.flusher.failure]

    run(body)


def test_a_target_that_raises_twice_costs_no_other_its_turn() -> None:
    """Whether in staging or in completing a flush: all targets of the same turn are drained, flushed and told."""

    class Broken(Target):
        def drain(self) -> int:
            raise ZeroDivisionError

        def flush_failed(self, error: LogboomError) -> None:
            super().flush_failed(error)
            raise LookupError

    class BrokenLater(Target):
        def flushed(self, end: Offset) -> None:
            raise ZeroDivisionError

        def flush_failed(self, error: LogboomError) -> None:
            super().flush_failed(error)
            raise LookupError

    async def body(house: House) -> None:
        broken, later, good = Broken(), BrokenLater(), Target()
        for target in (broken, later, good):
            target.stage(house.flusher)
        for target in (broken, later, good):
            await target.told()
        assert good.ends == [1]
        assert [len(target.errors) for target in (broken, later, good)] == [1, 1, 0]
        assert all("an internal error" in str(target.errors[0]) for target in (broken, later))
        good.stage(house.flusher)
        later.stage(house.flusher)
        await good.told()
        assert (good.ends, later.log.flushes) == ([1, 2], 1)
        assert house.flusher.failure is None

    run(body)


def test_an_append_that_an_ack_brings_waits_for_the_next_turn() -> None:
    """Draining calls back, and a callback may enqueue so much that a round would be due at once."""

    class Replying(Target):
        depth = deepest = 0

        def drain(self) -> int:
            self.depth += 1
            self.deepest = max(self.deepest, self.depth)
            if self.log.staged < 5:
                self.log.staged += 1
                house.flusher.enqueue(self, EARLY_BYTES)
            self.depth -= 1
            return 1

    house: House

    async def body(given: House) -> None:
        nonlocal house
        house = given
        target = Replying()
        target.stage(house.flusher)
        while target.log.durable < 5:
            await target.told()
        assert target.deepest == 1

    run(body)


def test_a_job_begins_once_the_loop_has_taken_back_what_failed() -> None:
    """The loop takes it back under the log's lock, which a job that hangs would hold."""

    async def body(house: House) -> None:
        target = Target()
        target.log.fault = DiskFullError("no room")
        target.stage(house.flusher)
        assert await house.flusher.run(lambda: list(target.errors)) == [target.log.fault]

    run(body)


def test_the_next_round_is_at_the_disk_while_clients_are_answered() -> None:
    class Watching(Target):
        """Notes how many rounds had begun whenever one is answered."""

        def __init__(self) -> None:
            super().__init__()
            self.begun: list[int] = []

        def flushed(self, end: Offset) -> None:
            self.begun.append(self.log.flushes)
            super().flushed(end)

    async def main() -> None:
        house, target = House(inline=True, clock=ManualClock()), Watching()  # no sync is ever slow
        target.log.gate.clear()
        target.stage(house.flusher)
        await asyncio.to_thread(target.log.entered.wait, WAIT_S)
        target.stage(house.flusher)
        await asyncio.sleep(0)
        job = asyncio.ensure_future(house.flusher.run(lambda: target.log.durable))
        await asyncio.sleep(0)
        target.log.gate.set()
        assert await asyncio.wait_for(job, WAIT_S) == 2, "a job waits until all before it are flushed"
        while len(target.ends) < 2:
            await target.told()
        target.log.gate.clear()
        target.log.entered.clear()
        target.stage(house.flusher)
        await asyncio.to_thread(target.log.entered.wait, WAIT_S)
        target.stage(house.flusher)
        await asyncio.sleep(0)
        target.log.gate.set()
        while target.log.durable < 4:
            await target.told()
        assert target.begun[2:] == [4, 4]
        await asyncio.wait_for(house.flusher.stop(), WAIT_S)

    asyncio.run(main())
