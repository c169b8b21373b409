"""What becomes of the logs when another broker leads a partition: what was committed stays, what was not is cut."""

import asyncio
from random import Random

from tests.broker.node import append, append_soon, batch, values_of
from tests.broker.replicated import DIRECTOR, Cluster, bytes_of, on_brokers, refusal_of, stays, until
from tests.support.full_disk import full

from logboom.base.errors import (
    DiskFullError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
)
from logboom.base.ids import BrokerId

LARGE = bytes(100_000)


@on_brokers(3)
async def test_an_idempotent_producer_goes_on_with_a_new_leader(cluster: Cluster) -> None:
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


@on_brokers(3)
async def test_what_was_refused_below_the_minimum_is_taken_once_by_the_next_leader(cluster: Cluster) -> None:
    """The producer sends again what its leader has in the log, has refused, and cannot commit: neither that leader nor
    the next one, who has been eligible meanwhile, may ack it before it is committed, and it is there once."""
    await cluster.create("orders", [1, 2, 3])
    await append(cluster.leader("orders"), b"0", producer=(7, 0, 0))
    old = cluster.leader("orders")
    cluster.network.cut(1, 2)
    cluster.network.cut(1, 3)
    refused = await refusal_of(append_soon(old, batch(b"1", producer=(7, 0, 1))))
    assert isinstance(refused, NotEnoughReplicasAfterAppendError)
    again = await refusal_of(append_soon(old, batch(b"1", producer=(7, 0, 1))))
    assert isinstance(again, NotEnoughReplicasError)
    assert (old.log.durable_end, old.high_watermark) == (2, 1)
    now = cluster.assignment("orders")
    assert (now.isr, now.elr) == ((1,), (2, 3))
    await cluster.crash(1, Random(0))
    await until(lambda: cluster.assignment("orders").leader in (2, 3), "an eligible one leads")
    leader = cluster.leader("orders")
    await until(lambda: leader.leads, "it knows it")
    taken = append_soon(leader, batch(b"1", producer=(7, 0, 1)))
    while (refusal := await refusal_of(taken)) is not None:
        assert isinstance(refusal, NotEnoughReplicasError | NotEnoughReplicasAfterAppendError)
        await asyncio.sleep(0.05)
        taken = append_soon(leader, batch(b"1", producer=(7, 0, 1)))
    assert taken.result().base_offset == 1
    cluster.network.heal()
    await cluster.start(1)
    await cluster.in_sync("orders")
    assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(leader.log)
    assert await values_of(leader) == [b"0", b"1"]


@on_brokers(3)
async def test_an_old_leader_that_comes_back_cuts_what_was_not_committed(cluster: Cluster) -> None:
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


@on_brokers(3, inline_flush=False)
async def test_an_old_leader_on_a_full_disk_cuts_its_log_once_there_is_room(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    await append(cluster.leader("orders"), b"a")
    old = cluster.leader("orders")
    for other in (2, 3, DIRECTOR):
        cluster.network.cut(1, other)
    lost = append_soon(old, batch(b"only at the old leader"))
    await until(lambda: old.log.durable_end == 2, "it has it on its disk")
    await cluster.elect("orders", 0, 2)
    with full(cluster.disk(1), "orders") as refused:
        cluster.network.heal()
        await refusal_of(lost)
        await until(lambda: len(refused) > 1, "the copy was to be cut, twice")
        assert cluster[1].flusher.failure is None
        assert await values_of(old) == [b"a"]
    await append(cluster.leader("orders"), b"b")
    await cluster.in_sync("orders")
    assert bytes_of(old.log) == bytes_of(cluster.leader("orders").log)


@on_brokers(2, minimum=1)
async def test_a_copy_that_was_cut_hears_what_is_committed_though_nothing_more_is_written(cluster: Cluster) -> None:
    """Found by `logboom sim run --nodes 3 --seed 22`."""
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


@on_brokers(3)
async def test_a_leader_whose_disk_is_full_has_another_one_lead(cluster: Cluster) -> None:
    """Its clients may try again, and find the next leader; it is one of them again once there is room."""
    await cluster.create("orders", (1, 2, 3))
    await append(cluster.leader("orders"), b"before")
    await cluster.in_sync("orders")
    disk = cluster.disk(1)
    room_bytes, disk.capacity_bytes = disk.capacity_bytes, disk.capacity_bytes - disk.free_bytes
    assert isinstance(await refusal_of(append(cluster.leader("orders"), LARGE)), DiskFullError)
    await until(lambda: cluster.assignment("orders").leader == 2, "another one leads")
    await until(lambda: cluster.leader("orders").leads, "it knows it")
    assert cluster.assignment("orders").isr == (2, 3)
    await append(cluster.leader("orders"), LARGE)
    await stays(lambda: cluster.assignment("orders").isr == (2, 3), 5.0)
    disk.capacity_bytes = room_bytes
    await cluster.in_sync("orders")
    await until(lambda: cluster.partition(1, "orders").high_watermark == 2, "it has what it lacked")
    assert await values_of(cluster.partition(1, "orders")) == [b"before", LARGE]


@on_brokers(2)
async def test_a_full_disk_of_a_leader_without_whom_nothing_is_committed_changes_no_leader(cluster: Cluster) -> None:
    await cluster.create("orders", (1, 2))
    await append(cluster.leader("orders"), b"before")
    disk = cluster.disk(1)
    room_bytes, disk.capacity_bytes = disk.capacity_bytes, disk.capacity_bytes - disk.free_bytes
    assert isinstance(await refusal_of(append(cluster.leader("orders"), LARGE)), DiskFullError)
    await stays(lambda: cluster.assignment("orders").leader == 1, 5.0)
    assert await values_of(cluster.leader("orders")) == [b"before"]
    disk.capacity_bytes = room_bytes
    await append(cluster.leader("orders"), b"after")
