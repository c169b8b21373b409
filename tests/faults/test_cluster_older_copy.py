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


def remove_and_rejoin(cluster: ClusterBrokers, *, alone: bool) -> None:
    """The procedure. `alone`: whether the broker counts as the only one that has everything."""
    words = ("cluster", "remove", str(RESTORED))
    if alone:
        said = refused(*words, bootstrap=cluster.bootstrap)
        assert f"{STREAM}-0" in said, said
        ok("cluster", "elect", STREAM, "0", "--unclean", bootstrap=cluster.bootstrap)
    ok(*words, bootstrap=cluster.bootstrap)
    shutil.rmtree(cluster[RESTORED].data)
    cluster.start(RESTORED)
    cluster.wait_in_sync(STREAM)


def test_the_last_one_in_sync_was_put_back_where_one_is_enough(tmp_path: Path) -> None:
    """What it alone had is lost with its disk; what another replica has is not."""
    with ClusterBrokers(tmp_path, lease_ms=2_000) as cluster:
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
        remove_and_rejoin(cluster, alone=True)
        assert read(cluster) == list(range(300))


def test_nothing_is_lost_where_the_one_that_has_everything_comes_back_later(tmp_path: Path) -> None:
    """Of three, 1 is out of sync, and 2 has everything. The copy is not started."""
    with ClusterBrokers(tmp_path, lease_ms=2_000) as cluster:
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
        cluster.wait_for(lambda: cluster.leader(STREAM, 0) == 2, "it leads once the copy was waited for")
        remove_and_rejoin(cluster, alone=False)
        assert read(cluster) == list(range(300))
