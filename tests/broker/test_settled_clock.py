"""A wall clock that is set wrong deletes and forgets nothing that is not old."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.broker.messages import Message, publish
from tests.broker.node import append, append_soon, batch, running
from tests.support.simulated import machine, run

from logboom.base.ids import BrokerId
from logboom.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from logboom.broker.broker import Broker
from logboom.broker.config import BrokerConfig, GroupsConfig
from logboom.broker.control.wall_clocks import WallClocks
from logboom.broker.settled_clock import FRESH_S, SETTLES_AFTER_S, SettledClock
from logboom.groups import Commit, OffsetToCommit
from logboom.sim.machine import SimClock

YEARS_MS = 10 * 365 * DAY_MS


@dataclass
class TwoClocks:
    """The Clock port, of a wall clock that may be set."""

    now_s: float = 1_000.0
    offset_ms: int = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.offset_ms + int(self.now_s * 1_000)

    def monotonic_s(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return int(self.now_s * 1_000_000_000)


@pytest.fixture
def clocks() -> TwoClocks:
    return TwoClocks()


def test_it_is_the_wall_clock_while_that_does_not_jump(clocks: TwoClocks) -> None:
    settled = SettledClock(clocks)
    for passed_s in (0, 0.02, 1, 3_600, 40 * 86_400):
        clocks.now_s += passed_s
        clocks.offset_ms += int(passed_s / 10)  # a clock that runs fast by 100 ppm
        assert settled.now_ms() == clocks.wall_ms()
    clocks.now_s += 1
    clocks.offset_ms += MINUTE_MS - 1
    assert settled.now_ms() == clocks.wall_ms(), "a step of a time server"
    assert settled.held_back_ms() == 0


@pytest.mark.parametrize("jump_ms", [2 * MINUTE_MS, HOUR_MS, YEARS_MS])
def test_a_jump_forward_counts_once_it_has_lasted_for_a_day(clocks: TwoClocks, jump_ms: int) -> None:
    settled = SettledClock(clocks)
    before_ms = settled.now_ms()
    clocks.offset_ms += jump_ms
    for passed_s in (1, 3_600, SETTLES_AFTER_S - 3_601):
        clocks.now_s += passed_s
        assert settled.now_ms() == before_ms + int(clocks.now_s - 1_000) * 1_000
        assert settled.held_back_ms() == jump_ms
    clocks.now_s += 2
    assert settled.now_ms() == clocks.wall_ms()
    assert settled.held_back_ms() == 0


def test_a_jump_that_is_taken_back_has_never_been(clocks: TwoClocks) -> None:
    settled = SettledClock(clocks)
    for _ in range(3):
        clocks.offset_ms += YEARS_MS
        clocks.now_s += SETTLES_AFTER_S / 2
        assert settled.now_ms() == clocks.wall_ms() - YEARS_MS
        clocks.offset_ms -= YEARS_MS
        clocks.now_s += 1
        assert settled.now_ms() == clocks.wall_ms()


def test_a_jump_back_counts_at_once(clocks: TwoClocks) -> None:
    settled = SettledClock(clocks)
    clocks.offset_ms -= HOUR_MS
    clocks.now_s += 2 * FRESH_S
    assert settled.now_ms() == clocks.wall_ms()
    clocks.now_s += 10
    assert settled.now_ms() == clocks.wall_ms()


def test_a_clock_that_is_ahead_of_the_others_counts_as_far_as_they_show(clocks: TwoClocks) -> None:
    clocks.offset_ms += YEARS_MS
    settled = SettledClock(clocks)
    assert settled.now_ms() == clocks.wall_ms(), "nobody has told anything yet"
    settled.others_show(0)
    assert settled.now_ms() == clocks.wall_ms(), "nor now"
    others_ms = clocks.wall_ms() - YEARS_MS
    settled.others_show(others_ms)
    clocks.now_s += 2 * SETTLES_AFTER_S
    assert settled.now_ms() == others_ms + 2 * DAY_MS, "however long it lasts"
    assert settled.held_back_ms() == YEARS_MS
    assert settled.own_ms() == clocks.wall_ms(), "the others are told what this one would show by itself"
    clocks.offset_ms -= YEARS_MS
    assert settled.now_ms() == clocks.wall_ms()


def test_a_clock_that_is_behind_the_others_counts(clocks: TwoClocks) -> None:
    settled = SettledClock(clocks)
    settled.others_show(clocks.wall_ms() + YEARS_MS)
    assert settled.now_ms() == clocks.wall_ms()
    assert settled.held_back_ms() == 0


def test_the_others_clocks_do_not_hide_a_jump(clocks: TwoClocks) -> None:
    settled = SettledClock(clocks)
    before_ms = settled.now_ms()
    clocks.offset_ms += YEARS_MS
    settled.others_show(clocks.wall_ms())
    assert settled.now_ms() == settled.own_ms() == before_ms


@pytest.mark.parametrize("jump_ms", [2 * HOUR_MS, YEARS_MS])
def test_a_process_that_starts_after_a_jump_does_not_believe_it_for_a_day_of_running(
    clocks: TwoClocks, jump_ms: int
) -> None:
    noted = SettledClock(clocks).noted()
    own_ms, clocks.offset_ms = noted.own_ms, clocks.offset_ms + jump_ms
    for _ in range(4):  # four processes, each for six hours
        settled = SettledClock(clocks)
        settled.resume(noted)
        assert settled.now_ms() == own_ms
        clocks.now_s += SETTLES_AFTER_S / 4 - 1
        own_ms += DAY_MS // 4 - 1_000
        assert settled.now_ms() == settled.own_ms() == own_ms
        noted = settled.noted()
    clocks.now_s += 4
    assert settled.now_ms() == clocks.wall_ms()
    assert settled.noted() == (clocks.wall_ms(), 0.0)


def test_a_process_that_starts_after_a_jump_that_is_taken_back_has_lost_nothing(clocks: TwoClocks) -> None:
    noted = SettledClock(clocks).noted()
    clocks.offset_ms += YEARS_MS
    settled = SettledClock(clocks)
    settled.resume(noted)
    assert settled.held_back_ms() == YEARS_MS
    clocks.offset_ms -= YEARS_MS
    clocks.now_s += 60
    assert settled.now_ms() == clocks.wall_ms()


@pytest.mark.parametrize("passed_ms", [-YEARS_MS, 0, HOUR_MS])
def test_a_process_that_starts_soon_after_the_last_one_takes_the_wall_clock(clocks: TwoClocks, passed_ms: int) -> None:
    noted = SettledClock(clocks).noted()
    clocks.offset_ms += passed_ms
    settled = SettledClock(clocks)
    settled.resume(noted)
    assert settled.now_ms() == clocks.wall_ms()
    assert settled.noted() == (clocks.wall_ms(), 0.0)


@pytest.mark.parametrize(
    ("shown_ms", "median_ms"),
    [
        ({1: 5_000}, 0),
        ({1: 5_000, 2: 9_000}, 5_000),
        ({1: 5_000, 2: 9_000, 3: YEARS_MS}, 9_000),
        ({1: 5_000, 2: 9_000, 3: 1}, 5_000),
        ({1: 5_000, 2: 9_000, 3: 0}, 5_000),
    ],
)
def test_the_median_of_the_brokers_clocks(shown_ms: dict[int, int], median_ms: int) -> None:
    clocks = WallClocks()
    for broker, wall_ms in shown_ms.items():
        clocks.heard(BrokerId(broker), wall_ms, 100.0)
    assert clocks.median_ms(100.0, brokers=3) == median_ms
    assert clocks.median_ms(101.5, brokers=3) == (median_ms + 1_500 if median_ms else 0)
    assert clocks.median_ms(111.0, brokers=3) == 0, "nobody was heard for long"


def _clock() -> SimClock:
    clock = machine()[0].clock
    assert isinstance(clock, SimClock)
    return clock


async def _next_process(path: Path, **config: Any) -> Broker:
    """A broker on the same machine and disk that takes nothing along but what is on the disk."""
    runtime, disk_of = machine()
    log = structlog.wrap_logger(structlog.testing.CapturingLogger())
    settings = BrokerConfig(data_dir=path, **config)
    return await Broker.start(settings, runtime=replace(runtime), log=log, open_disk=disk_of)


def test_a_clock_that_is_set_years_ahead_deletes_no_record(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, retention_check_interval_s=0.5) as broker:
            await broker.catalog.create_stream("orders", config={"segment.bytes": "16384", "retention.ms": str(DAY_MS)})
            partition, clock = broker.replicas.find("orders", 0), _clock()
            for _ in range(6):
                await append(partition, bytes(5_000), timestamp_ms=clock.wall_ms())
            clock.wall_offset_ms += YEARS_MS
            await asyncio.sleep(2)  # for the next heartbeats
            assert await partition.deletion.enforce_retention(partition.config) == 0
            assert partition.log_start_offset == 0

    run(body)


def test_a_broker_that_starts_with_a_clock_that_is_years_ahead_deletes_no_record(tmp_path: Path) -> None:
    async def body() -> None:
        settings = {"segment.bytes": "16384", "retention.ms": str(DAY_MS)}
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", config=settings)
            for _ in range(6):
                await append(broker.replicas.find("orders", 0), bytes(5_000), timestamp_ms=_clock().wall_ms())
        _clock().wall_offset_ms += YEARS_MS
        broker = await _next_process(tmp_path)
        try:
            partition = broker.replicas.find("orders", 0)
            assert len(partition.log.segments) > 1
            assert await partition.deletion.enforce_retention(partition.config) == 0
        finally:
            await broker.stop()

    run(body)


def test_a_producer_whose_ack_was_lost_is_known_after_such_a_jump(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            partition, clock = broker.replicas.find("orders", 0), _clock()
            first = await append_soon(partition, batch(b"a", producer=(7, 0, 0)))
            clock.wall_offset_ms += 2 * DAY_MS
            await asyncio.sleep(2)  # for the next heartbeats
            again = await append_soon(partition, batch(b"a", producer=(7, 0, 0)))
            assert again.base_offset == first.base_offset
            assert partition.log_end_offset == 1

    run(body)


def test_a_message_that_is_sent_again_after_such_a_jump_is_a_duplicate_where_ids_are_read_from_the_log(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            partition, clock = broker.replicas.find("orders", 0), _clock()
            assert await publish(broker, partition, Message(b"a", id=b"one")) == [0]
            clock.wall_offset_ms += HOUR_MS
            await asyncio.sleep(2)  # for the next heartbeats
            assert await publish(broker, partition, Message(b"b", id=b"two")) == [1]
            await broker.catalog.change_stream_config("orders", {"logboom.nats.duplicate.window.ms": "60000"})
            assert await publish(broker, partition, Message(b"a", id=b"one"), Message(b"b", id=b"two")) == [-1, -2]
            assert broker.counters.message_ids_read_bytes > 0, "the change had the ids forgotten"

    run(body)


def test_a_clock_that_is_set_a_month_ahead_deletes_no_committed_offset(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, groups={"offsets_retention_check_ms": 1_000}) as broker:
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            place = OffsetToCommit("clicks", 0, 5, -1, "")
            commit = Commit(group_id="g", member_id="", generation=-1, offsets=(place,))
            assert (await broker.groups.commit(commit)).results == (None,)
            _clock().wall_offset_ms += 30 * DAY_MS
            await asyncio.sleep(5)
            assert broker.groups.committed("g")["clicks", 0].offset == 5

    run(body)


def test_what_a_clock_stamps_that_was_set_right_is_not_old_at_the_next_start(tmp_path: Path) -> None:
    async def body() -> None:
        clock = _clock()
        clock.wall_offset_ms -= YEARS_MS  # a machine that starts without a clock, before a time server has answered
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            clock.wall_offset_ms += YEARS_MS
            await asyncio.sleep(0.1)
            place = OffsetToCommit("clicks", 0, 5, -1, "")
            await broker.groups.commit(Commit(group_id="g", member_id="", generation=-1, offsets=(place,)))
            first = await append_soon(broker.replicas.find("clicks", 0), batch(b"a", producer=(7, 0, 0)))
        broker = await _next_process(tmp_path, groups=GroupsConfig(offsets_retention_check_ms=1_000))
        try:
            await broker.groups.loaded()
            await asyncio.sleep(5)
            assert broker.groups.committed("g")["clicks", 0].offset == 5
            again = await append_soon(broker.replicas.find("clicks", 0), batch(b"a", producer=(7, 0, 0)))
            assert again.base_offset == first.base_offset
        finally:
            await broker.stop()

    run(body)
