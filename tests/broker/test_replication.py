"""Partitions on several brokers: what is acked is on all of the ISR, and what fails is made good."""

import asyncio
import errno
from functools import partial
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from tests.broker.node import append, append_soon, batch, values_of
from tests.broker.replicated import DIRECTOR, bytes_of, cluster_of, refusal_of, stays, until
from tests.support.simulated import machine, run, stand_still

from logboom.base.errors import (
    InvalidRequestError,
    NotEnoughReplicasError,
    NotLeaderError,
    OutOfOrderSequenceError,
    StorageError,
)
from logboom.base.ids import BrokerId, Offset, ProducerEpoch, ProducerId
from logboom.base.ports import SyncFailedError
from logboom.broker.peers import FrameKind
from logboom.broker.replication import wire
from logboom.metadata.assignment import PartitionChange, PartitionUpdate
from logboom.metadata.membership import fence
from logboom.metadata.reassignment import reassign
from logboom.records import Codec, Record, build_batch
from logboom.sim.disk import SimDisk


def test_an_append_is_acked_once_every_member_of_the_isr_has_it_on_its_disk(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            for number in range(20):
                await append(cluster.leader("orders"), b"a%d" % number, b"b")
            ends = [cluster.partition(n, "orders").log.durable_end for n in (1, 2, 3)]
            assert ends == [40, 40, 40]
            assert isinstance(await refusal_of(append(cluster.partition(2, "orders"), b"x")), NotLeaderError)
            logs = [cluster.partition(n, "orders") for n in (1, 2, 3)]
            await until(lambda: all(log.high_watermark == 40 for log in logs), "followers learn of the mark")
            assert bytes_of(logs[0].log) == bytes_of(logs[1].log) == bytes_of(logs[2].log)
            assert await values_of(logs[1]) == await values_of(logs[0])

    run(body)


def test_nothing_is_acked_while_a_member_cannot_be_reached_and_all_is_once_it_left_the_isr(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            await append(cluster.leader("orders"), b"a")
            cluster.network.cut(1, 3)
            waits = append_soon(cluster.leader("orders"), batch(b"b"))
            await stays(lambda: not waits.done(), 1.0)
            await waits
            assert cluster.assignment("orders").isr == (1, 2)
            cluster.network.heal()
            await cluster.in_sync("orders")
            assert cluster.partition(3, "orders").log.durable_end == 2

    run(body)


def test_a_leader_alone_below_the_minimum_refuses_and_takes_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await cluster.create("orders", [1, 2])
            await append(cluster.leader("orders"), b"a")
            cluster.network.cut(1, 2)
            waits = append_soon(cluster.leader("orders"), batch(b"b"))
            after = await refusal_of(waits)
            assert type(after).__name__ == "NotEnoughReplicasAfterAppendError"
            assert type(await refusal_of(append(cluster.leader("orders"), b"c"))) is NotEnoughReplicasError
            cluster.network.heal()
            await cluster.in_sync("orders")
            await append(cluster.leader("orders"), b"d")
            assert await values_of(cluster.leader("orders")) == [b"a", b"b", b"d"]

    run(body)


def test_a_follower_that_was_away_catches_up_across_segments(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            await cluster.create("orders", [1, 2], segment_bytes="20000", partitions=3)
            await cluster.stop(2)
            for number in range(60):
                for index in range(3):
                    await append(cluster.leader("orders", index), b"%d" % number * 400, codec=Codec.NONE)
            await cluster.start(2)
            for index in range(3):
                await cluster.in_sync("orders", index)
                one, other = (cluster.partition(n, "orders", index).log for n in (1, 2))
                assert bytes_of(one) == bytes_of(other)
                assert len(other.segments) > 1

    run(body)


def test_an_idempotent_producer_goes_on_with_a_new_leader(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            for sequence in range(3):
                await append(cluster.leader("orders"), b"%d" % sequence, producer=(7, 0, sequence))
            await cluster.stop(1)
            leader = cluster.leader("orders")
            assert cluster.assignment("orders").leader == BrokerId(2)
            repeated = await append(leader, b"2", producer=(7, 0, 2))
            assert repeated.base_offset == 2
            assert (await append(leader, b"3", producer=(7, 0, 3))).base_offset == 3
            assert await values_of(leader) == [b"0", b"1", b"2", b"3"]

    run(body)


def test_an_old_leader_that_comes_back_cuts_what_was_not_committed(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            await append(cluster.leader("orders"), b"a")
            old = cluster.leader("orders")
            cluster.network.cut(1, 2)
            cluster.network.cut(1, 3)
            cluster.network.cut(1, DIRECTOR)
            lost = append_soon(old, batch(b"only at the old leader"))
            await until(lambda: old.log.durable_end == 2, "it has it on its disk")
            await cluster.elect("orders", 0, 2)
            leader = cluster.leader("orders")
            kept = append_soon(leader, batch(b"b"))
            await stays(lambda: not lost.done(), 1.0)
            cluster.network.heal()
            assert isinstance(await refusal_of(lost), NotLeaderError)
            await kept
            assert await values_of(leader) == [b"a", b"b"]
            await cluster.in_sync("orders")
            assert bytes_of(old.log) == bytes_of(leader.log)
            await until(lambda: old.high_watermark == 2, "the old leader shows what is committed")
            assert await values_of(old) == [b"a", b"b"]

    run(body)


def test_an_old_leader_on_a_full_disk_cuts_its_log_once_there_is_room(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3, inline_flush=False) as cluster:
            await cluster.create("orders", [1, 2, 3])
            await append(cluster.leader("orders"), b"a")
            old = cluster.leader("orders")
            for other in (2, 3, DIRECTOR):
                cluster.network.cut(1, other)
            lost = append_soon(old, batch(b"only at the old leader"))
            await until(lambda: old.log.durable_end == 2, "it has it on its disk")
            await cluster.elect("orders", 0, 2)
            refused = 0

            def full(operation: str, path: str) -> None:
                nonlocal refused
                if operation == "write" and "orders" in path:
                    refused += 1
                    raise OSError(errno.ENOSPC, "no room", path)

            cluster.disk(1).fault = full
            cluster.network.heal()
            await refusal_of(lost)
            await until(lambda: refused > 1, "the copy was to be cut, twice")
            assert cluster[1].flusher.failure is None
            assert await values_of(old) == [b"a"]
            cluster.disk(1).fault = lambda operation, path: None
            await append(cluster.leader("orders"), b"b")
            await cluster.in_sync("orders")
            assert bytes_of(old.log) == bytes_of(cluster.leader("orders").log)

    run(body)


def test_a_copy_that_was_cut_hears_what_is_committed_though_nothing_more_is_written(tmp_path: Path) -> None:
    """Found by `logboom sim run --nodes 3 --seed 22`."""

    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            await cluster.create("orders", [1, 2])
            await append(cluster.leader("orders"), b"a")
            cluster.network.cut(1, 2)
            old = cluster.leader("orders")
            lost = append_soon(old, batch(b"only at the old leader"))
            await until(lambda: old.log.durable_end == 2, "it has it on its disk")
            await cluster.crash(1, Random(0))
            await refusal_of(lost)
            cluster.network.heal()
            await cluster.start(1)
            copy = cluster.partition(1, "orders")
            await until(lambda: copy.role.follower.high_watermark == 1, "it has heard of the mark", within_s=5)
            assert copy.log_end_offset == 1
            assert await values_of(copy) == [b"a"]

    run(body)


def test_durable_ends_that_are_lost_on_the_way_come_again(tmp_path: Path) -> None:
    """Found by `logboom sim run --nodes 3 --seed 91`: nothing was acknowledged any more, or a replica never in sync."""

    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await cluster.create("orders", [1, 2])
            cluster.network.lost_posts.add(FrameKind.DURABLE_END)
            before = cluster.assignment("orders")
            for number in range(3):
                await append(cluster.leader("orders"), b"%d" % number)
            assert cluster.assignment("orders") == before, "no replica had to leave the ISR for it"

    run(body)


def test_a_durable_end_that_overtakes_its_fetch_counts(tmp_path: Path) -> None:
    """A request is handled by a task, a message at once. Found by `logboom sim run --nodes 3 --seed 39`: a replica was
    never in sync again."""

    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            stream = await cluster.create("orders", [1, 2])
            await cluster.stop(2)
            leader = cluster.leader("orders")
            await append(leader, b"a")
            follower, own_epoch = cluster.network.join(2), cluster.image.brokers[BrokerId(2)].epoch
            state = cluster.assignment("orders").partition_epoch

            async def fetch(number: int, offset: int, durable_end: int, last_epoch: int, told: int) -> None:
                epoch = leader.leader_epoch
                item = wire.FetchItem(stream.id.bytes, 0, number, epoch, offset, last_epoch, durable_end, state)
                request = wire.FetchRequest(7, number == 1, own_epoch, 0, 1_000, 1_000, [item], told)
                await follower.call(BrokerId(1), FrameKind.FETCH, wire.encode_request(request), timeout_s=5)

            await fetch(1, offset=0, durable_end=0, last_epoch=-1, told=0)
            end = wire.DurableEnd(stream.id.bytes, 0, 2, leader.leader_epoch, 1, state)
            ends = wire.DurableEnds(7, own_epoch, [end])
            follower.post(BrokerId(1), FrameKind.DURABLE_END, wire.encode_ends(ends))
            await fetch(2, offset=1, durable_end=0, last_epoch=leader.leader_epoch, told=1)
            assert leader.role.leader.follower_end(BrokerId(2)) == 1
            with pytest.raises(InvalidRequestError):
                await fetch(3, offset=1, durable_end=1, last_epoch=leader.leader_epoch, told=2)

    run(body)


def test_a_mark_that_a_follower_did_not_take_is_told_again(tmp_path: Path) -> None:
    """It had asked anew, since the partition had changed, when the answer came. Found by `logboom sim run --nodes 3`
    with disks that hang: an idle copy never heard what is committed, and showed consumers nothing."""

    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            stream = await cluster.create("orders", [1, 2])
            await cluster.stop(2)
            leader = cluster.leader("orders")
            await append(leader, b"a")
            follower, own_epoch = cluster.network.join(2), cluster.image.brokers[BrokerId(2)].epoch
            state, epoch = cluster.assignment("orders").partition_epoch, leader.leader_epoch

            async def marks(number: int, offset: int, last_epoch: int, heard: int) -> list[int]:
                item = wire.FetchItem(stream.id.bytes, 0, number, epoch, offset, last_epoch, offset, state, heard)
                request = wire.FetchRequest(7, number == 1, own_epoch, 100, 1_000, 1_000, [item], 0)
                answer = await follower.call(BrokerId(1), FrameKind.FETCH, wire.encode_request(request), timeout_s=5)
                return [one.high_watermark for one, _ in wire.decode_answer(answer)[0]]

            await marks(1, offset=0, last_epoch=-1, heard=0)
            assert await marks(2, offset=1, last_epoch=epoch, heard=1) == [1]
            assert await marks(3, offset=1, last_epoch=epoch, heard=1) == [1], "the second one was not taken"
            assert await marks(4, offset=1, last_epoch=epoch, heard=3) == [], "there is no news"

    run(body)


def test_a_follower_that_is_back_in_sync_counts_with_all_that_it_has_told(tmp_path: Path) -> None:
    """It told its durable end beside a fetch that waits at the leader, was fenced, and has nothing new to tell."""

    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            cluster.network.cut(1, 3)
            waits = append_soon(cluster.leader("orders"), batch(b"a"))
            copy = cluster.partition(2, "orders")
            await until(lambda: copy.log.durable_end == 1, "the follower has it on its disk")
            await until(lambda: cluster.leader("orders").role.leader.follower_end(BrokerId(2)) == 1, "and has told so")
            await cluster.take(fence(cluster.image, BrokerId(2), cluster.minimum_of))
            await until(lambda: BrokerId(2) in cluster.assignment("orders").isr, "it is in sync again", within_s=1.5)
            assert (await waits).base_offset == 0

    run(body)


def test_what_was_committed_is_shown_at_once_after_a_restart(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await cluster.create("orders", [1, 2])
            await append(cluster.leader("orders"), b"a", b"b")
            await until(lambda: cluster.partition(2, "orders").high_watermark == 2, "the follower knows the mark")
            await cluster.stop(2)
            await cluster.stop(1)
            await cluster.start(1)
            alone = cluster.partition(1, "orders")
            assert alone.high_watermark == 2
            assert await values_of(alone) == [b"a", b"b"]

    run(body)


def test_a_copy_whose_directory_is_gone_is_reported_and_made_anew(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3], partitions=2)
            for number in range(5):
                await append(cluster.leader("orders"), b"%d" % number)
            await cluster.stop(2)
            _, disk_of = machine()
            disk_of(str(tmp_path / "2")).remove_tree("streams/orders-0")
            # As if it had been shut down cleanly: it is among those that are counted on.
            await cluster.change("orders", 0, PartitionUpdate(isr=cluster.assignment("orders", 1).replicas))
            await cluster.start(2)
            await until(lambda: BrokerId(2) not in cluster.assignment("orders").isr, "the loss is reported")
            await cluster.in_sync("orders")
            assert bytes_of(cluster.partition(2, "orders").log) == bytes_of(cluster.leader("orders").log)

    run(body)


def test_a_damaged_copy_leaves_the_isr_and_is_fetched_anew(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            for number in range(5):
                await append(cluster.leader("orders"), b"%d" % number * 50)
            copy = cluster.partition(2, "orders")
            await until(lambda: copy.high_watermark == 5, "the copy shows all of it")
            _, disk_of = machine()
            file = disk_of(str(tmp_path / "2")).open("streams/orders-0/00000000000000000000.log")
            file.write(200, [b"\xff" * 20])
            before = cluster.assignment("orders").partition_epoch
            assert isinstance(await refusal_of(copy.reads.read(Offset(1), 10)), StorageError)
            await until(lambda: cluster.assignment("orders").partition_epoch > before, "the damage is reported")
            assert cluster.assignment("orders").leader == BrokerId(1)
            await cluster.in_sync("orders")
            assert bytes_of(copy.log) == bytes_of(cluster.leader("orders").log)
            await append(cluster.leader("orders"), b"goes on")
            await until(lambda: copy.high_watermark == 6, "the copy shows all of it again")
            assert len(await values_of(copy)) == 6

    run(body)


def test_what_a_damaged_copy_told_too_late_does_not_count_for_the_next_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are of one process, and of one leadership: else an empty copy would be in the ISR for a moment."""

    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            members, told = cluster.network.members, list[bytes]()
            deliver = members[BrokerId(2)]._deliver

            def keep(to: BrokerId, kind: FrameKind, body: bytes) -> None:
                if kind is FrameKind.DURABLE_END and to == 1:
                    told.append(body)
                deliver(to, kind, body)

            monkeypatch.setattr(members[BrokerId(2)], "_deliver", keep)
            await cluster.create("orders", [1, 2, 3])
            for number in range(5):
                await append(cluster.leader("orders"), b"%d" % number * 50)
            copy = cluster.partition(2, "orders")
            await until(lambda: copy.high_watermark == 5, "the copy shows all of it")
            cluster.network.cut(1, 2)
            cluster.disk(2).open("streams/orders-0/00000000000000000000.log").write(200, [b"\xff" * 20])
            assert isinstance(await refusal_of(copy.reads.read(Offset(1), 10)), StorageError)
            await until(lambda: copy.log_end_offset == 0, "the copy begins anew")
            await until(lambda: cluster.leader("orders").role.leader.isr == {1, 3}, "the leader knows it")
            last = wire.decode_ends(memoryview(told[-1]))
            late = replace(last, ends=[replace(one, durable_end=5) for one in last.ends])
            body = memoryview(b"".join(wire.encode_ends(late)))
            members[BrokerId(1)]._posts[FrameKind.DURABLE_END](members[BrokerId(2)].identity, body)
            out = cluster.assignment("orders")
            await stays(lambda: cluster.assignment("orders") == out, 0.5)
            cluster.network.heal()
            await cluster.in_sync("orders")
            assert bytes_of(copy.log) == bytes_of(cluster.leader("orders").log)

    run(body)


def test_a_loss_is_a_change_of_the_partition_also_where_the_copy_was_out_of_sync(tmp_path: Path) -> None:
    """Else a proposal of the lost copy, which is under way, would be taken."""

    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            await cluster.create("orders", [1, 2])
            cluster.network.cut(1, 2)
            await append(cluster.leader("orders"), b"only at the leader")
            before = cluster.assignment("orders")
            assert before.isr == (1,)
            assert cluster[2].replicas.found_damage("orders", 0)
            await until(lambda: cluster.assignment("orders") != before, "the loss is told")
            assert cluster.assignment("orders") == before.after(PartitionChange(index=0))

    run(body)


def test_a_leader_that_finds_damage_hands_over_and_follows(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            for number in range(5):
                await append(cluster.leader("orders"), b"%d" % number * 50)
            damaged = cluster.leader("orders")
            _, disk_of = machine()
            file = disk_of(str(tmp_path / "1")).open("streams/orders-0/00000000000000000000.log")
            file.write(200, [b"\xff" * 20])
            assert isinstance(await refusal_of(damaged.reads.read(Offset(1), 10)), StorageError)
            await until(lambda: cluster.assignment("orders").leader == BrokerId(2), "another one leads")
            await cluster.in_sync("orders")
            assert not damaged.leads
            assert bytes_of(damaged.log) == bytes_of(cluster.leader("orders").log)

    run(body)


def test_damage_in_the_only_copy_stays_where_it_is(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            await cluster.create("orders", [1, 2])
            await cluster.stop(2)
            for number in range(3):
                await append(cluster.leader("orders"), b"%d" % number * 50)
            _, disk_of = machine()
            file = disk_of(str(tmp_path / "1")).open("streams/orders-0/00000000000000000000.log")
            file.write(200, [b"\xff" * 20])
            alone = cluster.leader("orders")
            assert isinstance(await refusal_of(alone.reads.read(Offset(1), 10)), StorageError)
            await asyncio.sleep(1)
            assert cluster.assignment("orders").isr == (1,)
            assert await append(alone, b"goes on")

    run(body)


def test_replicas_move_to_another_broker_and_leave_nothing_behind(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3, minimum=1) as cluster:
            await cluster.create("orders", [1, 2], partitions=2)
            for number in range(5):
                await append(cluster.leader("orders"), b"%d" % number)
            left = cluster.partition(1, "orders")
            await cluster.take(reassign(cluster.image, "orders", 0, [2, 3], cluster.minimum_of))
            await until(lambda: cluster.assignment("orders").replicas == (2, 3), "the move is complete")
            assert isinstance(await refusal_of(left.reads.read(Offset(0), 10)), NotLeaderError)
            with pytest.raises(NotLeaderError):
                cluster.partition(1, "orders")
            await append(cluster.leader("orders"), b"goes on")
            assert bytes_of(cluster.partition(3, "orders").log) == bytes_of(cluster.leader("orders").log)
            _, disk_of = machine()
            disk = disk_of(str(tmp_path / "1"))
            await until(
                lambda: not any("-0" in name and "consumer" not in name for name in disk.list("streams")), "it is gone"
            )
            assert "orders-1" in disk.list("streams")
            await cluster.take(reassign(cluster.image, "orders", 0, [1, 2], cluster.minimum_of))
            await until(lambda: cluster.assignment("orders").replicas == (1, 2), "it is back")
            assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(cluster.partition(2, "orders").log)

    run(body)


def test_a_broker_whose_disk_fails_gives_up_what_it_leads(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            await append(cluster.leader("orders"), b"a")
            failing = cluster.leader("orders")
            cluster[1].flusher.disk_failed(SyncFailedError("the disk is gone"))
            await until(lambda: cluster.partition(2, "orders").leads, "another one leads")
            assert cluster.assignment("orders").isr == (2, 3)
            assert (await append(cluster.leader("orders"), b"b")).base_offset == 1
            assert isinstance(await refusal_of(append(failing, b"c")), StorageError)

    run(body)


def test_without_its_lease_a_leader_commits_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await cluster.create("orders", [1, 2])
            cluster[1].replicas.lease_changed(False)
            waits = append_soon(cluster.leader("orders"), batch(b"a"))
            await stays(lambda: not waits.done(), 1.0)
            cluster[1].replicas.lease_changed(True)
            await waits

    run(body)


def test_a_broker_that_hears_of_no_change_stays_fenced_and_has_no_lease(tmp_path: Path) -> None:
    """As one whose disk hangs, while its heartbeats go on. Found by `logboom sim run --nodes 3 --seed 49`."""

    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await cluster.create("orders", [1, 2])
            old, director = cluster.leader("orders"), cluster[DIRECTOR].cluster
            cluster.network.lost_posts.add(FrameKind.RAFT)
            records = fence(cluster.image, BrokerId(1), cluster.minimum_of)
            await director.controller.in_order(partial(director.state.commit, records))
            await until(lambda: not old.role.leader.has_lease, "its lease is over", within_s=5)
            leads = [old.leads]
            await stays(lambda: cluster.image.brokers[BrokerId(1)].fenced and not old.role.leader.has_lease, 3.0)
            cluster.network.lost_posts.clear()
            await until(lambda: not cluster.image.brokers[BrokerId(1)].fenced, "it is back", within_s=10)
            leads.append(old.leads)
            assert leads == [True, False], "it did not know before"
            await cluster.in_sync("orders")

    run(body)


def test_nobody_is_fenced_because_the_controller_stood_still(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            for delay_s in (0.0, 0.3, 1.0, 1.05):
                await asyncio.sleep(delay_s)
                before = cluster.image
                stand_still(3.0)
                await append(cluster.leader("orders"), b"a")
                await asyncio.sleep(0.5)
                assert cluster.image == before

    run(body)


def test_without_its_lease_a_leader_refuses_no_producer_for_good(tmp_path: Path) -> None:
    """Another leader may have taken what comes before a batch; found by `logboom sim run --nodes 3`."""

    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await cluster.create("orders", [1, 2])
            leader = cluster.leader("orders")
            await append_soon(leader, sequenced(b"a", producer=7, epoch=1, sequence=0))
            cluster[1].replicas.lease_changed(False)
            for epoch, sequence in ((1, 5), (0, 0)):
                refusal = await refusal_of(append_soon(leader, sequenced(b"b", 7, epoch, sequence)))
                assert isinstance(refusal, NotLeaderError)
            cluster[1].replicas.lease_changed(True)
            refusal = await refusal_of(append_soon(leader, sequenced(b"b", 7, 1, 5)))
            assert isinstance(refusal, OutOfOrderSequenceError)

    run(body)


def test_a_broker_that_asks_others_to_lead_is_certain_of_nothing_any_more(tmp_path: Path) -> None:
    """They may lead, and take batches, before it hears of it."""

    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await cluster.create("orders", [1, 2])
            certain = [cluster.leader("orders").role.leader.is_certain]
            await cluster[1].leave()
            certain.append(cluster[1].cluster.registration.is_current)
            assert certain == [True, False]

    run(body)


def sequenced(value: bytes, producer: int, epoch: int, sequence: int) -> bytearray:
    """A batch of an idempotent producer."""
    return build_batch(
        [Record(Offset(0), 0, None, value, ())],
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
    )


def test_a_stream_that_is_not_synced_is_acked_once_every_member_has_written_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await cluster.create("orders", [1, 2], logboom_flush="none")
            for number in range(3):
                await append(cluster.leader("orders"), b"%d" % number)
            assert [cluster.partition(n, "orders").log.written_end for n in (1, 2)] == [3, 3]
            await cluster.elect("orders", 0, 2)
            leader = cluster.leader("orders")
            assert leader.log.durable_end == 3, "a leader begins with a log that is safe"
            await append(leader, b"3")
            assert len(await values_of(leader)) == 4

    run(body)


def test_a_full_disk_of_a_follower_holds_up_acks_until_it_has_room_or_is_out_of_sync(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2, inline_flush=False) as cluster:
            await cluster.create("orders", [1, 2])
            await append(cluster.leader("orders"), b"a")
            _, disk_of = machine()
            disk = disk_of(str(tmp_path / "2"))
            assert isinstance(disk, SimDisk)

            def full(operation: str, path: str) -> None:
                if operation == "write" and "orders" in path:
                    raise OSError(errno.ENOSPC, "no room", path)

            disk.fault = full
            waits = append_soon(cluster.leader("orders"), batch(b"b"))
            await stays(lambda: not waits.done(), 1.0)
            disk.fault = lambda operation, path: None
            await waits
            one, other = (cluster.partition(n, "orders").log for n in (1, 2))
            assert bytes_of(one) == bytes_of(other)

    run(body)


def test_a_copy_that_ends_below_the_leaders_first_record_begins_there(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            await cluster.create("orders", [1, 2], segment_bytes="16384")
            await append(cluster.leader("orders"), b"first")
            await cluster.stop(2)
            for number in range(40):
                await append(cluster.leader("orders"), b"%d" % number * 1_000)
            leader = cluster.leader("orders")
            assert await leader.deletion.delete_records(30) == 30
            await cluster.start(2)
            await cluster.in_sync("orders")
            copy = cluster.partition(2, "orders")
            assert (copy.log_start_offset, copy.log_end_offset) == (30, 41)
            await until(lambda: copy.high_watermark == 41, "the copy shows all of it")
            assert await values_of(copy, 30) == await values_of(leader, 30)

    run(body)


def test_records_that_the_leader_has_deleted_go_from_its_followers(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await cluster.create("orders", [1, 2])
            leader, copy = cluster.leader("orders"), cluster.partition(2, "orders")
            for number in range(10):
                await append(leader, b"%d" % number)
            await until(lambda: copy.high_watermark == 10, "the copy shows all of it")
            assert await leader.deletion.delete_records(6) == 6
            await until(lambda: copy.log_start_offset == 6, "the copy begins there too")

    run(body)


def test_what_an_earlier_process_left_of_a_replica_that_moved_is_removed_once_that_is_certain(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3, minimum=1) as cluster:
            await cluster.create("orders", [1, 2])
            await append(cluster.leader("orders"), b"a")
            await cluster.stop(1)
            disk = cluster.disk(1)
            files = disk.list("streams/orders-0")
            before = {name: disk.open(f"streams/orders-0/{name}").read(0, 1 << 20) for name in files}
            await cluster.take(reassign(cluster.image, "orders", 0, [2, 3], cluster.minimum_of))
            await until(lambda: cluster.assignment("orders").replicas == (2, 3), "the move is complete")
            await cluster.start(1)
            await until(lambda: not disk.exists("streams/orders-0"), "it is gone")
            await cluster.stop(1)
            disk.make_dir("streams/orders-0")
            for name, data in before.items():
                disk.open(f"streams/orders-0/{name}", create=True).write(0, [data])
            await cluster.start(1)
            await until(lambda: not disk.exists("streams/orders-0"), "it is gone again")

    run(body)


def test_a_new_broker_that_is_fenced_joins_as_soon_as_it_is_not(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1, replica_lag_max_ms=60_000) as cluster:
            await cluster.create("orders", [1, 2])
            await append(cluster.leader("orders"), b"a")
            await cluster.stop(2)
            await cluster.start(2)
            await cluster.take(fence(cluster.image, BrokerId(2), cluster.minimum_of))
            await append(cluster.leader("orders"), b"b")
            copy = cluster.partition(2, "orders")
            await until(lambda: copy.role.follower.high_watermark == 2, "the copy has it")
            await until(lambda: cluster.assignment("orders").isr == (1, 2), "it is in sync", within_s=5)

    run(body)


def test_a_copy_that_is_counted_on_and_was_emptied_leaves_the_isr_again(tmp_path: Path) -> None:
    """The leader's proposal was under way while the copy began anew."""

    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            await cluster.create("orders", [1, 2])
            for number in range(5):
                await append(cluster.leader("orders"), b"%d" % number)
            copy = cluster.partition(2, "orders")
            await until(lambda: copy.high_watermark == 5, "the copy knows the mark")
            cluster.network.cut(1, 2)
            await append(cluster.leader("orders"), b"only at the leader")
            assert cluster.assignment("orders").isr == (1,)
            copy.role.rest()
            await cluster[2].flusher.run(partial(copy.log.truncate, Offset(0), now_ms=0, anew=True))
            copy.role.follow(BrokerId(1), cluster.assignment("orders").leader_epoch)
            await cluster.change("orders", 0, PartitionUpdate(isr=(BrokerId(1), BrokerId(2))))
            await until(lambda: cluster.assignment("orders").isr == (1,), "it is out of the ISR again")
            cluster.network.heal()
            await cluster.in_sync("orders")
            assert bytes_of(copy.log) == bytes_of(cluster.leader("orders").log)

    run(body)
