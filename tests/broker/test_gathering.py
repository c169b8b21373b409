"""Small appends that wait for the commit of earlier ones, and what ends their waiting."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from tests.broker.node import append, append_soon, batch
from tests.broker.replicated import Cluster, on_brokers
from tests.support.simulated import run

from logboom.base.errors import NotLeaderError
from logboom.base.ids import BrokerId, Offset
from logboom.broker.partition import gathering
from logboom.broker.partition.gathering import FEW_BYTES, AppendGathering
from logboom.broker.partition.replica import AppendResult, Partition


class _Leadership:
    """A leader with two followers, which has committed what is below 5 of its 7 records."""

    isr = frozenset(map(BrokerId, (1, 2, 3)))
    high_watermark = Offset(5)
    log_end_offset = Offset(7)


def test_only_what_waits_for_a_commit_to_come_is_held() -> None:
    async def live() -> None:
        leadership, enqueued = _Leadership(), list[int]()
        gathered = AppendGathering(leadership, leadership, enqueued.append)
        gathered.arrived(10, -1)
        gathered.arrived(20, -1)
        assert enqueued == []
        gathered.release()
        assert enqueued == [30], "the mark has moved"
        gathered.release()
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

    run(live)


def test_what_is_held_goes_after_a_while() -> None:
    async def live() -> None:
        leadership, enqueued = _Leadership(), list[int]()
        gathered = AppendGathering(leadership, leadership, enqueued.append)
        gathered.arrived(10, -1)
        await asyncio.sleep(0.015)
        gathered.arrived(20, -1)
        assert enqueued == []
        await asyncio.sleep(0.006)
        assert enqueued == [30], "as long after the first as it may take"

    run(live)


@contextlib.contextmanager
def held_for_ever() -> Iterator[None]:
    """Nothing but what the test does ends the waiting."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gathering, "_HELD_MAX_S", 3_600.0)
        yield


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
