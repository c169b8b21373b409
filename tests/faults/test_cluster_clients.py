"""Clients that are not librdkafka, while brokers of their cluster are killed, paused and restarted."""

import time
from pathlib import Path

import pytest
from tests.faults.cluster_load import OFFSETS, Load, go_on, timed
from tests.faults.foreign_load import Commands, ForeignLoad, aiokafka, java
from tests.support.brokers import ClusterBrokers

from logboom.bench.servers.process import UnavailableError

STREAM = "orders"
PARTITIONS = 3


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


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("commands", [java, aiokafka])
def test_other_clients_lose_nothing_either(tmp_path: Path, commands: Commands) -> None:
    with ClusterBrokers(tmp_path, lease_ms=2_000) as cluster:
        cluster.create(STREAM, partitions=PARTITIONS, min_insync_replicas="2")
        try:
            load = ForeignLoad(commands, tmp_path, cluster.bootstrap, STREAM, PARTITIONS)
        except UnavailableError as missing:
            pytest.skip(str(missing))
        with load:
            go_on(load)
            trouble(cluster, load)
            go_on(load)
        load.check()
