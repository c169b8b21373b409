"""The broker's counters as Prometheus metrics. Called on the broker's event loop, which alone changes the counters."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from logboom.base.units import SECOND_MS
from logboom.broker.broker import Broker
from logboom.broker.disk.log_cleaner import CleanerState
from logboom.broker.disk.log_manager import PartitionKey
from logboom.broker.disk.scrubber import ScrubState
from logboom.broker.partition.replica import Partition
from logboom.http.replication_metrics import replication_metrics

_NS_PER_S: Final = 1_000_000_000
_HELP: Final = {
    "appended_batches": "Record batches appended.",
    "appended_records": "Records appended.",
    "appended_bytes": "Bytes appended, compressed as they came.",
    "duplicate_batches": "Batches that an idempotent producer sent again; they are acknowledged and not appended.",
    "refused_appends": "Appends answered with an error.",
    "conditions_compared": "Conditions of records compared with the latest record of their key.",
    "conditions_failed": "Conditions that did not hold, or could not be decided.",
    "conditions_scanned_bytes": "Bytes read to decide conditions.",
    "duplicate_messages": "Messages published again under an id that the log has; acknowledged and not appended.",
    "message_ids_read_bytes": "Bytes read for the ids of published messages, after a change of leaders or a start.",
    "message_ids_forgotten": "Ids forgotten before their time, for want of broker.message_ids.memory_bytes.",
    "message_ids_reloads_cut": "Times that more was to be read for ids than broker.message_ids.reload_max_bytes.",
    "reads_cached": "Reads answered from memory.",
    "reads_shared": "Reads answered with what was just read for another consumer, or read ahead.",
    "reads_ahead": "Reads made ahead of requests.",
    "reads_disk": "Reads that may have waited for the disk.",
    "read_bytes": "Bytes read for consumers.",
    "replicated_bytes_in": "Bytes of records taken from leaders.",
    "replicated_bytes_out": "Bytes of records given to followers.",
    "throttled_bytes_in": "Bytes of records taken from leaders under follower.replication.throttled.rate.",
    "throttled_bytes_out": "Bytes of records given to followers under leader.replication.throttled.rate.",
    "damaged_reads": "Reads that found a damaged batch.",
    "disk_full": "Flushes that found the disk full.",
    "no_handles": "Flushes that found no file handle.",
    "flush_rounds": "Group commits.",
    "inline_flush_rounds": "Group commits that were written on the loop and synced beside it.",
    "flushed_partitions": "Partitions written by group commits.",
    "metadata_commits": "Commits to the metadata log.",
    "compactions": "Runs of key compaction over one log.",
    "compacted_read_bytes": "Bytes read by key compaction.",
    "compacted_written_bytes": "Bytes written by key compaction: those that stay.",
    "compacted_away_records": "Records removed by key compaction.",
    "scrubbed_bytes": "Bytes that the scrubber read and checked.",
    "advisory_records": "Records written to __advisories.",
    "failed_advisory_writes": "Attempts to write to __advisories that failed; what they held is written later.",
    "scrub_damages": "Damaged places that the scrubber found; one that is still there, again in each pass.",
}


def broker_metrics(broker: Broker, version: str, build: str, partition_series_max: int) -> Iterator[Metric]:
    """All metrics of one broker. Where it has more than `partition_series_max` partitions, there are series per stream
    instead of series per partition."""
    info = GaugeMetricFamily(
        "logboom_broker_info",
        "The version, build and identity of this broker.",
        labels=("version", "build", "cluster_id", "broker_id"),
    )
    info.add_metric((version, build, broker.identity.cluster_id, str(broker.identity.broker_id)), 1)
    yield info
    for name, value in broker.counters.as_dict().items():
        if name.endswith("_ns"):
            yield _counter(
                f"{name.removesuffix('_ns')}_seconds", f"Time spent: {name.removesuffix('_ns')}.", value / _NS_PER_S
            )
        else:
            yield _counter(name, _HELP.get(name, name.replace("_", " ")), value)
    groups = GaugeMetricFamily("logboom_groups", "Consumer groups.", labels=("state",))
    for state, count in broker.groups.states().items():
        groups.add_metric((state,), count)
    yield groups
    yield GaugeMetricFamily(
        "logboom_log_dir_offline",
        "1 if the disk failed and no more writes are accepted.",
        value=int(broker.health.log_dir_failure is not None),
    )
    yield GaugeMetricFamily(
        "logboom_flush_running_seconds",
        "How long the write or sync that is running has taken so far; 0 if none runs.",
        value=broker.health.flush_busy_s,
    )
    yield GaugeMetricFamily(
        "logboom_read_running_seconds",
        "How long the oldest read from the disk has been running; 0 where none is.",
        value=broker.health.read_busy_s,
    )
    yield _labelled_counter(
        "segments_deleted", "Segments deleted, by what deleted them.", "reason", broker.counters.segments_deleted
    )
    yield _labelled_counter(
        "segment_bytes_deleted", "Bytes of those segments.", "reason", broker.counters.segment_bytes_deleted
    )
    yield _labelled_counter(
        "advisories", "What was noted in __advisories, by type.", "type", broker.counters.advisories
    )
    yield from _cleaner_metrics(broker.cleaner.state)
    yield from _scrubber_metrics(broker.scrubber.state)
    # `failed` could not be opened at the start: there is nothing to say of them but that they are offline.
    partitions, failed = list(broker.replicas), list(broker.replicas.failed)
    yield from replication_metrics(partitions)
    count = len(partitions) + len(failed)
    series = _partition_metrics if count <= partition_series_max else _stream_metrics
    yield from series(partitions, failed)


def _cleaner_metrics(state: CleanerState) -> Iterator[Metric]:
    """As Kafka's max-dirty-percent, max-clean-time-secs, cleaner-recopy-percent and uncleanable-*, as ratios."""
    for name, text, value in (
        ("compaction_max_dirty_ratio", "Dirty share of the dirtiest log that is compacted.", state.max_dirty_ratio),
        ("compaction_last_run_seconds", "How long the last compaction of a log took.", state.last_run_s),
        ("compaction_recopy_ratio", "What that wrote as a share of what it read.", state.last_recopy_ratio),
        ("uncompactable_partitions", "Logs that cannot be compacted; the log says why.", len(state.uncleanable)),
        ("uncompactable_bytes", "Bytes in them that wait for compaction.", state.uncleanable_bytes),
    ):
        yield GaugeMetricFamily(f"logboom_{name}", text, value=value)


def _scrubber_metrics(state: ScrubState) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "logboom_scrub_progress_ratio",
        "The share of the pass under way in which the scrubber has read all logs.",
        value=state.done_ratio,
    )
    yield GaugeMetricFamily(
        "logboom_scrub_last_pass_timestamp_seconds",
        "When the scrubber had read all logs last, in seconds since 1970; 0 where it never had.",
        value=state.last_ended_ms / SECOND_MS,
    )


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(f"logboom_{name}", help_text, value=value)


def _labelled_counter(name: str, help_text: str, label: str, values: Mapping[str, int]) -> Metric:
    """One series for each key of `values`, which is the label's value."""
    family = CounterMetricFamily(f"logboom_{name}", help_text, labels=(label,))
    for value, count in values.items():
        family.add_metric((value,), count)
    return family


def _stream_metrics(partitions: Iterable[Partition], failed: Iterable[PartitionKey]) -> Iterable[Metric]:
    """One series per stream: sums over its partitions."""
    families = [
        GaugeMetricFamily(f"logboom_stream_{name}", help_text, labels=("stream",))
        for name, help_text in (
            ("partitions", "Partitions that are open."),
            ("records", "Committed records, counted by their offsets."),
            ("size_bytes", "Bytes on the disk."),
            ("offline_partitions", "Partitions that accept no appends."),
        )
    ]
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(families))
    for partition in partitions:
        totals = sums[partition.stream.name]
        records = partition.high_watermark - partition.log_start_offset
        for column, value in enumerate((1, records, partition.log.size_bytes, int(partition.offline))):
            totals[column] += value
    for name, _ in failed:
        sums[name][-1] += 1
    for stream, values in sums.items():
        for family, value in zip(families, values, strict=True):
            family.add_metric((stream,), value)
    return families


def _partition_metrics(partitions: Iterable[Partition], failed: Iterable[PartitionKey]) -> Iterable[Metric]:
    """One series per partition."""
    labels = ("stream", "partition")
    families = {
        "high_watermark": GaugeMetricFamily(
            "logboom_partition_high_watermark", "Everything below is committed.", labels=labels
        ),
        "log_end_offset": GaugeMetricFamily(
            "logboom_partition_log_end_offset", "The offset of the next record.", labels=labels
        ),
        "log_start_offset": GaugeMetricFamily(
            "logboom_partition_log_start_offset", "The offset of the first record.", labels=labels
        ),
        "size_bytes": GaugeMetricFamily("logboom_partition_size_bytes", "Bytes on the disk.", labels=labels),
        "offline": GaugeMetricFamily("logboom_partition_offline", "1 if no appends are accepted.", labels=labels),
    }
    for partition in partitions:
        where = (partition.stream.name, str(partition.index))
        families["high_watermark"].add_metric(where, partition.high_watermark)
        families["log_end_offset"].add_metric(where, partition.log_end_offset)
        families["log_start_offset"].add_metric(where, partition.log_start_offset)
        families["size_bytes"].add_metric(where, partition.log.size_bytes)
        families["offline"].add_metric(where, int(partition.offline))
    for name, index in failed:
        families["offline"].add_metric((name, str(index)), 1)
    return families.values()
