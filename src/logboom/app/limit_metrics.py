"""How near each limit is, and how often it was reached, as Prometheus metrics.

One family holds all limits, so that one alarm on `logboom_limit_used / logboom_limit` watches every one of them.
"""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from logboom.base.limits import LimitUsage


def limit_metrics(usages: Iterable[LimitUsage], hits: Mapping[str, int]) -> Iterator[Metric]:
    """All limits. One without a usage, such as the size of a batch, has only a counter, once it was reached."""
    limits = GaugeMetricFamily("logboom_limit", "What a limit is set to.", labels=("limit",))
    used = GaugeMetricFamily(
        "logboom_limit_used",
        "How much of it is used; for a limit of each group or address, the largest usage.",
        labels=("limit",),
    )
    hit_counts = CounterMetricFamily("logboom_limit_crossed", "How often it was reached.", labels=("limit",))
    counts = dict(hits)
    for usage in usages:
        limits.add_metric((usage.name,), usage.limit)
        used.add_metric((usage.name,), usage.used)
        counts.setdefault(usage.name, 0)
    for name, count in sorted(counts.items()):
        hit_counts.add_metric((name,), count)
    yield from (limits, used, hit_counts)
