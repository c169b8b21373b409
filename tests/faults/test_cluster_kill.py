"""A real cluster of three under load; its processes are killed, stopped and paused.

Nothing that was acked is lost, doubled or undone, and nobody hangs.
"""

import json
import random
import time
from pathlib import Path

import pytest
from tests.faults.cluster_load import OFFSETS, STREAM, go_on, timed, under_load
from tests.support.brokers import ClusterBrokers
from tests.support.commands import run_logboom
from tests.support.waiting import WAIT_S


def test_nothing_acked_is_lost_with_its_leader(tmp_path: Path) -> None:
    """`go_on`: writes are acknowledged without it; `under_load` compares what was acknowledged with what is there."""
    with under_load(tmp_path) as (cluster, load):
        leader = cluster.leader(STREAM, 0)
        with timed(f"kill -9 of broker {leader}", load):
            cluster[leader].kill9()
            go_on(load)
            cluster.start(leader)


@pytest.mark.slow
def test_any_broker_killed_again_and_again(tmp_path: Path) -> None:
    """Writes go on each time, replicas come in sync, and nothing acknowledged is lost."""
    with under_load(tmp_path) as (cluster, load):
        for number in (cluster.controller(), 1, 2, 3, cluster.controller()):
            with timed(f"kill -9 of broker {number}, restart after others lead", load):
                cluster[number].kill9()
                go_on(load)
                cluster.start(number)
                cluster.wait_in_sync(STREAM)
                cluster.wait_in_sync(OFFSETS)
        for number in (1, 2, 3):
            with timed(f"kill -9 of broker {number}, restart at once", load):
                cluster[number].kill9()
                cluster.start(number)
                go_on(load)
                cluster.wait_in_sync(STREAM)
                cluster.wait_in_sync(OFFSETS)


@pytest.mark.slow
def test_all_brokers_killed_at_once(tmp_path: Path) -> None:
    """They come back by themselves, and nothing acknowledged is lost."""
    with under_load(tmp_path) as (cluster, load):
        for _ in range(3):
            with timed("kill -9 of all", load):
                cluster.kill_all()
                cluster.start(1, 2, 3)
                go_on(load)


def voters(cluster: ClusterBrokers) -> int:
    done = run_logboom(["cluster", "status", "--json", "--bootstrap", cluster.bootstrap], timeout_s=WAIT_S)
    return sum(node["role"] in ("controller", "voter") for node in json.loads(done.stdout)["nodes"])


@pytest.mark.slow
def test_a_leader_and_the_controller_killed_at_once_of_five(tmp_path: Path) -> None:
    """Two of five voters are gone, and with them the one that would name a new leader; three go on."""
    with under_load(tmp_path, "broker.voters=5", count=5) as (cluster, load):
        cluster.wait_for(lambda: voters(cluster) == 5, "five voters")
        for _ in range(2):
            controller = cluster.controller()
            # On a busy machine the controller may have come to lead all of them; then any other broker goes with it.
            others = [one for one in cluster.brokers if one != controller]
            leaders = [cluster.leader(STREAM, one) for one in range(3)]
            leader = next((one for one in leaders if one != controller), others[0])
            with timed(f"kill -9 of the controller {controller} and the leader {leader} of five brokers", load):
                for number in (controller, leader):
                    cluster[number].kill9()
                # No commit of an offset is waited for: two of the three replicas that keep it may be gone.
                load.wait_for_acks()
                cluster.start(controller, leader)
                go_on(load)
                cluster.wait_in_sync(STREAM)
                cluster.wait_in_sync(OFFSETS)
        with timed("kill -9 of all five", load):
            cluster.kill_all()
            cluster.start(*cluster.brokers)
            go_on(load)


@pytest.mark.slow
def test_a_majority_killed(tmp_path: Path) -> None:
    """Nothing is acknowledged meanwhile; then all goes on, and nothing acknowledged before is lost."""
    with under_load(tmp_path) as (cluster, load):
        for pair in ((1, 2), (2, 3), (1, 3)):
            with timed(f"kill -9 of brokers {pair}", load):
                for number in pair:
                    cluster[number].kill9()
                load.wait_for_silence(2)
                cluster.start(*pair)
                go_on(load)
                cluster.wait_in_sync(STREAM)
                cluster.wait_in_sync(OFFSETS)


@pytest.mark.slow
def test_a_broker_stands_still(tmp_path: Path) -> None:
    """For less than its lease, and for so long that others lead in its place: then it must not answer as a leader."""
    with under_load(tmp_path, lease_ms=2_000) as (cluster, load):
        for seconds in (0.5, 1.9, 2.3, 6, 12):
            for number in {cluster.controller(), cluster.leader(STREAM, 0), random.SystemRandom().randint(1, 3)}:
                with timed(f"SIGSTOP of broker {number} for {seconds} s", load):
                    cluster[number].pause()
                    time.sleep(seconds)
                    cluster[number].resume()
                    go_on(load)
                    cluster.wait_in_sync(STREAM)
                    cluster.wait_in_sync(OFFSETS)


@pytest.mark.slow
def test_all_brokers_stand_still(tmp_path: Path) -> None:
    """All leases are over when they go on: they do, and nothing acknowledged is lost."""
    with under_load(tmp_path, lease_ms=2_000) as (cluster, load), timed("SIGSTOP of all for 5 s", load):
        for broker in cluster.brokers.values():
            broker.pause()
        time.sleep(5)
        for broker in cluster.brokers.values():
            broker.resume()
        go_on(load)


@pytest.mark.slow
def test_rolling_restart(tmp_path: Path) -> None:
    with under_load(tmp_path) as (cluster, load):
        for number in (1, 2, 3):
            with timed(f"restart of broker {number}", load):
                assert cluster[number].sigterm() == 0
                go_on(load)
                cluster.start(number)
                cluster.wait_in_sync(STREAM)
                cluster.wait_in_sync(OFFSETS)
