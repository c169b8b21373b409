"""Clients that are not librdkafka, while brokers of their cluster are killed, paused, cut off, or lose their disks."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.faults.cluster_load import OFFSETS, Load, go_on, timed
from tests.faults.conftest import NUMBERS, fail_syncs, works_again
from tests.faults.cut_network import CutNetwork
from tests.faults.foreign_load import Commands, ForeignLoad, aiokafka, java
from tests.support.brokers import ClusterBrokers, Place
from tests.support.fusedisk import FuseDisk
from tests.support.skipping import skipped_on

from logboom.bench.servers.process import UnavailableError
from logboom.sim.disk import Always

STREAM = "orders"
PARTITIONS = 3
SHORT = "broker.replica_lag_max_ms=5000"


def settled(cluster: ClusterBrokers) -> None:
    cluster.wait_in_sync(STREAM)
    cluster.wait_in_sync(OFFSETS)


def trouble(cluster: ClusterBrokers, load: Load) -> None:
    """Each kind of it once; all is well again behind each."""
    for what in ("leader", "controller"):
        number = cluster.leader(STREAM, 0) if what == "leader" else cluster.controller()
        with timed(f"kill -9 of the {what} {number}", load):
            cluster[number].kill9()
            go_on(load)
            cluster.start(number)
            settled(cluster)
    for seconds in (1, 6):
        number = cluster.leader(STREAM, 1)
        with timed(f"SIGSTOP of a leader, {number}, for {seconds} s", load):
            cluster[number].pause()
            time.sleep(seconds)
            cluster[number].resume()
            go_on(load)
            settled(cluster)
    with timed("kill -9 of all", load):
        cluster.kill_all()
        cluster.start(*cluster.brokers)
        go_on(load)
        settled(cluster)
    for number in cluster.brokers:
        with timed(f"restart of broker {number}", load):
            assert cluster[number].sigterm() == 0
            cluster.start(number)
            go_on(load)
            settled(cluster)


@contextmanager
def under_foreign_load(
    commands: Commands, directory: Path, *settings: str, places: Mapping[int, Place] | None = None
) -> Iterator[tuple[ClusterBrokers, ForeignLoad]]:
    """A cluster of three, and clients at work on it, whose history is checked at the end."""
    with ClusterBrokers(directory, *settings, lease_ms=2_000, places=places) as cluster:
        cluster.create(STREAM, partitions=PARTITIONS, min_insync_replicas="2")
        with skipped_on(UnavailableError):
            load = ForeignLoad(commands, directory, cluster.bootstrap, STREAM, PARTITIONS)
        with load:
            go_on(load)
            yield cluster, load
            go_on(load)
        load.check()


@pytest.mark.slow
@pytest.mark.parametrize("commands", [java, aiokafka])
def test_other_clients_lose_nothing_either(tmp_path: Path, commands: Commands) -> None:
    """`under_foreign_load` compares what was acknowledged to each client with what the log has at the end."""
    with under_foreign_load(commands, tmp_path) as (cluster, load):
        trouble(cluster, load)


@pytest.mark.slow
@pytest.mark.parametrize("commands", [java, aiokafka])
def test_other_clients_while_connections_are_cut(tmp_path: Path, commands: Commands, network: CutNetwork) -> None:
    """A leader is cut off from both others, then hears them and is not heard."""
    with under_foreign_load(commands, tmp_path, SHORT, places=network.places()) as (cluster, load):
        for what in ("both ways", "what it says", "what it hears"):
            leader = cluster.leader(STREAM, 0)
            others = [number for number in NUMBERS if number != leader]
            says, hears = [(leader, one) for one in others], [(one, leader) for one in others]
            ways = {"both ways": [*says, *hears], "what it says": says, "what it hears": hears}[what]
            with timed(f"cut: {leader} from the others, {what}", load):
                with network.cut(*ways):
                    go_on(load)
                    time.sleep(6)  # longer than leases and elections
                    go_on(load)
                settled(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("commands", [java, aiokafka])
def test_other_clients_while_disks_fail(tmp_path: Path, commands: Commands, disks: dict[int, FuseDisk]) -> None:
    """Syncs of a leader fail, and its power; then that of all."""
    places = {number: Place(directory=disk.path / "data") for number, disk in disks.items()}
    with under_foreign_load(commands, tmp_path, SHORT, places=places) as (cluster, load):
        number = cluster.leader(STREAM, 0)
        with timed(f"EIO of the leader {number}", load):
            fail_syncs(disks[number])
            go_on(load)
            cluster[number].kill9()
            works_again(disks[number])
            disks[number].power_cut(Always(False))
            cluster.start(number)
            go_on(load)
            settled(cluster)
        with timed("power failure of all", load):
            cluster.kill_all()
            for disk in disks.values():
                disk.power_cut(Always(False))
            cluster.start(*cluster.brokers)
            go_on(load)
            settled(cluster)
