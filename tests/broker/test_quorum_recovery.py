"""The majority of the voters is gone with its disks: one that is left founds the cluster anew (`quorum_recovery`)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.broker.node import append, append_soon, batch, values_of
from tests.broker.replicated import DIRECTOR, Cluster, refusal_of, until
from tests.support.simulated import machine, replace_disk, run

from logboom.base.errors import InvalidRequestError, NotEnoughReplicasError, StorageError
from logboom.base.ids import BrokerId, ProducerId, StreamName
from logboom.broker.broker import Broker
from logboom.broker.control.nodes import node_id_of
from logboom.broker.disk.data_dir import DataDir, DataDirError
from logboom.broker.partition.replica import Partition
from logboom.broker.raft.quorum_recovery import found_group, read_copy, rejoin
from logboom.sim.disk import SimDisk


@contextmanager
def directory(cluster: Cluster, broker: int) -> Iterator[DataDir]:
    """The data directory of a broker that is stopped."""
    runtime, _ = machine()
    path = cluster.path / str(broker)
    opened = DataDir.open(path, cluster.disk(broker), broker_id=BrokerId(broker), cluster_id=None, ids=runtime.ids)
    try:
        yield opened
    finally:
        opened.close()


def found_anew(cluster: Cluster, broker: int, lost: list[int]) -> None:
    disk = cluster.disk(broker)
    with directory(cluster, broker) as opened:
        node = node_id_of(BrokerId(broker), opened.identity.directory_id)
        found_group(opened, disk, node, read_copy(disk, lambda found: None), list(map(BrokerId, lost)))


async def end(cluster: Cluster, broker: int) -> None:
    """The power of one goes while nobody may be left to notice."""
    process = cluster.brokers.pop(broker)
    cluster.network.leave(broker)
    left = cluster.disk(broker).power_cut(Random(broker))
    await process.stop()
    replace_disk(str(cluster.path / str(broker)), left)


async def three_voters(cluster: Cluster) -> None:
    """9, 1 and 2 vote, 3 does not; `orders` is on 1 and 2, `other` on 2 and 3, all of it acked."""
    for broker in (DIRECTOR, 1, 2, 3):
        await cluster.start(broker)
    await until(lambda: len(cluster[DIRECTOR].cluster.quorum().voters) == 3, "three vote")
    for name, replicas in (("orders", [1, 2]), ("other", [2, 3])):
        await cluster.create(name, replicas)
        for number in range(5):
            await append(cluster.leader(name), b"%d" % number)


def copied_to(target: SimDisk, source: SimDisk, directory: str) -> None:
    target.make_dir(directory)
    for name in source.list(directory):
        data = source.open(f"{directory}/{name}").read(0, source.size(f"{directory}/{name}"))
        target.open(f"{directory}/{name}", create=True).write(0, [data])


async def append_in(cluster: Cluster, broker: int) -> None:
    await append(cluster.partition(broker, "data"), b"more")


def shows(partition: Partition, end: int) -> bool:
    return partition.high_watermark == end


def in_sync(broker: Broker, name: str) -> bool:
    (assignment,) = broker.catalog.image.by_name[StreamName(name)].assignments
    return set(assignment.isr) == set(assignment.replicas)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, voters=3)


FIVE = [b"0", b"1", b"2", b"3", b"4"]


def test_what_was_acked_is_there_and_the_cluster_grows_again(cluster: Cluster) -> None:
    async def body() -> None:
        await three_voters(cluster)
        for broker in (DIRECTOR, 2, 3, 1):
            await end(cluster, broker)
        found_anew(cluster, 1, [DIRECTOR, 2])
        one = await cluster.start(1)
        assert sorted(one.catalog.image.brokers) == [1, 3]
        orders = cluster.partition(1, "orders")
        await until(lambda: orders.role.leads, "the last one that has everything leads")
        assert isinstance(await refusal_of(append(orders, b"x")), NotEnoughReplicasError), "one is below the minimum"
        with directory(cluster, 3) as opened:
            rejoin(opened, cluster.disk(3))
        replace_disk(str(cluster.path / "2"), SimDisk())
        await cluster.start(3, join=("memory:1",))
        await cluster.start(2, join=("memory:1",))
        assert cluster[2].identity.cluster_name == cluster[3].identity.cluster_name == f"{one.identity.cluster_id}#1"
        for name, leader in (("orders", 1), ("other", 3)):
            partition = cluster.partition(leader, name)
            await until(partial(in_sync, one, name), "the new disk has got everything")
            assert await values_of(partition) == FIVE
            await append(partition, b"5")
            await until(partial(shows, cluster.partition(2, name), 6), "it is on both")
        await until(lambda: len(one.cluster.quorum().voters) == 3, "three vote again")
        for broker in (3, 2, 1):
            await cluster.brokers.pop(broker).stop()

    run(body)


async def stopped(cluster: Cluster, broker: int) -> None:
    """In good order, as far as there is anybody to tell."""
    process = cluster.brokers.pop(broker)
    await process.leave()
    await process.stop()
    cluster.network.leave(broker)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "without power"])
@pytest.mark.parametrize("changes", [1, 3, 4])
@pytest.mark.parametrize("is_alone", [True, False], ids=["alone in sync", "with another one"])
def test_leaders_of_whom_the_copy_does_not_know_lose_nothing(
    tmp_path: Path, clean: bool, changes: int, is_alone: bool
) -> None:
    """The copy was cut off before some changes of the leader. The next leaders got epochs that had been given: their
    logs were not led, or records with which another one had been alone were taken from it."""
    cluster = Cluster(tmp_path, voters=3, minimum=1)

    async def body() -> None:
        for broker in (DIRECTOR, 1, 2, 3, 4):
            await cluster.start(broker)
        await until(lambda: len(cluster[DIRECTOR].cluster.quorum().voters) == 3, "three vote")
        await cluster.create("data", [3, 4])
        for other in (DIRECTOR, 2, 3, 4):
            cluster.network.cut(1, other)
        for number in range(changes):
            await cluster.elect("data", 0, 4 - number % 2)
            await until(lambda: cluster.leader("data").role.leads, "the next one leads")
            await append(cluster.leader("data"), b"%d" % number)
        cluster.network.cut(3, 4)
        pending = append_soon(cluster.leader("data"), batch(b"last"))
        if is_alone:
            await pending
        else:
            await until(lambda: cluster.leader("data").log_end_offset == changes + 1, "it is there, and not acked")
        for broker in (DIRECTOR, 2):
            await end(cluster, broker)
        for broker in (3, 4, 1):
            await (stopped if clean else end)(cluster, broker)
        await refusal_of(pending)
        cluster.network.heal()
        found_anew(cluster, 1, [DIRECTOR, 2])
        one = await cluster.start(1)
        for broker in (3, 4):
            with directory(cluster, broker) as opened:
                rejoin(opened, cluster.disk(broker))
            await cluster.start(broker, join=("memory:1",))
        await until(partial(in_sync, one, "data"), "they have the same")
        (assignment,) = one.catalog.image.by_name[StreamName("data")].assignments
        await append(cluster.partition(assignment.leader, "data"), b"goes on")
        copies = [cluster.partition(broker, "data") for broker in (3, 4)]
        await until(lambda: all(shows(copy, changes + 2) for copy in copies), "it is on both")
        for copy in copies:
            assert await values_of(copy) == [*(b"%d" % number for number in range(changes)), b"last", b"goes on"]
        for broker in (4, 3, 1):
            await cluster.brokers.pop(broker).stop()

    run(body)


def test_a_replica_of_whose_move_the_copy_does_not_know_stays_on_its_disk(tmp_path: Path) -> None:
    """Nobody else has it. The broker to which it was moved finds a directory that is assigned to another one."""
    cluster = Cluster(tmp_path, voters=3, minimum=1)

    async def body() -> None:
        for broker in (DIRECTOR, 1, 2, 3, 4):
            await cluster.start(broker)
        await until(lambda: len(cluster[DIRECTOR].cluster.quorum().voters) == 3, "three vote")
        await cluster.create("data", [3])
        await append(cluster.leader("data"), b"acked")
        for other in (DIRECTOR, 2, 3, 4):
            cluster.network.cut(1, other)
        await cluster[2].cluster_admin.reassign("data", 0, [4])
        await until(lambda: cluster.assignment("data").replicas == (4,), "it is moved")
        await until(lambda: not cluster.disk(3).exists("streams/data-0"), "it is gone from where it was")
        await append(cluster.leader("data"), b"acked there")
        for broker in (DIRECTOR, 2, 3, 4, 1):
            await end(cluster, broker)
        cluster.network.heal()
        found_anew(cluster, 1, [DIRECTOR, 2])
        await cluster.start(1)
        for broker in (3, 4):
            with directory(cluster, broker) as opened:
                rejoin(opened, cluster.disk(broker))
        for _ in range(2):  # and a restart does not remove it either
            for broker in (3, 4):
                await cluster.start(broker, join=("memory:1",))
            refused = await refusal_of(append_in(cluster, 3))
            assert "the directory streams/data-0 is missing" in str(refused)
            for broker in (3, 4):
                await cluster.brokers.pop(broker).stop()
                cluster.network.leave(broker)
        copied_to(cluster.disk(3), cluster.disk(4), "streams/data-0")
        await cluster.start(3)
        await until(lambda: cluster.partition(3, "data").role.leads, "it leads with what was copied")
        assert await values_of(cluster.partition(3, "data")) == [b"acked", b"acked there"]
        await cluster.brokers.pop(3).stop()
        await cluster.brokers.pop(1).stop()

    run(body)


def test_a_producer_id_of_which_the_copy_does_not_know_is_given_to_nobody_else(cluster: Cluster) -> None:
    """The first batches of the next one would be taken for copies of those that are there."""

    async def body() -> None:
        for broker in (DIRECTOR, 1, 2):
            await cluster.start(broker)
        await until(lambda: len(cluster[DIRECTOR].cluster.quorum().voters) == 3, "three vote")
        for other in (DIRECTOR, 2):
            cluster.network.cut(1, other)
        given = {await cluster[2].producer_ids.allocate() for _ in range(3)}
        for broker in (DIRECTOR, 2, 1):
            await end(cluster, broker)
        cluster.network.heal()
        found_anew(cluster, 1, [DIRECTOR, 2])
        one = await cluster.start(1)
        assert given.isdisjoint({await one.producer_ids.allocate() for _ in range(3)})
        await cluster.brokers.pop(1).stop()

    run(body)


def test_a_broker_that_runs_alone_goes_on_with_older_metadata(tmp_path: Path) -> None:
    """Restored from a backup, they know neither the latest epochs of its logs nor the producer ids that it gave."""
    cluster = Cluster(tmp_path, voters=1, minimum=1)

    async def life(value: bytes) -> ProducerId:
        broker = await cluster.start(DIRECTOR)
        if "orders" not in broker.catalog.image.by_name:
            await broker.catalog.create_stream("orders")
        await append(broker.replicas.find("orders", 0), value)
        given = await broker.producer_ids.allocate()
        await cluster.brokers.pop(DIRECTOR).stop()
        return given

    async def body() -> None:
        given = [await life(b"0")]
        backup = cluster.disk(DIRECTOR).copy()
        given += [await life(b"%d" % number) for number in range(1, 5)]
        disk = cluster.disk(DIRECTOR)
        disk.remove_tree("metadata")
        for path in [path for path in backup.nodes if path.startswith("metadata/")]:
            disk.make_dir(path.rpartition("/")[0])
            disk.open(path, create=True).write(0, [bytes(backup.nodes[path].data)])
        found_anew(cluster, DIRECTOR, [])
        assert await life(b"5") not in given
        broker = await cluster.start(DIRECTOR)
        assert await values_of(broker.replicas.find("orders", 0)) == [b"%d" % number for number in range(6)]
        await cluster.brokers.pop(DIRECTOR).stop()

    run(body)


def test_what_cannot_be_is_refused_and_nothing_changes(cluster: Cluster) -> None:
    async def body() -> None:
        for broker in (DIRECTOR, 1):
            await cluster.start(broker)
        for broker in (1, DIRECTOR):
            await cluster.brokers.pop(broker).stop()
        before = cluster.disk(1).list("metadata")
        for lost, why in (([1], "it is not lost"), ([7], "no broker is registered as 7")):
            with pytest.raises(InvalidRequestError, match=why):
                found_anew(cluster, 1, lost)
        runtime, _ = machine()
        new = SimDisk()
        made = DataDir.open(Path("new"), new, broker_id=BrokerId(5), cluster_id=None, ids=runtime.ids)
        with pytest.raises(StorageError, match="no copy of the cluster's metadata"):
            read_copy(new, lambda found: None)
        made.close()
        assert cluster.disk(1).list("metadata") == before

    run(body)


def test_a_member_of_the_generation_that_there_is_does_not_rejoin_it(cluster: Cluster) -> None:
    """It was a voter there, and would vote again without knowing what it had promised."""

    async def body() -> None:
        for broker in (DIRECTOR, 1):
            await cluster.start(broker)
        await cluster.stop(1)
        with directory(cluster, 1) as opened:
            rejoin(opened, cluster.disk(1))
        with pytest.raises(DataDirError, match="only brokers of an older generation rejoin"):
            await cluster.start(1)
        with pytest.raises(DataDirError, match="belongs to no cluster yet: give the address of"):
            await cluster.start(1, join=())
        await cluster.brokers.pop(DIRECTOR).stop()

    run(body)


def test_a_broker_that_has_a_cluster_of_its_own_does_not_join_another_one(cluster: Cluster) -> None:
    async def body() -> None:
        await cluster.start(DIRECTOR)
        await (await cluster.start(1, join=())).stop()
        own = cluster.brokers.pop(1).identity.cluster_id
        with pytest.raises(DataDirError, match=rf"belongs to cluster {own}, and the broker at memory:9 to cluster .*"):
            await cluster.start(1)
        alone = await cluster.start(1, join=("memory:1", "memory:7"))
        assert alone.identity.cluster_id == own, "those that it names may be its own, and away"
        for broker in (1, DIRECTOR):
            await cluster.brokers.pop(broker).stop()

    run(body)


def ends_after(steps: int) -> Callable[[str, str], None]:
    """The process ends before the operation of the disk behind so many."""
    left = iter(range(steps))

    def fault(operation: str, path: str) -> None:
        if next(left, None) is None:
            raise OSError(5, f"{operation} {path}: the process is gone")

    return fault


def test_wherever_it_is_cut_short_a_second_run_ends_it(tmp_path: Path) -> None:
    async def body() -> None:
        steps, cut_short = 0, True
        while cut_short:
            cluster = Cluster(tmp_path / str(steps), voters=1)
            stream = await (await cluster.start(DIRECTOR)).catalog.create_stream("orders")
            await cluster.brokers.pop(DIRECTOR).stop()
            disk, cut_short = cluster.disk(DIRECTOR), False
            disk.fault = ends_after(steps)
            try:
                found_anew(cluster, DIRECTOR, [])
            except (StorageError, OSError):
                cut_short = True
            replace_disk(str(cluster.path / str(DIRECTOR)), disk.after_kill())
            if cut_short:
                found_anew(cluster, DIRECTOR, [])
            again = await cluster.start(DIRECTOR)
            assert again.catalog.image.by_id[stream.id].name == "orders"
            assert again.identity.generation in (1, 2)
            await cluster.brokers.pop(DIRECTOR).stop()
            steps += 3
        assert steps > 20

    run(body)
