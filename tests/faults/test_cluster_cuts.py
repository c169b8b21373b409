"""A real cluster of three, each broker in a network namespace of its own, under load; connections between them are cut.

See cut_network.
"""

import time
from pathlib import Path

import pytest
from tests.faults.cluster_load import OFFSETS, STREAM, go_on, timed, under_load
from tests.faults.cut_network import CutNetwork, both_ways

NUMBERS = (1, 2, 3)
SHORT = ("broker.replica_lag_max_ms=5000",)
"""So long a leader waits for a follower that it does not hear: 30 s by itself, and a cut more takes as long."""


@pytest.mark.slow
def test_cuts_between_brokers(tmp_path: Path, network: CutNetwork) -> None:
    """Every cut leaves two brokers that hear each other, and these serve every partition."""
    with under_load(tmp_path, *SHORT, lease_ms=2_000, places=network.places()) as (cluster, load):
        leader = cluster.leader(STREAM, 0)
        controller = cluster.controller()
        cuts = {
            f"{leader} from all": [*both_ways(leader, leader % 3 + 1), *both_ways(leader, (leader + 1) % 3 + 1)],
            f"the controller {controller} from one": both_ways(controller, controller % 3 + 1),
            "two that are not the controller": both_ways(*(n for n in NUMBERS if n != controller)),
        }
        for what, ways in cuts.items():
            with timed(f"cut: {what}", load):
                with network.cut(*ways):
                    go_on(load)
                    time.sleep(6)  # longer than leases and elections
                    go_on(load)
                go_on(load)
                cluster.wait_in_sync(STREAM)
                cluster.wait_in_sync(OFFSETS)


@pytest.mark.slow
def test_one_way_cuts(tmp_path: Path, network: CutNetwork) -> None:
    """For each pair and direction: writes go on during the cut, replicas come in sync, and nothing is lost."""
    with under_load(tmp_path, *SHORT, lease_ms=2_000, places=network.places()) as (cluster, load):
        for sender in NUMBERS:
            for receiver in NUMBERS:
                if sender != receiver:
                    what = f"what {sender} says to {receiver} vanishes; controller {cluster.controller()}"
                    with timed(what, load):
                        with network.cut((sender, receiver)):
                            go_on(load)
                            time.sleep(4)
                            go_on(load)
                        cluster.wait_in_sync(STREAM)
                        cluster.wait_in_sync(OFFSETS)
