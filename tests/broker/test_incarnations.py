"""A data directory that came back as it was some time ago is known by the processes that it has not noted."""

import asyncio
from random import Random

import pytest
from tests.broker.node import append, values_of
from tests.broker.replicated import DIRECTOR, Cluster, on_brokers, until
from tests.support.full_disk import full
from tests.support.simulated import replace_disk

from logboom.base.errors import BrokerRunsError, LogboomError, NotControllerError
from logboom.base.ids import BrokerId
from logboom.broker.control import commands
from logboom.broker.control.incarnations import UNKNOWN, note_process
from logboom.broker.disk.data_dir import METADATA_DIR
from logboom.sim.disk import SimDisk

PATH = f"{METADATA_DIR}/incarnations"


def used() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs([METADATA_DIR])
    return disk


def noted(disk: SimDisk, own: str, registered: str | None = None, *, is_new: bool = False) -> tuple[str, ...]:
    return note_process(disk, own, registered=registered, is_new=is_new)


def test_every_process_since_the_first_is_named_whether_it_was_registered_or_not() -> None:
    disk = used()
    assert noted(disk, "a", is_new=True) == ()
    assert noted(disk, "b", is_new=True) == ("a",)
    assert noted(disk.copy(), "c", "a") == ("a", "b")


def test_a_directory_of_an_older_program_learns_with_the_first_process_that_was_registered() -> None:
    disk = used()
    assert noted(disk, "b", "a") == (UNKNOWN,)
    assert noted(disk, "c", "a") == (UNKNOWN, "b")
    assert noted(disk, "d", "c") == ("b", "c")


def test_a_damaged_file_says_nothing() -> None:
    disk = used()
    noted(disk, "a", is_new=True)
    disk.nodes[PATH].data[-3] ^= 1
    assert noted(disk, "b", "a") == (UNKNOWN,)


def test_the_file_does_not_grow_for_ever() -> None:
    disk = used()
    for number in range(500):
        last = noted(disk, str(number), str(number - 1) if number < 250 else "249", is_new=number == 0)
        assert len(last) <= 101
    assert UNKNOWN in last, "249 was registered last, and is not among the newest"
    assert noted(disk, "500", "499")[-1] == "499"
    assert UNKNOWN not in noted(disk, "501", "500")


def test_on_a_full_disk_the_next_process_knows_less() -> None:
    disk = used()
    noted(disk, "a", is_new=True)
    with full(disk):
        assert noted(disk, "b", "a") == ("a",)
    assert noted(disk, "c", "a") == (UNKNOWN,)


@on_brokers(2)
async def test_a_directory_that_was_restored_is_refused_and_the_right_one_taken(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2])
    await cluster.stop(2)
    place, older = str(cluster.path / "2"), cluster.disk(2).copy()
    await cluster.start(2)
    await cluster.in_sync("orders")
    await append(cluster.leader("orders"), b"a")
    await cluster.stop(2)
    newer = cluster.disk(2)
    replace_disk(place, older)
    # The controller refuses it, unless the metadata group has noticed before that entries are missing.
    with pytest.raises(LogboomError, match=r"is an older copy|the log was lost"):
        await cluster.start(2)
    cluster.network.leave(2)
    replace_disk(place, newer)
    await cluster.start(2)
    await cluster.in_sync("orders")


@on_brokers(2)
async def test_nobody_takes_over_from_a_process_that_lives(cluster: Cluster) -> None:
    channel, registration = cluster[1].cluster.channel, cluster[1].cluster.registration
    before = cluster.image.brokers[BrokerId(1)]
    copy = commands.RegisterBroker(
        id=1,
        directory_id=before.directory_id,
        incarnation="copy",
        listeners={},
        levels=before.levels or (1, 2),
        earlier=(before.incarnation,),
    )
    with pytest.raises(BrokerRunsError, match="another process of broker 1 is alive"):
        await channel.submit(copy, commands.Registered)
    assert cluster.image.brokers[BrokerId(1)] == before
    assert registration.holds_lease


@on_brokers(2)
async def test_a_new_controller_lets_nobody_take_over_from_whom_it_has_not_heard_of_yet(cluster: Cluster) -> None:
    """Nor does it say that such a process lives: the one that asks would end, though the other may have been killed
    under an earlier controller (simulated seed 100010)."""
    director, other = cluster[DIRECTOR], cluster.image.brokers[BrokerId(2)]
    liveness, brokers = director.cluster.controller._liveness, cluster.image.brokers
    liveness.end()
    liveness.begin()  # no heartbeat comes before the next wait
    with pytest.raises(NotControllerError, match=f"does not know yet whether broker {other.id} is alive"):
        liveness.check_has_ended(other)
    liveness.check_has_ended(brokers[director.identity.broker_id])


@on_brokers(2)
async def test_a_killed_broker_comes_back_while_controllers_change(cluster: Cluster) -> None:
    """Each controller waits a lease of its own for the process that was killed: longer in all than the next process
    bears to be told that the one before it lives (simulated seed 100010)."""
    director = cluster[DIRECTOR]
    liveness, lease_s = director.cluster.controller._liveness, director.config.lease_ms / 1_000
    killed, left = cluster.brokers.pop(2), cluster.disk(2).power_cut(Random(0))
    cluster.network.leave(2)
    await killed.stop()
    replace_disk(str(cluster.path / "2"), left)
    again = asyncio.ensure_future(cluster.start(2))
    for _ in range(8):
        liveness.end()
        liveness.begin()
        await asyncio.sleep(0.6 * lease_s)
        assert not again.done()
    await again


@on_brokers(2)
async def test_a_copy_of_the_process_that_ran_last_counts_as_that_was_killed(cluster: Cluster) -> None:
    """Nothing tells it from what that process left. What it lacks it gets from the replica that went on."""
    await cluster.create("orders", [2, 1])
    await append(cluster.leader("orders"), b"a")
    older = cluster.disk(2).copy()
    await append(cluster.leader("orders"), b"b")
    await cluster.crash(2, Random(0))
    replace_disk(str(cluster.path / "2"), older)
    await until(lambda: cluster.assignment("orders").leader == 1, "the other one leads")
    await cluster.start(2)
    await cluster.in_sync("orders")
    assert await values_of(cluster.partition(1, "orders")) == [b"a", b"b"]
    await until(lambda: cluster.partition(2, "orders").high_watermark == 2, "it has both")
    assert await values_of(cluster.partition(2, "orders")) == [b"a", b"b"]
