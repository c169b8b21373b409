"""What followers and leaders tell each other, where messages are lost, overtake each other or are not taken."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from msgspec import structs
from tests.broker.node import append, append_soon, batch
from tests.broker.replicated import Cluster, on_brokers, stays, until

from logboom.base.errors import InvalidRequestError
from logboom.base.ids import BrokerId
from logboom.base.ports import Bytes
from logboom.broker.partition import follower as partition_follower
from logboom.broker.partition.reads import CommittedReads
from logboom.broker.partition.replica import Partition
from logboom.broker.peers import FrameKind, PeerIdentity, PeerUnavailableError, SendPart
from logboom.broker.replication import fetch_session, serving, wire
from logboom.metadata.membership import fence
from logboom.metadata.reassignment import reassign


@on_brokers(2)
async def test_durable_ends_that_are_lost_on_the_way_come_again(cluster: Cluster) -> None:
    """Found by `logboom sim run --nodes 3 --seed 91`: nothing was acknowledged any more, or a replica never in sync."""
    await cluster.create("orders", [1, 2])
    cluster.network.lost_posts.add(FrameKind.DURABLE_END)
    before = cluster.assignment("orders")
    for number in range(3):
        await append(cluster.leader("orders"), b"%d" % number)
    assert cluster.assignment("orders") == before, "no replica had to leave the ISR for it"


@on_brokers(2, minimum=1)
async def test_a_durable_end_that_overtakes_its_fetch_counts(cluster: Cluster) -> None:
    """A request is handled by a task, a message at once. Found by `logboom sim run --nodes 3 --seed 39`: a replica was
    never in sync again."""
    stream = await cluster.create("orders", [1, 2])
    await cluster.stop(2)
    leader = cluster.leader("orders")
    await append(leader, b"a")
    follower, own_epoch = cluster.network.join(2), cluster.image.brokers[BrokerId(2)].epoch
    state = cluster.assignment("orders").partition_epoch

    async def fetch(number: int, offset: int, durable_end: int, last_epoch: int, reports_sent: int) -> None:
        epoch = leader.leader_epoch
        item = wire.FetchItem(stream.id.bytes, 0, number, epoch, offset, last_epoch, durable_end, state)
        request = wire.FetchRequest(7, number == 1, own_epoch, 0, 1_000, 1_000, [item], reports_sent)
        await follower.call(BrokerId(1), FrameKind.FETCH, wire.encode_request(request), timeout_s=5)

    await fetch(1, offset=0, durable_end=0, last_epoch=-1, reports_sent=0)
    end = wire.DurableEnd(stream.id.bytes, 0, 2, leader.leader_epoch, 1, state)
    ends = wire.DurableEnds(7, own_epoch, [end])
    follower.post(BrokerId(1), FrameKind.DURABLE_END, wire.encode_ends(ends))
    await fetch(2, offset=1, durable_end=0, last_epoch=leader.leader_epoch, reports_sent=1)
    assert leader.role.leader.follower_end(BrokerId(2)) == 1
    with pytest.raises(InvalidRequestError):
        await fetch(3, offset=1, durable_end=1, last_epoch=leader.leader_epoch, reports_sent=2)


@on_brokers(2, minimum=1)
async def test_a_request_for_thousands_of_partitions_lets_others_have_their_turn(cluster: Cluster) -> None:
    """Heartbeats wait for as long as the loop is kept: brokers lost their leases when thousands of partitions moved."""
    await cluster.create("orders", [1, 2])
    await cluster.stop(2)
    follower, own_epoch = cluster.network.join(2), cluster.image.brokers[BrokerId(2)].epoch
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def turns_for(partitions: int, session: int) -> int:
        items = [wire.FetchItem(bytes(16), index, 1, 0, 0, -1, 0) for index in range(partitions)]
        request = wire.FetchRequest(session, True, own_epoch, 0, 1_000, 1_000, items, 0)
        before = turns
        answer = await follower.call(BrokerId(1), FrameKind.FETCH, wire.encode_request(request), timeout_s=5)
        assert len(wire.decode_answer(answer)[0]) == partitions
        return turns - before

    counting = asyncio.ensure_future(others())
    few = await turns_for(1, session=1)
    assert await turns_for(3_000, session=2) >= few + 10
    counting.cancel()


@on_brokers(2, minimum=1)
async def test_a_mark_that_a_follower_did_not_take_is_told_again(cluster: Cluster) -> None:
    """It had asked anew, since the partition had changed, when the answer came. Found by `logboom sim run --nodes 3`
    with disks that hang: an idle copy never heard what is committed, and showed consumers nothing."""
    stream = await cluster.create("orders", [1, 2])
    await cluster.stop(2)
    leader = cluster.leader("orders")
    await append(leader, b"a")
    follower, own_epoch = cluster.network.join(2), cluster.image.brokers[BrokerId(2)].epoch
    state, epoch = cluster.assignment("orders").partition_epoch, leader.leader_epoch

    async def marks(number: int, offset: int, last_epoch: int, last_answer: int) -> list[int]:
        item = wire.FetchItem(stream.id.bytes, 0, number, epoch, offset, last_epoch, offset, state, last_answer)
        request = wire.FetchRequest(7, number == 1, own_epoch, 100, 1_000, 1_000, [item], 0)
        answer = await follower.call(BrokerId(1), FrameKind.FETCH, wire.encode_request(request), timeout_s=5)
        return [one.high_watermark for one, _ in wire.decode_answer(answer)[0]]

    await marks(1, offset=0, last_epoch=-1, last_answer=0)
    assert await marks(2, offset=1, last_epoch=epoch, last_answer=1) == [1]
    assert await marks(3, offset=1, last_epoch=epoch, last_answer=1) == [1], "the second one was not taken"
    assert await marks(4, offset=1, last_epoch=epoch, last_answer=3) == [], "there is nothing new"


class Tap:
    """What broker 1 is asked for one stream by its followers, and what it answers in parts."""

    def __init__(self, cluster: Cluster, stream: bytes) -> None:
        peers = cluster.network.members[BrokerId(1)]
        serve = peers.handler(FrameKind.FETCH)
        self.asked: list[wire.FetchItem] = []
        self.sent: list[tuple[int, int, bool]] = []
        """Number, place and whether it stands of each answer that had records."""

        async def tapped(sender: PeerIdentity, body: memoryview, send_part: SendPart) -> Sequence[Bytes]:
            self.asked += [item for item in wire.decode_request(body).items if item.stream == stream]

            def tapped_part(part: Sequence[Bytes]) -> None:
                items = [item for item, records in wire.decode_answer(memoryview(b"".join(part)))[0] if records]
                self.sent += [(item.number, item.offset, item.stands) for item in items if item.stream == stream]
                send_part(part)

            try:
                return await serve(sender, body, tapped_part)
            except RuntimeError as error:  # as the server of real connections does
                raise PeerUnavailableError("the broker that was asked failed") from error

        peers.serve_in_parts(FrameKind.FETCH, tapped)


async def tapped_pair(cluster: Cluster) -> tuple[Partition, Partition, Tap]:
    """A leader, its follower in sync with one record, and what passes between them from then on."""
    stream = await cluster.create("orders", [1, 2])
    leader, copy = cluster.leader("orders"), cluster.partition(2, "orders")
    tap = Tap(cluster, stream.id.bytes)
    await append(leader, b"0")
    await until(lambda: copy.reads.high_watermark == 1, "the follower knows that it is committed")
    tap.asked.clear()
    tap.sent.clear()
    return leader, copy, tap


@on_brokers(2)
async def test_a_fetch_that_stands_brings_all_that_comes(cluster: Cluster) -> None:
    leader, copy, tap = await tapped_pair(cluster)
    for number in range(1, 4):
        await append(leader, b"%d" % number)
    await until(lambda: copy.reads.high_watermark == 4, "the mark comes alone when nothing else does")
    assert [(offset, stands) for _, offset, stands in tap.sent] == [(1, True), (2, True), (3, True)]
    assert tap.asked == [], "it was asked once, before"


async def written(leader: Partition, value: bytes) -> "asyncio.Future[Any]":
    """An append, in the turn of the loop in which it was written; its ack."""
    end = leader.log.written_end
    ack = append_soon(leader, batch(value))
    while leader.log.written_end == end:
        await asyncio.sleep(0)
    return ack


@on_brokers(3)
async def test_followers_in_sync_are_sent_what_is_written_in_the_same_call(cluster: Cluster) -> None:
    stream = await cluster.create("orders", [1, 2, 3])
    leader = cluster.leader("orders")
    tap = Tap(cluster, stream.id.bytes)
    for number in range(3):
        await append(leader, b"%d" % number)
    tap.sent.clear()
    await until(lambda: all(cluster.partition(one, "orders").log_end_offset == 3 for one in (2, 3)), "both have it")
    turns = asyncio.ensure_future(asyncio.sleep(0))
    ack = await written(leader, b"3")
    assert [(offset, stands) for _, offset, stands in tap.sent] == [(3, True), (3, True)]
    await asyncio.gather(ack, turns)


@pytest.mark.uncompiled
@on_brokers(2)
async def test_a_fault_while_records_are_sent_ends_the_followers_request_alone(cluster: Cluster) -> None:
    """The leader goes on; the follower asks anew, and the append is acked."""
    leader, copy, tap = await tapped_pair(cluster)
    with pytest.MonkeyPatch.context() as patched:

        def broken(*_: object) -> object:
            raise RuntimeError("a fault of the test")

        patched.setattr(fetch_session.FetchSession, "stand", broken)
        ack = await written(leader, b"1")
    assert (await ack).base_offset == 1
    assert leader.refusal is None
    assert [item.offset for item in tap.asked] == [1], "it was asked anew"
    assert copy.log.durable_end == 2


@contextlib.contextmanager
def held_ends(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """The durable ends of broker 2 wait until the function that this gives is called; what comes later does too."""
    peers, held = cluster.network.members[BrokerId(2)], list[Callable[[], object]]()
    post = peers.post

    def hold(to: BrokerId, kind: FrameKind, body: Sequence[Bytes]) -> bool:
        if kind is not FrameKind.DURABLE_END:
            return post(to, kind, body)
        held.append(lambda: post(to, kind, body))
        return True

    def release() -> None:
        for one in held:
            one()
        held.clear()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(peers, "post", hold)
        yield release
    release()


def _is_written(partition: Partition, end: int) -> bool:
    return partition.log.written_end == end


@on_brokers(2)
async def test_little_waits_for_the_sync_of_what_is_on_its_way_and_goes_together(cluster: Cluster) -> None:
    leader, copy, tap = await tapped_pair(cluster)
    with held_ends(cluster) as release, pytest.MonkeyPatch.context() as patched:
        patched.setattr(serving, "_MARK_DELAY_S", 3_600.0)
        acks = [append_soon(leader, batch(b"1"))]
        await until(lambda: len(tap.sent) == 1, "nothing was on its way before it")
        for number in (2, 3):
            acks.append(append_soon(leader, batch(b"%d" % number)))
            await until(partial(_is_written, leader, number + 1), "it is written")
        await until(lambda: copy.log.durable_end == 2, "the follower has synced the first")
        assert [offset for _, offset, _ in tap.sent] == [1]
        release()
        await until(lambda: copy.log_end_offset == 4, "both go as soon as that is told")
        assert [offset for _, offset, _ in tap.sent] == [1, 2]
        acks.append(append_soon(leader, batch(bytes(10_000))))
        await until(lambda: copy.log_end_offset == 5, "more than a little does not wait")
    assert [(await ack).base_offset for ack in acks] == [1, 2, 3, 4]
    assert tap.asked == [], "it was asked once, before"


@on_brokers(2)
async def test_little_waits_no_longer_than_a_mark(cluster: Cluster) -> None:
    """A follower that does not tell of its sync, since it hangs or began anew, holds nothing up for ever."""
    leader, copy, tap = await tapped_pair(cluster)
    with held_ends(cluster):
        acks = [append_soon(leader, batch(b"1"))]
        await until(lambda: len(tap.sent) == 1, "nothing was on its way before it")
        acks.append(append_soon(leader, batch(b"2")))
        await until(lambda: copy.log_end_offset == 3, "it goes after a while")
    assert [(await ack).base_offset for ack in acks] == [1, 2]


@contextlib.contextmanager
def slow_disk(cold: Partition) -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """The records of a partition are not in memory: reads of its leader set the first event and wait for the second."""
    reading, is_read = asyncio.Event(), asyncio.Event()
    in_thread, reader = CommittedReads.in_thread, type(cold.log.reader)
    read = reader.read_with_next_offset

    async def slow(self: CommittedReads, work: Callable[[], Any]) -> Any:
        if self is cold.reads:
            reading.set()
            await is_read.wait()
        return await in_thread(self, work)

    def not_in_memory(self: Any, *args: Any, **how: Any) -> Any:
        return None if self is cold.log.reader and how.get("cached_only") else read(self, *args, **how)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CommittedReads, "in_thread", slow)
        patched.setattr(reader, "read_with_next_offset", not_in_memory)
        yield reading, is_read


@pytest.mark.uncompiled
@on_brokers(2)
async def test_nothing_overtakes_what_was_answered_before_it(cluster: Cluster) -> None:
    """The leader reads another partition from the disk, and a second request comes meanwhile. What was read for the
    first one came behind the records that follow on it: nothing was committed any more until the follower had left the
    ISR for it."""
    await cluster.create("cold", [1, 2])
    leader, copy, tap = await tapped_pair(cluster)
    cold = cluster.leader("cold")
    with slow_disk(cold) as (reading, is_read):
        acks = [append_soon(leader, batch(b"1")), append_soon(cold, batch(b"1"))]
        await reading.wait()
        acks.append(append_soon(leader, batch(bytes(10_000))))
        await until(partial(_is_written, leader, 3), "it is written")
        await cluster.create("asked-for-meanwhile", [1, 2])
        await until(lambda: copy.log.durable_end == 3, "it came, though a disk is slow", within_s=1)
        is_read.set()
        assert [(await ack).base_offset for ack in acks] == [1, 0, 2]
    assert [(offset, stands) for _, offset, stands in tap.sent] == [(1, True), (2, True)]
    assert tap.asked == [], "it was asked once, before"


@on_brokers(2)
async def test_no_fetch_stands_once_too_much_is_on_its_way(cluster: Cluster) -> None:
    """A follower whose disk hangs would fill the memory of its leader."""
    leader, copy, tap = await tapped_pair(cluster)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fetch_session, "_AHEAD_BYTES_MAX", 10)
        await append(leader, b"1")
    assert [(offset, stands) for _, offset, stands in tap.sent] == [(1, False)]
    await append(leader, b"2")
    assert [item.offset for item in tap.asked] == [2], "so the follower asks anew"
    assert tap.sent[-1][1:] == (2, True)
    await until(lambda: copy.reads.high_watermark == 3, "it knows that it is committed")


@on_brokers(3, minimum=1)
async def test_a_replica_that_is_moved_away_leaves_nothing_on_its_way(cluster: Cluster) -> None:
    """Its broker reports nothing of it any more: the bytes were counted against all its other partitions until its
    session ended."""
    stream = await cluster.create("orders", [1, 2])
    stays_here = await cluster.create("stays", [1, 2])
    leader, tap, other = cluster.leader("orders"), Tap(cluster, stream.id.bytes), Tap(cluster, stays_here.id.bytes)
    await append(leader, b"0")
    await append(cluster.leader("stays"), b"0")
    other.sent.clear()
    with held_ends(cluster), pytest.MonkeyPatch.context() as patched:
        before = len(tap.sent)
        ack = append_soon(leader, batch(bytes(20_000)))
        await until(lambda: len(tap.sent) > before, "it is on its way")
        await cluster.take(reassign(cluster.image, "orders", 0, [1, 3], cluster.minimum_of))
        await until(lambda: cluster.assignment("orders").replicas == (1, 3), "the move is complete")
        await ack
        patched.setattr(fetch_session, "_AHEAD_BYTES_MAX", 20_100)
        kept = append_soon(cluster.leader("stays"), batch(bytes(1_000)))
        await until(lambda: bool(other.sent), "the records of another partition are sent")
        assert [stands for _, _, stands in other.sent] == [True]
    await kept


@on_brokers(2, minimum=1)
async def test_all_parts_of_a_request_have_the_bound_that_it_names(cluster: Cluster) -> None:
    """They wait in the leader's memory until the follower reads them: without it, one request of a follower that has
    thousands of partitions to catch up with brought a part of each."""
    count, size_bytes = 20, 10_000
    stream = await cluster.create("orders", [1, 2], partitions=count)
    await cluster.stop(2)
    for index in range(count):
        await append(cluster.leader("orders", index), bytes(size_bytes))
    follower, own_epoch = cluster.network.join(2), cluster.image.brokers[BrokerId(2)].epoch
    epochs = [cluster.leader("orders", index).leader_epoch for index in range(count)]
    items = [wire.FetchItem(stream.id.bytes, index, 1, epoch, 0, -1, 0) for index, epoch in enumerate(epochs)]

    async def brought(*items: wire.FetchItem) -> int:
        request = wire.FetchRequest(7, bool(items), own_epoch, 100, 5 * size_bytes, 1 << 20, list(items), 0)
        body, parts = wire.encode_request(structs.replace(request, takes_parts=True)), list[memoryview]()
        answer = await follower.call(BrokerId(1), FrameKind.FETCH, body, timeout_s=5, on_part=parts.append)
        assert wire.decode_answer(answer)[0] == [], "what there is comes in parts"
        return sum(len(records) for part in parts for _, records in wire.decode_answer(part)[0])

    sizes = [await brought(*items), await brought(), await brought(), await brought(), await brought()]
    assert max(sizes) < 6 * size_bytes, "the last answer may exceed it"
    assert sum(sizes) > count * size_bytes, "each partition came"


@on_brokers(2)
async def test_what_a_follower_could_not_take_comes_again_and_nothing_behind_it_before(cluster: Cluster) -> None:
    leader, copy, tap = await tapped_pair(cluster)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partition_follower, "crc_ok", lambda *_: False)
        first = append_soon(leader, batch(b"1"))
        await until(lambda: len(tap.sent) == 1, "it was sent")
        await asyncio.sleep(0.01)
    second = append_soon(leader, batch(b"2"))
    await until(lambda: len(tap.sent) == 2, "what is behind it too")
    assert copy.log_end_offset == 1
    assert [(await first).base_offset, (await second).base_offset] == [1, 2]
    assert [item.offset for item in tap.asked] == [1]
    await until(lambda: copy.reads.high_watermark == 3, "it knows that both are committed")


@on_brokers(3)
async def test_a_follower_that_is_back_in_sync_counts_with_all_that_it_has_told(cluster: Cluster) -> None:
    """It told its durable end beside a fetch that waits at the leader, was fenced, and has nothing new to tell."""
    await cluster.create("orders", [1, 2, 3])
    cluster.network.cut(1, 3)
    waits = append_soon(cluster.leader("orders"), batch(b"a"))
    copy = cluster.partition(2, "orders")
    await until(lambda: copy.log.durable_end == 1, "the follower has it on its disk")
    await until(lambda: cluster.leader("orders").role.leader.follower_end(BrokerId(2)) == 1, "and has told so")
    await cluster.take(fence(cluster.image, BrokerId(2), cluster.minimum_of))
    await until(lambda: BrokerId(2) in cluster.assignment("orders").isr, "it is in sync again", within_s=1.5)
    assert (await waits).base_offset == 0


@on_brokers(2)
async def test_nothing_more_is_asked_for_while_as_much_waits_to_be_written_as_may(cluster: Cluster) -> None:
    """A broker that came back to sixty partitions had some megabytes of each in memory."""
    await cluster.create("orders", [1, 2])
    flusher = cluster[2].flusher
    flusher.limit_staged(0)
    await append(cluster.leader("orders"), b"a")  # its fetch was at the leader
    assert flusher.backpressured
    await cluster.create("late", [1, 2])
    waits = append_soon(cluster.leader("late"), batch(b"a"))
    await stays(lambda: not waits.done(), 1.5)
    assert cluster[1].replication._serving.heard_of() == {BrokerId(2)}
    flusher.limit_staged(1 << 20)
    assert (await waits).base_offset == 0
