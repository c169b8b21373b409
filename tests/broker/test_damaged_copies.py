"""Copies that are lost or damaged do not count any more, and are fetched anew where others have their records."""

import asyncio
import errno
from functools import partial
from random import Random

import msgspec
import pytest
from msgspec.structs import replace
from tests.broker.node import append, append_soon, batch, values_of
from tests.broker.replicated import DIRECTOR, Cluster, bytes_of, on_brokers, refusal_of, stays, until

from logboom.base.errors import StorageError
from logboom.base.ids import NO_BROKER, BrokerId, Offset, StreamName
from logboom.base.ports import SyncFailedError
from logboom.broker.partition.replica import Partition
from logboom.broker.peers import FrameKind
from logboom.broker.replication import wire
from logboom.metadata.assignment import PartitionChange, PartitionUpdate
from logboom.sim.disk import Always


async def _leave_behind(cluster: Cluster, *brokers: int) -> None:
    """A log of some segments on these brokers, the last of which is away since the first record."""
    await cluster.create("orders", brokers, segment_bytes="16384")
    await append(cluster.leader("orders"), b"first")
    await cluster.in_sync("orders")
    await cluster.stop(brokers[-1])
    for _ in range(4):
        await append(cluster.leader("orders"), bytes(10_000))


async def _damage(cluster: Cluster, broker_id: int) -> None:
    """Other bytes where its copy has some of the first records, and a read that finds them."""
    cluster.disk(broker_id).open("streams/orders-0/00000000000000000000.log").write(200, [b"\xff" * 20])
    copy = cluster.partition(broker_id, "orders")
    assert isinstance(await refusal_of(copy.reads.read(Offset(1), 10)), StorageError)


def _lose_beginning(cluster: Cluster, broker_id: int) -> None:
    """Its first segment, and the checkpoint that says where the log begins."""
    disk = cluster.disk(broker_id)
    for name in disk.list("streams/orders-0"):
        if name == "durable-end" or name.startswith("0" * 20):
            disk.unlink(f"streams/orders-0/{name}")
    assert any(name.endswith(".log") for name in disk.list("streams/orders-0"))


@on_brokers(3)
async def test_a_copy_whose_directory_is_gone_is_reported_and_made_anew(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3], partitions=2)
    for number in range(5):
        await append(cluster.leader("orders"), b"%d" % number)
    await cluster.stop(2)
    cluster.disk(2).remove_tree("streams/orders-0")
    # As if it had been shut down cleanly: it is among those that are counted on.
    await cluster.change("orders", 0, PartitionUpdate(isr=cluster.assignment("orders", 1).replicas))
    await cluster.start(2)
    await until(lambda: BrokerId(2) not in cluster.assignment("orders").isr, "the loss is reported")
    await cluster.in_sync("orders")
    assert bytes_of(cluster.partition(2, "orders").log) == bytes_of(cluster.leader("orders").log)


@on_brokers(3)
async def test_a_damaged_copy_leaves_the_isr_and_is_fetched_anew(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    for number in range(5):
        await append(cluster.leader("orders"), b"%d" % number * 50)
    copy = cluster.partition(2, "orders")
    await until(lambda: copy.high_watermark == 5, "the copy shows all of it")
    before = cluster.assignment("orders").partition_epoch
    await _damage(cluster, 2)
    await until(lambda: cluster.assignment("orders").partition_epoch > before, "the damage is reported")
    assert cluster.assignment("orders").leader == BrokerId(1)
    await cluster.in_sync("orders")
    assert bytes_of(copy.log) == bytes_of(cluster.leader("orders").log)
    await append(cluster.leader("orders"), b"goes on")
    await until(lambda: copy.high_watermark == 6, "the copy shows all of it again")
    assert len(await values_of(copy)) == 6


@on_brokers(3)
async def test_what_a_damaged_copy_told_too_late_does_not_count_for_the_next_copy(cluster: Cluster) -> None:
    """Both are of one process, and of one leadership: else an empty copy would be in the ISR for a moment."""
    members, told = cluster.network.members, list[bytes]()
    deliver = members[BrokerId(2)]._deliver

    def keep(to: BrokerId, kind: FrameKind, body: bytes) -> None:
        if kind is FrameKind.DURABLE_END and to == 1:
            told.append(body)
        deliver(to, kind, body)

    pytest.MonkeyPatch().setattr(members[BrokerId(2)], "_deliver", keep)
    await cluster.create("orders", [1, 2, 3])
    for number in range(5):
        await append(cluster.leader("orders"), b"%d" % number * 50)
    copy = cluster.partition(2, "orders")
    await until(lambda: copy.high_watermark == 5, "the copy shows all of it")
    cluster.network.cut(1, 2)
    await _damage(cluster, 2)
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


@on_brokers(2, minimum=1)
async def test_a_loss_is_a_change_of_the_partition_also_where_the_copy_was_out_of_sync(cluster: Cluster) -> None:
    """Else a proposal of the lost copy, which is under way, would be taken."""
    await cluster.create("orders", [1, 2])
    cluster.network.cut(1, 2)
    await append(cluster.leader("orders"), b"only at the leader")
    before = cluster.assignment("orders")
    assert before.isr == (1,)
    assert cluster[2].replica_manager.found_damage("orders", 0)
    await until(lambda: cluster.assignment("orders") != before, "the loss is told")
    assert cluster.assignment("orders") == before.after(PartitionChange(index=0))


@on_brokers(2, minimum=1)
async def test_damage_that_was_found_while_nobody_else_had_the_records_is_healed_once_somebody_has(
    cluster: Cluster,
) -> None:
    """Damage is told once. Seed 384 of simulated clusters had a damaged copy in the ISR for good."""
    await cluster.create("orders", [1, 2])
    for number in range(5):
        await append(cluster.leader("orders"), b"%d" % number * 50)
    await cluster.stop(2)
    await _damage(cluster, 1)
    assert cluster.assignment("orders").isr == (1,)
    await cluster.start(2)
    await until(lambda: cluster.assignment("orders").leader == BrokerId(2), "the one that has everything leads")
    await cluster.in_sync("orders")
    assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(cluster.partition(2, "orders").log)


@on_brokers(3)
async def test_a_copy_whose_beginning_may_be_lost_is_fetched_anew_and_nobody_deletes_theirs(cluster: Cluster) -> None:
    """Its first segments are gone, and so is the checkpoint that says where the log begins: as the leader it would have
    the others delete what it lacks, as if it had deleted that itself."""
    await cluster.create("orders", [1, 2, 3], segment_bytes="16384")
    for _ in range(6):
        await append(cluster.leader("orders"), bytes(10_000))
    await cluster.stop(1)
    _lose_beginning(cluster, 1)
    await cluster.start(1)
    await cluster.in_sync("orders")
    await cluster.elect("orders", 0, 1)
    await until(lambda: cluster.partition(1, "orders").leads, "it leads")
    await append(cluster.leader("orders"), b"goes on")
    await cluster.in_sync("orders")
    assert {cluster.partition(one, "orders").log_start_offset for one in (1, 2, 3)} == {0}
    assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(cluster.partition(2, "orders").log)


@on_brokers(3, minimum=1)
async def test_the_only_one_in_sync_lost_its_beginning_and_nobody_deletes_theirs(cluster: Cluster) -> None:
    """Nobody else is in sync, so it leads. Of the others one ends behind where its log begins now, and one before."""
    await _leave_behind(cluster, 1, 2, 3)
    await until(lambda: cluster.partition(2, "orders").high_watermark == 5, "the second one has it all")
    await cluster.stop(2)
    await append(cluster.leader("orders"), b"only at the leader")
    assert cluster.assignment("orders").isr == (1,)
    await cluster.stop(1)
    _lose_beginning(cluster, 1)
    await cluster.start(1)
    await until(lambda: cluster.partition(1, "orders").leads, "it leads")
    assert cluster.leader("orders").log_start_offset > 1
    await cluster.start(3)
    await stays(lambda: cluster.partition(3, "orders").log_end_offset == 1, 20.0)
    assert cluster.partition(3, "orders").log_start_offset == 0
    await cluster.start(2)
    await cluster.in_sync("orders")
    await until(lambda: cluster.partition(1, "orders").log_start_offset == 0, "it has its beginning from the other")
    assert {cluster.partition(one, "orders").log_start_offset for one in (1, 2, 3)} == {0}
    assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(cluster.partition(2, "orders").log)


@on_brokers(2, minimum=1)
async def test_who_deletes_up_to_where_a_log_begins_says_that_nothing_is_missing(cluster: Cluster) -> None:
    await _leave_behind(cluster, 1, 2)
    await cluster.stop(1)
    _lose_beginning(cluster, 1)
    await cluster.start(1)
    await cluster.stop(1)
    await cluster.start(1)  # it is not certain at the second start either, which finds a checkpoint
    await until(lambda: cluster.partition(1, "orders").leads, "it leads")
    await cluster.start(2)
    await stays(lambda: cluster.partition(2, "orders").log_end_offset == 1, 20.0)
    start = cluster.leader("orders").log_start_offset
    await cluster.leader("orders").deletion.delete_records(start)
    await cluster.in_sync("orders")
    assert cluster.partition(2, "orders").log_start_offset == start
    assert cluster.partition(1, "orders").log.start.is_known


@on_brokers(3, minimum=1)
async def test_new_copies_of_a_log_whose_beginning_may_be_lost_do_not_claim_that_it_was_deleted(
    cluster: Cluster,
) -> None:
    """Else one of them would, as the leader, have a third one delete what is nowhere else."""
    await _leave_behind(cluster, 1, 2, 3)
    await cluster.stop(2)
    await append(cluster.leader("orders"), b"only at the leader")
    await cluster.stop(1)
    _lose_beginning(cluster, 1)
    cluster.disk(2).remove_tree("streams/orders-0")
    await cluster.start(1)
    await cluster.start(2)
    await until(lambda: cluster.assignment("orders").isr == (1, 2), "the empty copy is in sync")
    await cluster.elect("orders", 0, 2)
    await until(lambda: cluster.partition(2, "orders").leads, "it leads")
    await cluster.stop(1)
    await cluster.start(3)
    await stays(lambda: cluster.partition(3, "orders").log_end_offset == 1, 20.0)
    assert cluster.partition(3, "orders").log_start_offset == 0


@on_brokers(2, minimum=1)
async def test_a_beginning_is_certain_again_once_all_replicas_begin_there(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2], segment_bytes="16384")
    await cluster.stop(2)
    for _ in range(4):
        await append(cluster.leader("orders"), bytes(10_000))
    await cluster.stop(1)
    _lose_beginning(cluster, 1)
    await cluster.start(1)
    await until(lambda: cluster.partition(1, "orders").leads, "it leads")
    start = cluster.leader("orders").log_start_offset
    assert start > 0
    await cluster.start(2)
    await cluster.in_sync("orders")
    both = [cluster.partition(one, "orders").log for one in (1, 2)]
    await until(lambda: all(one.start.is_known for one in both), "both logs are certain")
    assert [one.log_start_offset for one in both] == [start, start]
    assert cluster.assignment("orders").leader == 1


@on_brokers(3)
async def test_one_that_lost_its_beginning_while_all_were_killed_deletes_nothing_of_the_others(
    cluster: Cluster,
) -> None:
    """All have the same end, so it may be the one that is chosen to lead."""
    await cluster.create("orders", [1, 2, 3], segment_bytes="16384")
    for _ in range(6):
        await append(cluster.leader("orders"), bytes(10_000))
    await cluster.in_sync("orders")
    for one in (1, 2, 3):
        await cluster.crash(one, Random(one))
    _lose_beginning(cluster, 1)
    for one in (1, 2, 3):
        await cluster.start(one)
    await cluster.in_sync("orders")
    await until(lambda: cluster.partition(1, "orders").log_start_offset == 0, "it has its beginning again")
    assert {cluster.partition(one, "orders").log_start_offset for one in (1, 2, 3)} == {0}
    assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(cluster.partition(2, "orders").log)


def _lose_files(cluster: Cluster, broker_id: int) -> None:
    """All of its files but the mark whose directory it is."""
    disk = cluster.disk(broker_id)
    for name in disk.list("streams/orders-0"):
        if name != "owner.json":
            disk.unlink(f"streams/orders-0/{name}")


@on_brokers(2, minimum=1)
async def test_the_only_one_in_sync_lost_its_files_and_does_not_lead_with_an_empty_log(cluster: Cluster) -> None:
    """The other one would cut all that it has."""
    await cluster.create("orders", [1, 2])
    for number in range(5):
        await append(cluster.leader("orders"), b"%d" % number)
    await until(lambda: cluster.partition(2, "orders").high_watermark == 5, "the second one has it all")
    await cluster.stop(2)
    await append(cluster.leader("orders"), b"only at the leader")
    await cluster.stop(1)
    _lose_files(cluster, 1)
    for _ in range(2):  # what was committed is known to the second start, too
        await cluster.start(1)
        refused = await refusal_of(_found(cluster, 1))
        assert "ends at offset 0, and records up to offset 6 were committed" in str(refused)
        await cluster.stop(1)
    await cluster.start(1)
    await cluster.start(2)
    await stays(lambda: cluster.partition(2, "orders").log_end_offset == 5, 20.0)
    await cluster.stop(1)
    await cluster[2].cluster_admin.elect("orders", 0, unclean=True)
    await cluster.start(1)
    await cluster.in_sync("orders")
    assert cluster.assignment("orders").leader == 2
    assert cluster.leader("orders").log_end_offset == 5
    assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(cluster.partition(2, "orders").log)


async def _five_are_committed(cluster: Cluster, broker_id: int) -> None:
    """Records on all three brokers; this one knows that they are committed."""
    await cluster.create("orders", [1, 2, 3])
    for number in range(5):
        await append(cluster.leader("orders"), b"%d" % number)
    await cluster.in_sync("orders")
    await until(lambda: cluster.partition(broker_id, "orders").high_watermark == 5, "it knows what is committed")


async def _found(cluster: Cluster, broker_id: int) -> Partition:
    return cluster.partition(broker_id, "orders")


@on_brokers(3)
async def test_a_copy_that_lost_its_files_while_all_were_stopped_is_fetched_again(cluster: Cluster) -> None:
    """It was in sync until the end, and is the first one that comes back."""
    await _five_are_committed(cluster, 3)
    for one in (1, 2, 3):
        await cluster.stop(one)
    assert 3 in (*cluster.assignment("orders").isr, *cluster.assignment("orders").elr)
    _lose_files(cluster, 3)
    for one in (3, 2, 1):
        await cluster.start(one)
    await cluster.in_sync("orders")
    assert cluster.leader("orders").log_end_offset == 5
    assert bytes_of(cluster.partition(3, "orders").log) == bytes_of(cluster.partition(1, "orders").log)


@on_brokers(2, minimum=1, background_sync_interval_s=1_000)
async def test_what_was_committed_without_a_sync_may_go_with_the_power_and_the_copy_goes_on(cluster: Cluster) -> None:
    """It is the only one in sync, and none of its files is missing. When it comes back, its stream is synced."""
    await cluster.create("orders", [1, 2], logboom_flush="none")
    await cluster.stop(2)
    for number in range(5):
        await append(cluster.leader("orders"), b"%d" % number)
    alone = cluster.leader("orders")
    assert (alone.high_watermark, alone.log.durable_end) == (5, 0)
    disk = cluster.disk(1)
    await until(lambda: disk.exists("high-watermarks"), "the marks are saved")
    disk.open("high-watermarks").sync()
    disk.sync_dir(".")
    await cluster.crash(1, Always(survives=False))
    await cluster[DIRECTOR].catalog.change_stream_config("orders", {"logboom.flush": "commit"})
    await cluster.start(1)
    await until(lambda: cluster.partition(1, "orders").leads, "it leads with what is left")
    assert (await append(cluster.leader("orders"), b"goes on")).base_offset == 0


@on_brokers(2, minimum=1)
async def test_a_copy_that_lost_its_files_does_not_lead_where_acks_do_not_wait_for_syncs_either(
    cluster: Cluster,
) -> None:
    await cluster.create("orders", [1, 2], logboom_flush="none")
    for number in range(5):
        await append(cluster.leader("orders"), b"%d" % number)
    await until(lambda: cluster.partition(2, "orders").high_watermark == 5, "the second one has it all")
    await cluster.stop(2)
    await asyncio.sleep(2)  # synced
    await cluster.stop(1)
    _lose_files(cluster, 1)
    await cluster.start(1)
    assert "records up to offset 5 were committed" in str(await refusal_of(_found(cluster, 1)))


async def _kill(cluster: Cluster, *brokers: int) -> None:
    await asyncio.gather(*(cluster.crash(one, Always(survives=True)) for one in brokers))


async def _kill_all(cluster: Cluster) -> None:
    """All are killed, and broker 1 knows from another start that nobody else is relied on either."""
    await _kill(cluster, 1, 2, 3)
    await cluster.start(1)
    await cluster.start(2)
    await _kill(cluster, 2)
    await cluster.start(3)
    assert cluster.assignment("orders").in_doubt
    await _kill(cluster, 1, 3)


async def _a_whole_one_leads(cluster: Cluster) -> None:
    """All three start, and one election is enough; the copy of broker 1 becomes as that of the others."""
    epoch = cluster.assignment("orders").leader_epoch
    for one in (1, 2, 3):
        await cluster.start(one)
    await until(lambda: cluster.assignment("orders").leader != NO_BROKER, "somebody leads", within_s=5.0)
    await cluster.in_sync("orders")
    assert cluster.assignment("orders").leader in (2, 3)
    assert cluster.assignment("orders").leader_epoch == epoch + 1
    assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(cluster.leader("orders").log)


@on_brokers(3, minimum=3)
async def test_nobody_waits_for_a_lost_copy_where_all_were_killed(cluster: Cluster) -> None:
    await _five_are_committed(cluster, 1)
    await asyncio.sleep(6)  # which is saved
    await _kill_all(cluster)
    _lose_files(cluster, 1)
    await _a_whole_one_leads(cluster)
    assert cluster.leader("orders").log_end_offset == 5


@on_brokers(2, minimum=1)
async def test_a_controller_of_an_earlier_build_gets_answers_that_it_can_read(cluster: Cluster) -> None:
    """It would drop the answers about all partitions because of one in which a copy is said to be damaged or lost."""
    names = [StreamName("orders"), StreamName("whole")]
    for name in names:
        await cluster.create(name, [1, 2])
        for number in range(5):
            await append(cluster.leader(name), b"%d" % number * 50)
    await cluster.stop(2)
    await _damage(cluster, 1)
    question = msgspec.msgpack.encode([(cluster.image.by_name[name].id, 0) for name in names])
    earlier = cluster.network.join(2)

    async def told() -> list[object]:
        answer: list[object] = msgspec.msgpack.decode(
            await earlier.call(BrokerId(1), FrameKind.LOG_ENDS, [question], timeout_s=5)
        )
        return answer

    epoch = int(cluster.leader("orders").leader_epoch)
    assert await told() == [[epoch, 5], [epoch, 5]]
    await cluster.stop(1)
    _lose_files(cluster, 1)
    await cluster.start(1)
    assert isinstance(await refusal_of(_found(cluster, 1)), StorageError)
    assert await told() == [None, [epoch, 5]]


async def _killed_in_sync_with_one_damaged(cluster: Cluster, *, tail: bool) -> None:
    """All were killed. The log of broker 1 lacks a segment: the last one, of which it alone had the end, or the
    first."""
    await cluster.create("orders", [1, 2, 3], segment_bytes="16384")
    for _ in range(6):
        await append(cluster.leader("orders"), bytes(10_000))
    await cluster.in_sync("orders")
    await until(lambda: all(cluster.partition(one, "orders").log.durable_end == 6 for one in (1, 2, 3)), "all have it")
    assert cluster.assignment("orders").leader == 1
    if tail:
        cluster.network.cut(1, 2)
        cluster.network.cut(1, 3)
        waits = append_soon(cluster.leader("orders"), batch(b"never acked"))
        await until(lambda: cluster.partition(1, "orders").log.durable_end == 7, "it alone has one more")
        assert cluster.assignment("orders").isr == (1, 2, 3)
        await _kill_all(cluster)
        assert await refusal_of(waits) is not None
        cluster.network.heal()
    else:
        await _kill_all(cluster)
    disk = cluster.disk(1)
    logs = sorted(name for name in disk.list("streams/orders-0") if name.endswith(".log"))
    assert len(logs) > 2
    disk.unlink(f"streams/orders-0/{logs[-1 if tail else 0]}")


@on_brokers(3, minimum=3)
async def test_a_whole_copy_leads_where_all_were_killed_and_one_lacks_its_beginning(cluster: Cluster) -> None:
    await _killed_in_sync_with_one_damaged(cluster, tail=False)
    await _a_whole_one_leads(cluster)
    assert cluster.leader("orders").log_end_offset == 6


@on_brokers(3, minimum=3)
async def test_a_whole_copy_leads_where_all_were_killed_and_the_longest_one_lacks_its_end(cluster: Cluster) -> None:
    """The others would wait for ever for what it cannot give them."""
    await _killed_in_sync_with_one_damaged(cluster, tail=True)
    await _a_whole_one_leads(cluster)
    assert cluster.leader("orders").log_end_offset == 6


@on_brokers(3)
async def test_a_damaged_copy_leads_where_nobody_else_is_relied_on(cluster: Cluster) -> None:
    """It has more than it can show: a copy that goes farther than what is left of it may lack what was acked."""
    await cluster.create("orders", [1, 2, 3], segment_bytes="16384", min_insync_replicas="1")
    for _ in range(3):
        await append(cluster.leader("orders"), bytes(10_000))
    await cluster.in_sync("orders")
    await cluster.stop(2)
    await cluster.stop(3)
    for _ in range(3):
        await append(cluster.leader("orders"), bytes(10_000))
    assert cluster.assignment("orders").isr == (1,)
    await cluster.crash(1, Always(survives=True))
    disk = cluster.disk(1)
    for name in sorted(name for name in disk.list("streams/orders-0") if name.endswith(".log"))[1:]:
        disk.unlink(f"streams/orders-0/{name}")
    await cluster.start(2)
    await cluster.start(3)
    await cluster.start(1)
    await until(lambda: cluster.partition(1, "orders").leads, "it leads")
    assert cluster.leader("orders").log_end_offset == 6


@on_brokers(3)
async def test_a_leader_that_finds_damage_hands_over_and_follows(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    for number in range(5):
        await append(cluster.leader("orders"), b"%d" % number * 50)
    damaged = cluster.leader("orders")
    await _damage(cluster, 1)
    await until(lambda: cluster.assignment("orders").leader == BrokerId(2), "another one leads")
    await cluster.in_sync("orders")
    assert not damaged.leads
    assert bytes_of(damaged.log) == bytes_of(cluster.leader("orders").log)


@on_brokers(3)
async def test_a_leader_whose_disk_does_not_give_records_back_hands_over_and_follows(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    for number in range(5):
        await append(cluster.leader("orders"), b"%d" % number * 50)
    failing, disk = cluster.leader("orders"), cluster.disk(1)

    def fault(operation: str, path: str) -> None:
        if operation in {"read", "read_cached"} and path.startswith("streams/orders-0/"):
            raise OSError(errno.EIO, "a bad sector")

    disk.fault = fault
    assert isinstance(await refusal_of(failing.reads.read(Offset(1), 10)), StorageError)
    await until(lambda: cluster.assignment("orders").leader == BrokerId(2), "another one leads")
    disk.fault = lambda operation, path: None
    await cluster.in_sync("orders")
    assert not failing.leads
    assert bytes_of(failing.log) == bytes_of(cluster.leader("orders").log)


@on_brokers(2, minimum=1)
async def test_damage_in_the_only_copy_stays_where_it_is(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2])
    await cluster.stop(2)
    for number in range(3):
        await append(cluster.leader("orders"), b"%d" % number * 50)
    alone = cluster.leader("orders")
    await _damage(cluster, 1)
    await asyncio.sleep(1)
    assert cluster.assignment("orders").isr == (1,)
    assert await append(alone, b"goes on")


@on_brokers(3)
async def test_a_broker_whose_disk_fails_gives_up_what_it_leads(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    await append(cluster.leader("orders"), b"a")
    failing = cluster.leader("orders")
    cluster[1].flusher.disk_failed(SyncFailedError("the disk is gone"))
    await until(lambda: cluster.partition(2, "orders").leads, "another one leads")
    assert cluster.assignment("orders").isr == (2, 3)
    assert (await append(cluster.leader("orders"), b"b")).base_offset == 1
    assert isinstance(await refusal_of(append(failing, b"c")), StorageError)


@on_brokers(2, minimum=1)
async def test_a_copy_that_is_counted_on_and_was_emptied_leaves_the_isr_again(cluster: Cluster) -> None:
    """The leader's proposal was under way while the copy began anew."""
    await cluster.create("orders", [1, 2])
    for number in range(5):
        await append(cluster.leader("orders"), b"%d" % number)
    copy = cluster.partition(2, "orders")
    await until(lambda: copy.high_watermark == 5, "the copy knows the mark")
    cluster.network.cut(1, 2)
    await append(cluster.leader("orders"), b"only at the leader")
    assert cluster.assignment("orders").isr == (1,)
    copy.role.rest()
    await cluster[2].flusher.run(partial(copy.log.truncate, Offset(0), now_ms=0, discard_all=True))
    copy.role.follow(BrokerId(1), cluster.assignment("orders").leader_epoch)
    await cluster.change("orders", 0, PartitionUpdate(isr=(BrokerId(1), BrokerId(2))))
    await until(lambda: cluster.assignment("orders").isr == (1,), "it is out of the ISR again")
    cluster.network.heal()
    await cluster.in_sync("orders")
    assert bytes_of(copy.log) == bytes_of(cluster.leader("orders").log)
