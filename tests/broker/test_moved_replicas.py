"""Replicas that move to another broker leave nothing behind, and nothing is removed too early."""

import pytest
from tests.broker.node import append
from tests.broker.replicated import Cluster, bytes_of, on_brokers, refusal_of, until

from logboom.base.errors import NotLeaderError
from logboom.base.ids import Offset
from logboom.metadata.reassignment import reassign
from logboom.sim.disk import SimDisk


@on_brokers(3, minimum=1)
async def test_replicas_move_to_another_broker_and_leave_nothing_behind(cluster: Cluster) -> None:
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
    disk = cluster.disk(1)
    await until(lambda: not any("-0" in name and "consumer" not in name for name in disk.list("streams")), "it is gone")
    assert "orders-1" in disk.list("streams")
    await cluster.take(reassign(cluster.image, "orders", 0, [1, 2], cluster.minimum_of))
    await until(lambda: cluster.assignment("orders").replicas == (1, 2), "it is back")
    assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(cluster.partition(2, "orders").log)


@on_brokers(3, minimum=1)
async def test_what_an_earlier_process_left_of_a_replica_that_moved_is_removed_once_that_is_certain(
    cluster: Cluster,
) -> None:
    """At the next start, and again where an old copy of the directory was put back: `until` fails else."""
    await cluster.create("orders", [1, 2])
    await append(cluster.leader("orders"), b"a")
    await cluster.stop(1)
    disk = cluster.disk(1)
    files = disk.list("streams/orders-0")
    before = {name: disk.open(f"streams/orders-0/{name}").read(0, 1 << 20) for name in files}
    await cluster.take(reassign(cluster.image, "orders", 0, [2, 3], cluster.minimum_of))
    await until(lambda: cluster.assignment("orders").replicas == (2, 3), "the move is complete")
    removed: list[str] = []
    disk.fault = lambda operation, path: removed.append(path) if operation == "remove_tree" else None
    await cluster.start(1)
    await until(lambda: not disk.exists("streams/orders-0"), "it is gone")
    assert "streams/orders-0" not in removed, "what a crash leaves of it under that name would be opened again"
    await cluster.stop(1)
    disk.make_dir("streams/orders-0")
    for name, data in before.items():
        disk.open(f"streams/orders-0/{name}", create=True).write(0, [data])
    await cluster.start(1)
    await until(lambda: not disk.exists("streams/orders-0"), "it is gone again")


@on_brokers(3, minimum=1)
async def test_what_is_left_of_a_copy_that_was_being_removed_is_no_copy(cluster: Cluster) -> None:
    """Found by `logboom sim run --nodes 3 --seconds 60 --seed 690067`: a broker was killed while it removed a replica,
    which then came back to it. It began behind the segments that were gone, led, and had the others delete theirs."""
    await cluster.create("orders", [1, 2], segment_bytes="16384")
    for _ in range(6):
        await append(cluster.leader("orders"), bytes(10_000))
    await cluster.stop(1)
    await cluster.take(reassign(cluster.image, "orders", 0, [2, 3], cluster.minimum_of))
    await until(lambda: cluster.assignment("orders").replicas == (2, 3), "the move is complete")
    disk = cluster.disk(1)
    _remove_half(disk)
    await cluster.take(reassign(cluster.image, "orders", 0, [1, 2, 3], cluster.minimum_of))
    await cluster.start(1)
    await cluster.in_sync("orders")
    assert {cluster.partition(one, "orders").log_start_offset for one in (1, 2, 3)} == {0}
    assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(cluster.partition(2, "orders").log)
    await cluster.stop(1)
    _remove_half(disk)
    await cluster.start(1)
    await cluster.in_sync("orders")
    assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(cluster.partition(2, "orders").log)
    assert sum("set-aside" in name for name in disk.list("streams")) == 2, "the rest of each stays"


@on_brokers(3, minimum=1)
async def test_a_copy_with_a_damaged_mark_is_used(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    await append(cluster.leader("orders"), b"a")
    for _ in range(2):
        await cluster.stop(1)
        disk = cluster.disk(1)
        disk.open("streams/orders-0/owner.json").write(0, [b"?"])
        await cluster.start(1)
        await cluster.in_sync("orders")
    assert not any("set-aside" in name for name in disk.list("streams"))


def _remove_half(disk: SimDisk) -> None:
    for name in disk.list("streams/orders-0"):
        if name in ("owner.json", "durable-end", "leader-epochs") or name.startswith("0" * 20):
            disk.unlink(f"streams/orders-0/{name}")
    assert any(name.endswith(".log") for name in disk.list("streams/orders-0"))
