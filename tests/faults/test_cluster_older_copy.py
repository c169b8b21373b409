"""An older copy of a broker's disk was put back while the broker was down, or its disk is gone for good: what
docs/operations.md says of that and what is to be done, with real brokers and the commands as they stand there."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.running import ok, refused
from tests.support.brokers import ClusterBrokers

pytestmark = pytest.mark.slow

STREAM = "orders"
RESTORED = 3
"""Whose disk is put back; not the one that has founded the cluster, which knows nobody whom it could join."""
COMPARING_S = 10.0
"""How long the controller waits for those that were killed, have said so and are away again."""


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


def stream_with_older_copy(cluster: ClusterBrokers, to: Path, *, minimum: int) -> Path:
    """A stream on brokers 2 and RESTORED with 300 records, and a copy of RESTORED's disk that has 100 of them."""
    cluster.create(STREAM, min_insync_replicas=str(minimum))
    ok("cluster", "reassign", STREAM, "--to", f"{RESTORED},2", bootstrap=cluster.bootstrap)
    cluster.wait_for(lambda: in_sync(cluster) == {2, RESTORED}, "replicas on two brokers")
    publish(cluster, range(100))
    copy = copied(cluster, RESTORED, to)
    cluster.wait_in_sync(STREAM)
    publish(cluster, range(100, 300))
    cluster.wait_in_sync(STREAM)
    return copy


def put_back(cluster: ClusterBrokers, number: int, copy: Path) -> None:
    shutil.rmtree(cluster[number].data)
    shutil.copytree(copy, cluster[number].data)


def remains_without_a_leader(cluster: ClusterBrokers, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        assert cluster.partitions(STREAM)[0].leader < 0
        time.sleep(0.25)


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
        copy = stream_with_older_copy(cluster, tmp_path / "copy", minimum=1)
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


def test_a_partition_waits_for_the_last_one_in_sync_until_somebody_elects(tmp_path: Path) -> None:
    """All are killed, and the disk of one is gone for good. That one has not said that it was killed, so it counts as
    the one that has everything, however long the other two are back. Elected by hand they lose nothing."""
    with ClusterBrokers(tmp_path) as cluster:
        cluster.create(STREAM, min_insync_replicas="2")
        publish(cluster, range(300))
        cluster.wait_in_sync(STREAM)
        cluster.kill_all()
        cluster.start(1, 2)
        cluster.wait_for(lambda: in_sync(cluster) <= {RESTORED}, "the others have said that they were killed")
        remains_without_a_leader(cluster, COMPARING_S * 1.5)
        remove_and_rejoin(cluster)
        assert read(cluster) == list(range(300))


def test_the_copy_leads_where_nobody_else_who_had_everything_is_there_in_time(tmp_path: Path) -> None:
    """Both replicas were killed. The whole one was back, has said so, and is away again before the copy is started: it
    is waited for, and not for ever. What the copy lacks is lost then, and the log of the other says so."""
    with ClusterBrokers(tmp_path) as cluster:
        copy = stream_with_older_copy(cluster, tmp_path / "copy", minimum=2)
        cluster.kill_all()
        put_back(cluster, RESTORED, copy)
        cluster.start(1, 2)
        cluster.wait_for(lambda: in_sync(cluster) <= {RESTORED}, "2 has said that it was killed")
        cluster[2].kill9()
        started_s = time.monotonic()
        cluster.start(RESTORED)
        assert cluster.leader(STREAM, 0) == RESTORED
        assert time.monotonic() - started_s >= COMPARING_S
        cluster.start(2)
        cluster.wait_in_sync(STREAM)
        assert read(cluster) == list(range(100))
        cut = [
            line for line in cluster[2].log_text().splitlines() if "truncated to where the leader's log goes on" in line
        ]
        assert any("below_high_watermark" in line for line in cut)
