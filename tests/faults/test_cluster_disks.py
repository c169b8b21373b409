"""A real cluster under load, one of whose disks fails, is full, or comes back empty; or all forget what was not synced.

Disks that fail are served by FUSE, small ones are ext4 on a loop device; both need the right to mount.
"""

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.faults.cluster_load import OFFSETS, STREAM, go_on, timed, under_load
from tests.faults.conftest import fail_syncs
from tests.faults.talk import metric
from tests.faults.test_disk_mounts import Loop
from tests.support.brokers import ClusterBrokers, Place
from tests.support.commands import run_logboom
from tests.support.fusedisk import FuseDisk
from tests.support.server import BrokerStartError
from tests.support.waiting import WAIT_S

from logboom.sim.disk import Always

SHORT = ("broker.replica_lag_max_ms=3000",)
LEASE_MS = 2_000
FILLING_BYTES = 20_000
"""Records that are soon through the room that a log has reserved, however slow the machine is."""


def command(cluster: ClusterBrokers, *words: str) -> None:
    done = run_logboom(["cluster", *words, "--bootstrap", cluster.bootstrap], timeout_s=WAIT_S)
    assert done.returncode == 0, done.stderr.decode()


def in_sync(cluster: ClusterBrokers) -> None:
    cluster.wait_in_sync(STREAM)
    cluster.wait_in_sync(OFFSETS)


@pytest.mark.slow
def test_a_disk_that_comes_back_empty(tmp_path: Path) -> None:
    """Of a leader, and of the controller: it is a stranger under its old id, and another broker takes its place."""
    with under_load(tmp_path, *SHORT, lease_ms=LEASE_MS) as (cluster, load):
        for new, which in ((4, "leader"), (5, "controller")):
            lost = cluster.leader(STREAM, 0) if which == "leader" else cluster.controller()
            with timed(f"the disk of the {which} {lost} is lost, broker {new} takes its place", load):
                cluster[lost].kill9()
                shutil.rmtree(cluster[lost].data)
                go_on(load)
                if lost != 1:  # the founder, whose command names nobody to join, would found another cluster
                    with pytest.raises(BrokerStartError, match="registered with another data directory"):
                        cluster[lost].start()
                cluster.add(new)
                command(cluster, "drain", str(lost))
                command(cluster, "remove", str(lost))
                go_on(load)
                in_sync(cluster)


@pytest.mark.slow
def test_a_disk_that_fails(tmp_path: Path, disks: dict[int, FuseDisk]) -> None:
    """Others lead in its place. After the power was cut it has what it had synced, and is one of them again."""
    places = {number: Place(directory=disk.path / "data") for number, disk in disks.items()}
    with under_load(tmp_path, *SHORT, lease_ms=LEASE_MS, places=places) as (cluster, load):
        for which in ("leader", "controller"):
            number = cluster.leader(STREAM, 0) if which == "leader" else cluster.controller()
            with timed(f"EIO of the {which} {number}", load):
                fail_syncs(disks[number])
                go_on(load)
                assert cluster.leader(STREAM, 0) != number
                cluster[number].kill9()
                disks[number].fault = lambda operation, path: None
                disks[number].power_cut(Always(False))
                cluster.start(number)
                go_on(load)
                in_sync(cluster)


@pytest.mark.slow
def test_a_power_failure_of_all(tmp_path: Path, disks: dict[int, FuseDisk]) -> None:
    """No disk has a byte more than was synced."""
    places = {number: Place(directory=disk.path / "data") for number, disk in disks.items()}
    with under_load(tmp_path, *SHORT, lease_ms=LEASE_MS, places=places) as (cluster, load):
        for _ in range(2):
            with timed("power failure of all", load):
                cluster.kill_all()
                for disk in disks.values():
                    disk.power_cut(Always(False))
                cluster.start(*cluster.brokers)
                go_on(load)
                in_sync(cluster)


@pytest.mark.slow
def test_a_disk_that_is_put_back_to_an_older_copy(tmp_path: Path) -> None:
    """All are killed with it. Nothing in the directory tells it, only what the others have."""
    with under_load(tmp_path, *SHORT, lease_ms=LEASE_MS) as (cluster, load):
        for number in (1, 2, 3):
            in_sync(cluster)
            data, older = cluster[number].data, tmp_path / f"older-{number}"
            cluster[number].pause()
            shutil.copytree(data, older)
            cluster[number].resume()
            go_on(load)
            in_sync(cluster)
            with timed(f"an older copy of {number}'s disk", load):
                cluster.kill_all()
                shutil.rmtree(data)
                older.rename(data)
                cluster.start(*cluster.brokers)
                go_on(load)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Loop]:
    made = Loop(tmp_path, 200)
    yield made
    subprocess.run(["umount", "--lazy", str(made.path)], check=False, timeout=WAIT_S)


def refusals(cluster: ClusterBrokers, number: int) -> float:
    """How many writes a broker has refused because its disk is full."""
    return metric(cluster[number].http, "logboom_disk_full_total")


def has_refused(cluster: ClusterBrokers, number: int, before: float) -> bool:
    """Whether it has refused more."""
    return refusals(cluster, number) > before


def leads(cluster: ClusterBrokers, number: int) -> bool:
    """Whether a broker leads a partition of the load's stream."""
    return any(one.leader == number for one in cluster.partitions(STREAM).values())


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path, small: Loop) -> None:
    """Of a leader: others lead in its place, and every partition takes records meanwhile. Once there is room it is in
    sync again, and leads again where it is asked to."""
    places = {2: Place(directory=small.path / "data")}
    with under_load(tmp_path, *SHORT, lease_ms=LEASE_MS, places=places) as (cluster, load):
        for _ in range(2):
            before = refusals(cluster, 2)
            command(cluster, "rebalance")
            cluster.wait_for(lambda: leads(cluster, 2), "broker 2 leads")
            with timed("full disk", load):
                ballast = small.fill()
                load.record_bytes = FILLING_BYTES
                cluster.wait_for(partial(has_refused, cluster, 2, before), "a full disk of broker 2")
                cluster.wait_for(lambda: not leads(cluster, 2), "others lead")
                load.record_bytes = 1
                go_on(load)
                ballast.unlink()
                go_on(load)
                in_sync(cluster)


@pytest.mark.slow
def test_a_disk_that_comes_back_empty_under_the_same_id(tmp_path: Path) -> None:
    """Nobody else could hold the replicas that were on it: they stay its own."""
    with under_load(tmp_path, *SHORT, lease_ms=LEASE_MS) as (cluster, load):
        lost = next(one for one in (2, 3) if one != cluster.controller())
        with timed(f"the disk of {lost} is lost and replaced", load):
            cluster[lost].kill9()
            shutil.rmtree(cluster[lost].data)
            go_on(load)
            with pytest.raises(BrokerStartError, match="registered with another data directory"):
                cluster[lost].start()
            shutil.rmtree(cluster[lost].data)
            command(cluster, "remove", str(lost))
            cluster.start(lost)
            go_on(load)
            in_sync(cluster)
