"""Replicas that the metadata counts on and that were never made, since their brokers crashed or had no room: they are
made later, and are not taken for lost; those that were made and are gone are.
"""

import errno
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from tests.broker.node import append, values_of
from tests.broker.replicated import DIRECTOR, Cluster, on_brokers, until

from logboom.base.errors import StorageError
from logboom.base.ids import BrokerId, PartitionIndex, StreamId
from logboom.broker.disk.made_replicas import Made, load, save
from logboom.sim.disk import SimDisk

FILE = "metadata/made-replicas"


async def _create_while_nobody_hears(cluster: Cluster, name: str) -> None:
    """A stream of which the brokers 1 and 2 are the ISR; the power of both fails before they have heard of it."""
    for broker in (1, 2):
        cluster.network.cut(DIRECTOR, broker)
    await cluster.create(name, [1, 2])
    for broker in (1, 2):
        await cluster.crash(broker, Random(broker))
    cluster.network.heal()


@on_brokers(2, minimum=1)
async def test_a_stream_that_no_replica_had_made_when_all_of_them_crashed_takes_records(cluster: Cluster) -> None:
    """The last one in the ISR found no directory, and waited for somebody to bring it back. Seed 300013 of simulated
    clusters."""
    await _create_while_nobody_hears(cluster, "orders")
    for broker in (1, 2):
        await cluster.start(broker)
    await until(lambda: cluster.assignment("orders").leader > 0, "there is a leader")
    await cluster.in_sync("orders")
    await append(cluster.leader("orders"), b"a")
    assert await values_of(cluster.leader("orders")) == [b"a"]


@on_brokers(1, minimum=1)
async def test_a_replica_for_which_there_was_no_room_is_made_once_there_is(cluster: Cluster) -> None:
    """It is the only one. It was not tried again, and a restart took it for lost."""
    disk = cluster.disk(1)
    room = disk.fault
    _refuse(disk, "streams/orders-0")
    await cluster.create("orders", [1])
    with pytest.raises(StorageError, match="cannot be created"):
        cluster.partition(1, "orders")
    disk.fault = room
    await until(lambda: _is_led(cluster, "orders"), "it is made and led")
    await append(cluster.leader("orders"), b"a")


@on_brokers(1, minimum=1)
async def test_a_replica_for_which_there_was_no_room_is_made_by_the_next_process(cluster: Cluster) -> None:
    _refuse(cluster.disk(1), "streams/orders-0")
    await cluster.create("orders", [1])
    await cluster.create("others", [1])
    await cluster.crash(1, Random(1))
    assert load(cluster.disk(1)) is not None
    await cluster.start(1)
    await until(lambda: _is_led(cluster, "orders"), "it is made and led")
    await append(cluster.leader("orders"), b"a")


@on_brokers(1, minimum=1)
async def test_a_start_without_room_for_a_new_replica_says_that_the_disk_is_full(cluster: Cluster) -> None:
    """It said what the system calls that, which alarms do not know. Found by brokers under all faults at once."""
    _refuse(cluster.disk(1), "streams/orders-0")
    await cluster.create("orders", [1])
    await cluster.create("others", [1])
    await cluster.crash(1, Random(1))
    disk = cluster.disk(1)
    room = disk.fault
    _refuse(disk, "streams/orders-0")
    await cluster.start(1)
    (error,) = cluster[1].replicas.failed.values()
    assert "The disk is full: no room in orders" in str(error)
    disk.fault = room
    await until(lambda: _is_led(cluster, "orders"), "it is made and led")


@on_brokers(1, minimum=1)
async def test_a_replica_that_was_made_and_is_gone_is_not_replaced_by_an_empty_one(cluster: Cluster) -> None:
    await cluster.create("orders", [1])
    await cluster.create("others", [1])
    for lost in ("orders", "others"):
        await append(cluster.leader(lost), b"a")
        await cluster.stop(1)
        cluster.disk(1).remove_tree(f"streams/{lost}-0")
        await cluster.start(1)
        with pytest.raises(StorageError, match="is missing"):
            cluster.partition(1, lost)


@on_brokers(1, minimum=1)
async def test_without_the_file_nothing_is_taken_for_new_that_is_counted_on(cluster: Cluster) -> None:
    """As in a data directory of an earlier version."""
    await cluster.create("orders", [1])
    await cluster.stop(1)
    disk = cluster.disk(1)
    disk.remove_tree("streams/orders-0")
    disk.unlink(FILE)
    await cluster.start(1)
    with pytest.raises(StorageError, match="is missing"):
        cluster.partition(1, "orders")
    assert load(disk) is not None


def test_the_file_says_what_was_written_and_nothing_where_it_is_garbled() -> None:
    disk = SimDisk()
    disk.make_dirs(["metadata"])
    assert load(disk) is None
    made = Made(12, frozenset({(StreamId(UUID(int=7)), PartitionIndex(3))}))
    save(disk, made)
    assert load(disk) == made
    disk.open(FILE).write(6, [b"\xff"])
    assert load(disk) is None


def _refuse(disk: SimDisk, directory: str) -> None:
    """There is no room for a directory and what is in it."""

    def fault(_operation: str, path: str) -> None:
        if path.startswith(directory):
            raise OSError(errno.ENOSPC, "no room")

    disk.fault = fault


def _is_led(cluster: Cluster, name: str) -> bool:
    leader = cluster.assignment(name).leader
    held = [one for one in cluster[leader].replicas if one.stream.name == name] if leader == BrokerId(1) else []
    return any(one.role.leads for one in held)


@pytest.mark.parametrize("knows_what_is_new", [False, True])
def test_a_stream_that_was_deleted_and_made_again_while_a_broker_was_away_is_made_there(
    tmp_path: Path, knows_what_is_new: bool
) -> None:
    """It found the directory of the deleted one in its place. Where it could not tell that the new one is new, as with
    metadata that came as a snapshot, it could not open that for good."""

    @on_brokers(2, minimum=1)
    async def body(cluster: Cluster) -> None:
        await cluster.create("orders", [1, 2], partitions=3)
        for index in range(3):
            await append(cluster.leader("orders", index), b"old")
            await cluster.in_sync("orders", index)
        await cluster.crash(2, Random(0))
        if not knows_what_is_new:
            cluster.disk(2).unlink(FILE)
        await cluster[DIRECTOR].catalog.delete_stream("orders")
        await cluster.create("orders", [1, 2], partitions=2)
        await append(cluster.leader("orders"), b"new")
        await cluster.start(2)
        assert not cluster[2].replicas.failed
        for index in range(2):
            await cluster.in_sync("orders", index)
        assert not cluster.disk(2).exists("streams/orders-2")
        await until(lambda: cluster.partition(2, "orders").high_watermark == 1, "it knows what is committed")
        assert await values_of(cluster.partition(2, "orders")) == [b"new"]

    body(tmp_path)
