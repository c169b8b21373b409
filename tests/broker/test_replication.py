"""Partitions on several brokers: what is acked is on all of the ISR, and who was away catches up."""

from random import Random

from tests.broker.node import append, append_soon, batch, values_of
from tests.broker.replicated import Cluster, bytes_of, on_brokers, refusal_of, stays, until
from tests.support.full_disk import full

from logboom.base.errors import NotEnoughReplicasError, NotLeaderError, OutcomeUnknownError
from logboom.broker.disk.data_dir import HIGH_WATERMARKS_FILE
from logboom.records import Codec


@on_brokers(3)
async def test_an_append_is_acked_once_every_member_of_the_isr_has_it_on_its_disk(cluster: Cluster) -> None:
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


@on_brokers(3)
async def test_nothing_is_acked_while_a_member_cannot_be_reached_and_all_is_once_it_left_the_isr(
    cluster: Cluster,
) -> None:
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


@on_brokers(2)
async def test_a_leader_alone_below_the_minimum_refuses_and_takes_again(cluster: Cluster) -> None:
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


@on_brokers(2, minimum=1)
async def test_a_follower_that_was_away_catches_up_across_segments(cluster: Cluster) -> None:
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


@on_brokers(2)
async def test_what_was_committed_is_shown_at_once_after_a_restart(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2])
    await append(cluster.leader("orders"), b"a", b"b")
    await until(lambda: cluster.partition(2, "orders").high_watermark == 2, "the follower knows the mark")
    await cluster.stop(2)
    await cluster.stop(1)
    await cluster.start(1)
    alone = cluster.partition(1, "orders")
    assert alone.high_watermark == 2
    assert await values_of(alone) == [b"a", b"b"]


@on_brokers(2)
async def test_a_stream_that_is_not_synced_is_acked_once_every_member_has_written_it(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2], logboom_flush="none")
    for number in range(3):
        await append(cluster.leader("orders"), b"%d" % number)
    assert [cluster.partition(n, "orders").log.written_end for n in (1, 2)] == [3, 3]
    await cluster.elect("orders", 0, 2)
    leader = cluster.leader("orders")
    assert leader.log.durable_end == 3, "a leader begins with a log that is safe"
    await append(leader, b"3")
    assert len(await values_of(leader)) == 4


@on_brokers(2, inline_flush=False)
async def test_a_full_disk_of_a_follower_holds_up_acks_until_it_has_room_or_is_out_of_sync(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2])
    await append(cluster.leader("orders"), b"a")
    with full(cluster.disk(2), "orders"):
        waits = append_soon(cluster.leader("orders"), batch(b"b"))
        await stays(lambda: not waits.done(), 1.0)
    await waits
    one, other = (cluster.partition(n, "orders").log for n in (1, 2))
    assert bytes_of(one) == bytes_of(other)


@on_brokers(3, inline_flush=False, replica_lag_max_ms=600_000)
async def test_a_follower_on_a_full_disk_leaves_at_once_if_others_are_enough(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    await append(cluster.leader("orders"), b"a")
    await cluster.in_sync("orders")
    with full(cluster.disk(2), "orders"):
        waits = append_soon(cluster.leader("orders"), batch(b"b"))
        await until(waits.done, "nobody waits for its disk", within_s=10)
        await waits
        assert cluster.assignment("orders").isr == (1, 3)
        await stays(lambda: cluster.assignment("orders").isr == (1, 3), 5.0)
    await cluster.in_sync("orders")
    assert bytes_of(cluster.partition(2, "orders").log) == bytes_of(cluster.leader("orders").log)


@on_brokers(3)
async def test_an_idle_follower_that_is_cut_off_leaves_and_deletions_go_on(cluster: Cluster) -> None:
    """It is not cut off from the controller, which therefore sees no reason to fence it."""
    await cluster.create("orders", [1, 2, 3])
    await append(cluster.leader("orders"), b"a")
    leader = cluster.leader("orders")
    await until(lambda: leader.high_watermark == 1, "it is committed")
    cluster.network.cut(1, 2)
    await until(lambda: cluster.assignment("orders").isr == (1, 3), "nobody waits for it", within_s=20)
    assert await leader.deletion.delete_records(1) == 1
    cluster.network.heal()
    await cluster.in_sync("orders")
    assert cluster.partition(2, "orders").log_start_offset == 1


@on_brokers(2, minimum=1)
async def test_a_copy_that_ends_below_the_leaders_first_record_begins_there(cluster: Cluster) -> None:
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


@on_brokers(2, minimum=1)
async def test_a_copy_of_a_log_without_records_is_in_sync_where_it_begins_anew(cluster: Cluster) -> None:
    """Nothing is ever synced there by which it could tell. Found by `logboom sim run --nodes 3 --seed 500023`."""
    await cluster.create("orders", [1, 2])
    await append(cluster.leader("orders"), b"first")
    await cluster.stop(2)
    leader = cluster.leader("orders")
    await append(leader, b"second")
    assert await leader.deletion.delete_records(2) == 2
    await cluster.start(2)
    await cluster.in_sync("orders")
    assert cluster.partition(2, "orders").log_start_offset == 2


@on_brokers(2, minimum=1)
async def test_a_copy_begins_with_the_batch_that_the_leaders_first_record_is_in(cluster: Cluster) -> None:
    """It began at that record, was given the whole batch, went back to where that begins, and so on for ever."""
    await cluster.create("orders", [1, 2], segment_bytes="16384")
    leader = cluster.leader("orders")
    await append(leader, b"first")
    await cluster.stop(2)
    for number in range(20):
        await append(leader, *(b"%d" % number * 400 for _ in range(4)), codec=Codec.NONE)
    assert await leader.deletion.delete_records(63) == 63
    assert leader.log.segments[0].base > 1
    await cluster.start(2)
    await cluster.in_sync("orders")
    copy = cluster.partition(2, "orders")
    assert (copy.log_start_offset, copy.log_end_offset) == (63, 81)
    await until(lambda: copy.high_watermark == 81, "the copy shows all of it")
    assert await values_of(copy, 63) == await values_of(leader, 63)


@on_brokers(3)
async def test_a_deletion_is_acked_once_no_other_leader_brings_the_records_back(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    leader = cluster.leader("orders")
    for number in range(10):
        await append(leader, b"%d" % number)
    copies = [cluster.partition(n, "orders") for n in (2, 3)]
    await until(lambda: all(copy.high_watermark == 10 for copy in copies), "the copies show all of it")
    assert await leader.deletion.delete_records(4) == 4
    assert [copy.log_start_offset for copy in copies] == [4, 4]
    cluster.network.cut(1, 3)
    refused = await refusal_of(leader.deletion.delete_records(6, timeout_s=0.5))
    assert isinstance(refused, OutcomeUnknownError)
    assert (leader.log_start_offset, copies[1].log_start_offset) == (6, 4)
    waits = append_soon(leader, batch(b"10"))
    assert await leader.deletion.delete_records(6) == 6, "without the one that is out of sync"
    await waits
    assert cluster.assignment("orders").isr == (1, 2)
    cluster.network.heal()
    await cluster.in_sync("orders")
    assert copies[1].log_start_offset == 6, "who has deleted records is not in sync"


@on_brokers(3)
async def test_a_leader_that_lost_its_mark_lets_followers_delete_what_it_has_deleted(cluster: Cluster) -> None:
    """Found by `logboom sim run --nodes 3 --seed 713`: they may delete below the mark alone, and it waited for them."""
    await cluster.create("orders", [2, 3])
    leader, copy = cluster.leader("orders"), cluster.partition(3, "orders")
    for number in range(10):
        await append(leader, b"%d" % number)
    await until(lambda: copy.high_watermark == 10, "the copy shows all of it")
    await cluster.crash(3, Random(0))  # so it is not eligible to lead
    assert isinstance(await refusal_of(leader.deletion.delete_records(6, timeout_s=0.5)), OutcomeUnknownError)
    waits = append_soon(leader, batch(b"10"))
    await until(lambda: cluster.assignment("orders").isr == (2,), "the leader alone is in sync")
    await cluster.stop(2)
    await refusal_of(waits)
    cluster.disk(2).unlink(HIGH_WATERMARKS_FILE)
    await cluster.start(2)
    await cluster.start(3)
    await cluster.in_sync("orders")
    assert [cluster.partition(n, "orders").log_start_offset for n in (2, 3)] == [6, 6]
    await append(cluster.leader("orders"), b"11")


@on_brokers(2)
async def test_records_that_the_leader_has_deleted_go_from_its_followers(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2])
    leader, copy = cluster.leader("orders"), cluster.partition(2, "orders")
    for number in range(10):
        await append(leader, b"%d" % number)
    await until(lambda: copy.high_watermark == 10, "the copy shows all of it")
    assert await leader.deletion.delete_records(6) == 6
    await until(lambda: copy.log_start_offset == 6, "the copy begins there too")
