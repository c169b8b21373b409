"""How well partitions are replicated, as the broker that leads them knows: the first numbers to look at."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from logboom.broker.partition.replica import Partition


def replication_metrics(partitions: Iterable[Partition]) -> Iterator[Metric]:
    """Sums over the partitions of one broker; Kafka's LeaderCount, UnderReplicatedPartitions, UnderMinIsrPartitionCount
    and its like."""
    leading = following = under_replicated = under_minimum = lagging = 0
    for partition in partitions:
        role, assignments = partition.role, partition.stream.assignments
        following += role.follows
        if not role.leads:
            continue
        leading += 1
        if not assignments:
            continue
        replicas, isr = assignments[partition.index].replicas, role.leader.isr
        under_replicated += len(isr) < len(replicas)
        under_minimum += len(isr) < partition.config.min_insync_replicas
        lagging += len([one for one in replicas if (role.leader.follower_end(one) or 0) < partition.high_watermark])
    for name, text, value in (
        ("led_partitions", "Partitions that this broker leads.", leading),
        ("followed_partitions", "Partitions that this broker copies from their leaders.", following),
        ("under_replicated_partitions", "Led partitions of which not all replicas are in sync.", under_replicated),
        ("under_minimum_partitions", "Led partitions that refuse acks=all for want of replicas.", under_minimum),
        ("lagging_replicas", "Replicas of led partitions that do not have all that is committed.", lagging),
    ):
        yield GaugeMetricFamily(f"logboom_{name}", text, value=value)
