"""Of partitions that are gone from a broker its replication keeps nothing: streams come and go for years."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from tests.broker.node import append
from tests.broker.replicated import DIRECTOR, Cluster, cluster_of, until
from tests.support.simulated import run

from logboom.broker.partition.replication_port import StreamIdPartition


def keys_in(part: object, known: set[int]) -> Iterator[object]:
    """The keys of all that replication keeps by some key, in the parts of it too."""
    if id(part) in known:
        return
    known.add(id(part))
    if isinstance(part, dict | set | frozenset):
        yield from part
    if isinstance(part, dict):
        for value in part.values():
            yield from keys_in(value, known)
    elif type(part).__module__.startswith("logboom.broker.replication."):
        for value in getattr(part, "__dict__", {}).values():
            yield from keys_in(value, known)


def kept(cluster: Cluster, key: StreamIdPartition) -> list[int]:
    """The brokers that keep something of a partition."""
    return [number for number, broker in cluster.brokers.items() if key in set(keys_in(broker.replication, set()))]


def test_nothing_is_kept_of_a_deleted_stream(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            stream = await cluster.create("orders", [1, 2, 3])
            await cluster.in_sync("orders")
            await append(cluster.leader("orders"), b"a")
            key = StreamIdPartition(stream.id, 0)
            assert kept(cluster, key) == [1, 2, 3]
            await cluster[2].catalog.delete_stream("orders")
            await until(lambda: kept(cluster, key) == [], "all have forgotten it")

    run(body)


def test_a_broker_keeps_nothing_of_what_has_moved_away(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            stream = await cluster.create("orders", [1, 2])
            await cluster.in_sync("orders")
            await append(cluster.leader("orders"), b"a")
            await cluster[DIRECTOR].cluster_admin.reassign("orders", 0, [3, 2])
            await until(lambda: cluster.assignment("orders").replicas == (3, 2), "it has moved")
            await append(cluster.leader("orders"), b"b")
            key = StreamIdPartition(stream.id, 0)
            await until(lambda: kept(cluster, key) == [2, 3], "the first one has forgotten it")
            await asyncio.sleep(5.0)
            assert kept(cluster, key) == [2, 3]

    run(body)
