"""Group commit: what was marked while a flush ran goes with the next; failures stop what they must and no more."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
import structlog

from logboom.base.errors import DiskFullError, LogboomError, StorageError
from logboom.base.ids import Offset
from logboom.broker.disk.flusher import Flusher
from logboom.broker.metrics import Counters
from logboom.broker.runtime import Runtime

WAIT_S = 20.0


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

    def flush(self, *, sync: bool) -> Offset:
        assert sync
        self.flushes += 1
        taken = self.staged
        self.entered.set()
        assert self.gate.wait(WAIT_S)
        if self.fault is not None:
            raise self.fault
        self.durable = taken
        return Offset(taken)


class Target:
    def __init__(self) -> None:
        self.log = FakeLog()
        self.syncs = True
        self.marked = False
        self.blocked = False
        self.ends: list[int] = []
        self.errors: list[LogboomError] = []
        self.changed = asyncio.Event()

    def flushed(self, end: Offset) -> None:
        self.ends.append(end)
        self.changed.set()

    def flush_failed(self, error: LogboomError) -> None:
        self.errors.append(error)
        if isinstance(error, DiskFullError):
            self.blocked = False
        self.changed.set()

    def stage(self, flusher: Flusher) -> None:
        self.log.staged += 1
        flusher.staged(self, 1)

    async def told(self) -> None:
        await asyncio.wait_for(self.changed.wait(), WAIT_S)
        self.changed.clear()


class House:
    def __init__(self) -> None:
        self.counters = Counters()
        self.failures: list[StorageError] = []
        self.flusher = Flusher(
            runtime=Runtime(),
            threads=4,
            counters=self.counters,
            log=structlog.testing.CapturingLogger(),
            on_failure=self.failures.append,
            staged_bytes_max=1_000,
        )


def run(body: Callable[[House], Awaitable[None]]) -> None:
    async def main() -> None:
        house = House()
        await body(house)
        await asyncio.wait_for(house.flusher.stop(), WAIT_S)

    asyncio.run(main())


def test_what_is_staged_is_counted_until_it_is_written() -> None:
    async def body(house: House) -> None:
        target, rooms = Target(), list[int]()
        flusher = house.flusher
        flusher.on_capacity(lambda: rooms.append(flusher.staged_bytes))
        for _ in range(999):
            target.stage(flusher)
        assert (flusher.staged_bytes, flusher.backpressured) == (999, False)
        target.stage(flusher)
        assert (flusher.staged_bytes, flusher.backpressured, flusher.backpressure_count) == (1_000, True, 1)
        await target.told()
        assert (flusher.staged_bytes, flusher.backpressured, rooms) == (0, False, [0])
        flusher.limit_staged(1)
        target.stage(flusher)
        assert flusher.backpressured
        flusher.limit_staged(2)
        assert not flusher.backpressured

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


def test_a_round_of_many_logs_tells_each_its_own_end() -> None:
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


def test_a_fault_of_ours_stops_one_log_only() -> None:
    async def body(house: House) -> None:
        target, other = Target(), Target()
        target.log.fault = AssertionError("cannot be")
        target.stage(house.flusher)
        await target.told()
        other.stage(house.flusher)
        await other.told()
        assert target.blocked
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
