"""How well partitions are replicated, as the broker that leads them knows: the first numbers to look at."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from logboom.broker.partition.replica import Partition


def replication_metrics(partitions: Iterable[Partition]) -> Iterator[Metric]:
    """Sums over the partitions of one broker; Kafka's LeaderCount, UnderReplicatedPartitions, UnderMinIsrPartitionCount
    and its like."""
    leading = following = under_replicated = under_minimum = lagging = 0
    observed = list[Partition]()
    for partition in partitions:
        role, assignments = partition.role, partition.stream.assignments
        following += role.follows
        if not role.leads:
            if role.follower.freshness.observes:
                observed.append(partition)
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
    yield from _observer_metrics(observed)


def _observer_metrics(observed: Sequence[Partition]) -> Iterator[Metric]:
    """The copies that this broker has for readers alone."""
    copies = [(one.role.follower.freshness, one.config) for one in observed]
    lags = [freshness.lag() for freshness, _ in copies]
    stale = sum(freshness.refusal(config) is not None for freshness, config in copies)
    for name, text, value in (
        ("observed_partitions", "Partitions that this broker copies for readers alone.", len(observed)),
        ("stale_observers", "Of these, those so far behind that readers are sent to the leaders.", stale),
        (
            "observer_lag_records",
            "Committed records that the one furthest behind lacks, as far as it knows.",
            max((lag.records for lag in lags), default=0),
        ),
        (
            "observer_lag_seconds",
            "How old what the oldest of them shows is, at most; +Inf where one has nothing from its leader yet.",
            max((lag.seconds for lag in lags), default=0),
        ),
    ):
        yield GaugeMetricFamily(f"logboom_{name}", text, value=value)
