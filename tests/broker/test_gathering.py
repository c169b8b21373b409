"""Small appends that wait for the commit of earlier ones, and what ends their waiting."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest
from tests.broker.node import append, append_soon, batch, values_of
from tests.broker.replicated import Cluster, on_brokers
from tests.support.full_disk import full
from tests.support.simulated import machine, run

from logboom.base.errors import DiskFullError, NotLeaderError
from logboom.base.ids import BrokerId, Offset
from logboom.broker.partition import gathering
from logboom.broker.partition.gathering import FEW_BYTES, AppendGathering, HeldAppends
from logboom.broker.partition.replica import AppendResult, Partition
from logboom.sim.disk import SimDisk
from logboom.sim.machine import SimClock


class _Leadership:
    """A leader with two followers, which has committed what is below 5 of its 7 records."""

    isr = frozenset(map(BrokerId, (1, 2, 3)))
    high_watermark = Offset(5)
    log_end_offset = Offset(7)
    checked = 0

    def check_last(self) -> None:
        self.checked += 1

    def gathering(self, enqueued: list[int]) -> tuple[AppendGathering, HeldAppends]:
        held = HeldAppends(enqueued.append)
        return AppendGathering(self, self, self, held), held


def test_only_what_waits_for_a_commit_to_come_is_held() -> None:
    async def live() -> None:
        leadership, enqueued = _Leadership(), list[int]()
        gathered, held = leadership.gathering(enqueued)
        gathered.arrived(10, -1)
        gathered.arrived(20, -1)
        assert enqueued == []
        held.release()
        assert enqueued == [30], "the mark has moved"
        held.release()
        assert enqueued == [30], "nothing was held"
        gathered.arrived(10, -1)
        gathered.arrived(5, 1)
        assert enqueued == [30, 15], "acks=1 takes along what came before it, in its order"
        gathered.arrived(FEW_BYTES - 1, -1)
        gathered.arrived(1, -1)
        assert enqueued == [30, 15, FEW_BYTES], "no more than a few bytes wait"
        leadership.high_watermark = leadership.log_end_offset
        gathered.arrived(7, -1)
        assert enqueued[3:] == [7], "nothing is being committed"
        leadership.high_watermark, leadership.isr = Offset(5), frozenset({BrokerId(1)})
        gathered.arrived(8, -1)
        assert enqueued[4:] == [8], "no other replica is waited for"
        assert leadership.checked == 4, "what is not drained at once is checked when it comes"

    run(live)


def test_what_is_held_goes_after_a_while() -> None:
    async def live() -> None:
        leadership, enqueued = _Leadership(), list[int]()
        gathered, _ = leadership.gathering(enqueued)
        gathered.arrived(10, -1)
        await asyncio.sleep(0.015)
        gathered.arrived(20, -1)
        assert enqueued == []
        await asyncio.sleep(0.006)
        assert enqueued == [30], "as long after the first as it may take"

    run(live)


def test_what_ten_thousand_partitions_hold_goes_in_its_time_and_leaves_no_timer() -> None:
    partitions = 10_000

    async def live() -> None:
        loop, leadership, gone = asyncio.get_running_loop(), _Leadership(), list[tuple[int, float]]()
        gathered = []
        for number in range(partitions):
            held = HeldAppends(lambda size, number=number: gone.append((number, loop.time())))  # type: ignore[misc]
            gathered.append((AppendGathering(leadership, leadership, leadership, held), held))
        began_s = loop.time()
        for one, _ in gathered:
            one.arrived(100, -1)
            one.arrived(100, -1)
        for _, held in gathered[: partitions // 2]:
            held.release()
        assert [number for number, _ in gone] == list(range(partitions // 2)), "their marks have moved"
        await asyncio.sleep(0.1)
        assert [number for number, _ in gone] == list(range(partitions)), "each once, in the order in which they came"
        assert all(at_s - began_s == pytest.approx(0.02) for _, at_s in gone[partitions // 2 :])

    run(live)


@contextlib.contextmanager
def held_for_ever() -> Iterator[None]:
    """Nothing but what the test does ends the waiting."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gathering, "_HELD_MAX_S", 3_600.0)
        yield


@contextlib.contextmanager
def without_syncs(disk: SimDisk) -> Iterator[None]:
    """The syncs of a disk end afterwards: what it copies meanwhile is not committed."""
    ends, syncs = list[Callable[[OSError | None], None]](), disk.started_syncs
    disk.started_syncs = lambda _, ended: ends.append(ended)
    try:
        yield
    finally:
        disk.started_syncs = syncs
        for ended in ends:
            ended(None)


async def committing(leader: Partition) -> "asyncio.Future[AppendResult]":
    """An append that is being committed: nothing was when it came, so it went at once."""
    end = leader.log_end_offset
    assert leader.high_watermark == end
    ack = append_soon(leader, batch(b"first"))
    while leader.log_end_offset == end:
        await asyncio.sleep(0)
    assert leader.high_watermark == end
    return ack


@on_brokers(3)
async def test_appends_during_a_commit_are_one_round_and_acked_in_order(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    leader = cluster.leader("orders")
    await append(leader, b"0")
    with held_for_ever():
        rounds = cluster[1].counters.flush_rounds
        acks = [await committing(leader)]
        for number in (2, 3, 4):
            acks.append(append_soon(leader, batch(b"%d" % number)))
            await asyncio.sleep(0)
        assert leader.log_end_offset == 2
        assert [(await ack).base_offset for ack in acks] == [1, 2, 3, 4]
    assert leader.log_end_offset == leader.high_watermark == 5
    assert cluster[1].counters.flush_rounds - rounds == 2, "the first one's, and one for all others"


@on_brokers(3)
async def test_a_leadership_that_ends_refuses_what_is_held(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    leader = cluster.leader("orders")
    await append(leader, b"0")
    with held_for_ever():
        cluster.network.cut(BrokerId(1), BrokerId(2))
        written = await committing(leader)
        held = append_soon(leader, batch(b"2"))
        await cluster.elect("orders", 0, 2)
        for ack in (written, held):
            with pytest.raises(NotLeaderError):
                await ack
    assert leader.log_end_offset <= 2, "what was held is in no log"


@on_brokers(2)
async def test_a_follower_that_leaves_the_isr_ends_the_waiting(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2], min_insync_replicas="1")
    leader = cluster.leader("orders")
    await append(leader, b"0")
    with held_for_ever():
        cluster.network.cut(BrokerId(1), BrokerId(2))
        acks = [await committing(leader)]
        acks.append(append_soon(leader, batch(b"2")))
        assert [(await ack).base_offset for ack in acks] == [1, 2]


@on_brokers(2)
async def test_a_disk_that_fills_up_refuses_what_was_held_and_that_alone(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2])
    leader = cluster.leader("orders")
    await append(leader, b"0")
    with without_syncs(cluster.disk(2)):
        written = await committing(leader)
        held = [append_soon(leader, batch(b"2")), append_soon(leader, batch(b"3"))]
        with full(cluster.disk(1), ".log"):
            for one in held:
                with pytest.raises(DiskFullError):
                    await one
            assert (leader.log_end_offset, written.done()) == (2, False)
    assert (await written).base_offset == 1
    assert (await append(leader, b"again")).base_offset == 2


@on_brokers(3)
async def test_a_broker_that_stops_in_order_answers_what_it_holds(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    leader = cluster.leader("orders")
    await append(leader, b"0")
    with held_for_ever():
        cluster.network.cut(BrokerId(1), BrokerId(2))
        written = await committing(leader)
        held = append_soon(leader, batch(b"2"))
        await cluster.stop(1)
        for ack in (written, held):
            with pytest.raises(NotLeaderError):
                await ack
    assert (await append(cluster.leader("orders"), b"next")).base_offset in (1, 2)
    assert b"2" not in await values_of(cluster.leader("orders"))


@on_brokers(2)
async def test_a_wall_clock_that_jumps_keeps_nothing_longer(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2])
    leader = cluster.leader("orders")
    await append(leader, b"0")
    clock = machine()[0].clock
    assert isinstance(clock, SimClock)
    for jump_ms in (-3_600_000, 3_600_000):
        end = leader.log_end_offset
        with without_syncs(cluster.disk(2)):
            acks = [await committing(leader), append_soon(leader, batch(b"held"))]
            clock.wall_offset_ms += jump_ms
            await asyncio.sleep(0.019)
            assert leader.log_end_offset == end + 1
            await asyncio.sleep(0.002)
            assert leader.log_end_offset == end + 2
        assert [(await ack).base_offset for ack in acks] == [end, end + 1]
