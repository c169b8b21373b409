"""A real cluster of three under load; its processes are killed. Nothing that was acked is lost, doubled or undone."""

import time
from pathlib import Path

from tests.faults.cluster_load import ClusterLoad
from tests.support.brokers import ClusterProcesses


def test_nothing_acked_is_lost_with_its_leader(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        cluster.create("orders", partitions=3)
        with ClusterLoad(cluster.bootstrap, "orders", 3) as load:
            load.wait_for_acks()
            leader, since = cluster.leader("orders", 0), time.monotonic()
            cluster[leader].kill9()
            load.wait_for_acks()
            print(f"without acks, commits for {load.longest_pauses_s(since)} s")
            cluster.start(leader)
            cluster.wait_in_sync("orders")
            load.wait_for_acks()
        load.check()
