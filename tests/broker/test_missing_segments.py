"""A log that lacks a segment between two others is known to be damaged from its start on."""

from tests.broker.node import append, values_of
from tests.broker.replicated import Cluster, bytes_of, on_brokers, refusal_of, until

from logboom.base.ids import BrokerId, Offset


async def _of_segments(cluster: Cluster, *brokers: int) -> list[str]:
    """A log of eight records on these brokers, a segment for each; the names of the files."""
    await cluster.create("orders", brokers, segment_bytes="16384")
    for number in range(8):
        await append(cluster.leader("orders"), b"%d" % number * 10_000)
    await cluster.in_sync("orders")
    return [name for name in cluster.disk(brokers[-1]).list("streams/orders-0") if name.endswith(".log")]


@on_brokers(3)
async def test_a_copy_that_lost_a_segment_in_its_middle_is_fetched_again_though_nobody_reads_it(
    cluster: Cluster,
) -> None:
    """It was in sync until the end, and is the first one that comes back."""
    logs = await _of_segments(cluster, 1, 2, 3)
    for one in (1, 2, 3):
        await cluster.stop(one)
    assert 3 in (*cluster.assignment("orders").isr, *cluster.assignment("orders").elr)
    cluster.disk(3).unlink(f"streams/orders-0/{logs[3]}")
    for one in (3, 2, 1):
        await cluster.start(one)
    await until(lambda: cluster.disk(3).exists(f"streams/orders-0/{logs[3]}"), "it has the segment again")
    await cluster.in_sync("orders")
    assert bytes_of(cluster.partition(3, "orders").log) == bytes_of(cluster.partition(1, "orders").log)


@on_brokers(2, minimum=1)
async def test_the_only_one_in_sync_lost_a_segment_in_its_middle_and_serves_the_rest(cluster: Cluster) -> None:
    """Until the other one, which has it, is in sync."""
    logs = await _of_segments(cluster, 1, 2)
    await cluster.stop(2)
    await append(cluster.leader("orders"), b"only at the leader")
    await cluster.stop(1)
    cluster.disk(1).unlink(f"streams/orders-0/{logs[3]}")
    await cluster.start(1)
    await until(lambda: cluster.partition(1, "orders").leads, "it leads")
    alone = cluster.leader("orders")
    assert await values_of(alone, 4) == [*(b"%d" % number * 10_000 for number in range(4, 8)), b"only at the leader"]
    assert "the file ends before this offset" in str(await refusal_of(alone.reads.read(Offset(3), 10)))
    assert await append(alone, b"goes on")
    await cluster.start(2)
    await until(lambda: cluster.assignment("orders").leader == BrokerId(2), "the one that has everything leads")
    await cluster.in_sync("orders")
    assert len(await values_of(cluster.leader("orders"))) == 10
    assert bytes_of(cluster.partition(1, "orders").log) == bytes_of(cluster.partition(2, "orders").log)
