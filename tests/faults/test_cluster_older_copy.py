"""An older copy of a broker's disk was put back while the broker was down: what docs/operations.md says is to be done,
with real brokers and the commands as they stand there. Nothing that the other disks have is lost."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.running import ok, refused
from tests.support.brokers import ClusterBrokers

pytestmark = pytest.mark.slow

STREAM = "orders"
RESTORED = 3
"""Whose disk is put back; not the one that has founded the cluster, which knows nobody whom it could join."""


def publish(cluster: ClusterBrokers, values: Sequence[int]) -> None:
    ok("publish", STREAM, bootstrap=cluster.bootstrap, stdin="".join(f"{value}\n" for value in values))


def read(cluster: ClusterBrokers) -> list[int]:
    """All that is there."""
    found = ok("tail", STREAM, "--earliest", bootstrap=cluster.bootstrap).out
    return sorted(map(int, found.split()))


def in_sync(cluster: ClusterBrokers) -> set[int]:
    return set(cluster.partitions(STREAM)[0].isrs)


def copied(cluster: ClusterBrokers, number: int, to: Path) -> Path:
    """A snapshot of the directory of a broker that runs."""
    cluster[number].pause()
    shutil.copytree(cluster[number].data, to)
    cluster[number].resume()
    return to


def put_back(cluster: ClusterBrokers, number: int, copy: Path) -> None:
    shutil.rmtree(cluster[number].data)
    shutil.copytree(copy, cluster[number].data)


def remove_and_rejoin(cluster: ClusterBrokers) -> None:
    """The procedure, where the broker counts as the only one that has everything: the others were killed, and it has
    not said yet that it was."""
    words = ("cluster", "remove", str(RESTORED))

    def refusal() -> str | None:
        """Why it cannot be removed, once its lease is over; until then it may run."""
        said = refused(*words, bootstrap=cluster.bootstrap)
        return None if "is running" in said else said

    said = cluster.wait_for(refusal, "the end of its lease")
    _, elect = said.strip().split("logboom cluster elect ")
    ok("cluster", "elect", *elect.split(), bootstrap=cluster.bootstrap)
    ok(*words, bootstrap=cluster.bootstrap)
    shutil.rmtree(cluster[RESTORED].data)
    cluster.start(RESTORED)
    cluster.wait_in_sync(STREAM)


def test_the_last_one_in_sync_was_put_back_where_one_is_enough(tmp_path: Path) -> None:
    """What it alone had is lost with its disk; what another replica has is not."""
    with ClusterBrokers(tmp_path) as cluster:
        cluster.create(STREAM, min_insync_replicas="1")
        ok("cluster", "reassign", STREAM, "--to", f"{RESTORED},2", bootstrap=cluster.bootstrap)
        cluster.wait_for(lambda: in_sync(cluster) == {2, RESTORED}, "replicas on two brokers")
        publish(cluster, range(100))
        copy = copied(cluster, RESTORED, tmp_path / "copy")
        cluster.wait_in_sync(STREAM)
        publish(cluster, range(100, 300))
        cluster.wait_in_sync(STREAM)
        cluster[2].kill9()
        cluster.wait_for(lambda: in_sync(cluster) == {RESTORED}, "one in sync")
        publish(cluster, range(300, 310))
        cluster[RESTORED].kill9()
        put_back(cluster, RESTORED, copy)
        cluster.start(2)
        remove_and_rejoin(cluster)
        assert read(cluster) == list(range(300))


def test_nothing_is_lost_where_all_were_killed_and_the_copy_is_left_out(tmp_path: Path) -> None:
    """Of three, 1 is out of sync, and 2 has everything. The copy is not started."""
    with ClusterBrokers(tmp_path) as cluster:
        cluster.create(STREAM, min_insync_replicas="2")
        publish(cluster, range(100))
        copy = copied(cluster, RESTORED, tmp_path / "copy")
        cluster.wait_in_sync(STREAM)
        cluster[1].kill9()
        cluster.wait_for(lambda: in_sync(cluster) == {2, RESTORED}, "two in sync")
        publish(cluster, range(100, 300))
        cluster.kill_all()
        put_back(cluster, RESTORED, copy)
        cluster.start(1, 2)
        remove_and_rejoin(cluster)
        assert read(cluster) == list(range(300))
