"""Records that followers have before their leader has synced them."""

import errno
from pathlib import Path

from tests.broker.node import append
from tests.broker.replicated import Cluster, bytes_of, refusal_of, until
from tests.broker.test_published_cases import shows, with_cluster

from logboom.base.ids import NO_BROKER


def test_a_leader_whose_sync_fails_after_its_followers_have_the_records(tmp_path: Path) -> None:
    """They are sent before the leader's own sync. It commits nothing of them and refuses their producer for a moment;
    another one that has them leads, and commits them."""

    async def body(cluster: Cluster) -> None:
        await append(cluster.leader("orders"), b"a")
        led_by = cluster.assignment("orders").leader
        old, disk = cluster.leader("orders"), cluster.disk(led_by)

        def fails(operation: str, path: str) -> None:
            if "orders-0" in path and operation == "begin_sync":
                raise BlockingIOError  # a thread does it
            if "orders-0" in path and operation == "sync":
                raise OSError(errno.EIO, "the disk fails", path)

        disk.fault = fails
        mark = old.high_watermark
        refused = await refusal_of(append(old, b"b"))
        assert refused is not None
        assert old.high_watermark == mark, "what a leader could not sync counts for nothing"
        await until(lambda: cluster.assignment("orders").leader not in (NO_BROKER, led_by), "another one leads")
        await shows(cluster, [b"a", b"b"])
        new = cluster.leader("orders")
        assert await refusal_of(append(new, b"c")) is None
        others = [one for one in (1, 2, 3) if one != led_by]
        logs = [cluster.partition(one, "orders").log for one in others]
        await until(lambda: bytes_of(logs[0]) == bytes_of(logs[1]), "the others have the same")

    with_cluster(tmp_path, body)
