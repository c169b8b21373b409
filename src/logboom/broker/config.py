"""The settings of one broker: where its data is, all of its limits, the defaults of streams, and consumer groups.

Holds names, defaults and ranges; addresses are settings of the front ends, and what a setting does is in the parts that
read it. The docstrings are the text of docs/configuration.md.
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator
from pydantic.fields import FieldInfo

from logboom.base.dynamic import Dynamic, Static
from logboom.base.settings import DurationMs, DurationS, Settings, SizeBytes, split_address
from logboom.base.units import DAY_MS, KIB, MIB, MINUTE_MS, SECOND_MS
from logboom.groups import GroupLimits
from logboom.metadata import (
    INT64_MAX,
    STREAM_SETTINGS,
    Choice,
    Flag,
    Number,
    Ratio,
    Stream,
    StreamConfig,
    StreamSetting,
    Unit,
)

_NAME_PARTITIONS_MAX: Final = 99_999
"""The longest stream name, `-` and five digits make a file name of 255 bytes, the most there can be."""

_INT16_MAX: Final = 2**15 - 1
_INT32_MAX: Final = 2**31 - 1


def _split(value: Any) -> Any:
    return [one.strip() for one in value.split(",")] if isinstance(value, str) else value


def _address(value: str) -> str:
    split_address(value)
    return value


class _StreamDefaults(Settings):
    """The settings of a stream that has none of its own."""

    @cached_property
    def stream_config(self) -> StreamConfig:
        """The same values as `StreamConfig`, where null is Kafka's number for no limit."""
        values: dict[str, Any] = self.model_dump()
        for setting in STREAM_SETTINGS:
            if setting.field in values and values[setting.field] is None:
                values[setting.field] = setting.default_value
        return StreamConfig(**values)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if (fault := self.stream_config.fault) is not None:
            raise ValueError(fault)
        return self


def _stream_default(setting: StreamSetting) -> tuple[Any, FieldInfo]:
    """The field of StreamDefaults for a setting of streams: its type and bounds, its default and its description."""
    rule = setting.rule
    default: Any = setting.default_value
    unlimited = rule.unlimited if isinstance(rule, Number) else None
    kind: Any
    match rule:
        case Number():
            # A number that says "no limit" is written null in a file, and is no bound.
            lowest = max(rule.lowest, 0) if unlimited is not None else rule.lowest
            bounds = Field(ge=lowest, le=None if rule.highest == INT64_MAX else rule.highest)
            kind = {Unit.BYTES: SizeBytes, Unit.MS: DurationMs, Unit.COUNT: int}[rule.unit]
            kind = Annotated[kind, bounds if rule.also is None else AfterValidator(_checked_by(setting))]
        case Ratio():
            kind = Annotated[float, Field(ge=0, le=1)]
        case Flag():
            kind = bool
        case Choice():
            kind = rule.values
        case _:
            kind = Annotated[str, AfterValidator(_checked_by(setting))]
    if unlimited is not None:
        kind, default = kind | None, None if default == unlimited else default
    mark = Dynamic(setting.broker_name, no_limit=-1 if unlimited is None else unlimited)
    same = setting.name == setting.broker_name
    description = setting.doc if same else f"{setting.doc} Of one stream: `{setting.name}`."
    annotation: Any = Annotated[kind, mark]
    return annotation, Field(default=default, description=description)


def _checked_by(setting: StreamSetting) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        try:
            return setting.rule.parse(str(value))
        except ValueError as error:
            raise ValueError(f"should be {error}") from None

    return check


if TYPE_CHECKING:

    class StreamDefaults(_StreamDefaults):
        """A field for each field of StreamConfig; made at run time, so that no setting is declared twice."""

        def __getattr__(self, name: str) -> Any: ...

else:
    StreamDefaults = create_model(
        "StreamDefaults",
        __base__=_StreamDefaults,
        __doc__=_StreamDefaults.__doc__,
        __module__=__name__,
        **{
            one.field: _stream_default(one)
            for one in STREAM_SETTINGS
            if one.field is not None and one.broker_name is not None
        },
    )


class GroupsConfig(Settings):
    """Consumer groups."""

    session_timeout_min_ms: Annotated[
        DurationMs, Field(ge=1, le=_INT32_MAX), Dynamic("group.min.session.timeout.ms")
    ] = 6 * SECOND_MS
    """The shortest session timeout a member may ask for."""
    session_timeout_max_ms: Annotated[
        DurationMs, Field(ge=1, le=_INT32_MAX), Dynamic("group.max.session.timeout.ms")
    ] = 30 * MINUTE_MS
    """The longest session timeout a member may ask for."""
    initial_rebalance_delay_ms: Annotated[
        DurationMs, Field(ge=0, le=_INT32_MAX), Dynamic("group.initial.rebalance.delay.ms")
    ] = 3 * SECOND_MS
    """How long the first rebalance of an empty group waits for more members."""
    members_max: Annotated[int, Field(ge=1), Dynamic("group.max.size")] = 1_000
    """Members one group may have."""
    groups_max: Annotated[int, Field(ge=1), Dynamic()] = 10_000
    """Groups that one partition of `__consumer_offsets` may hold."""
    group_offsets_max: Annotated[int, Field(ge=1), Dynamic()] = 100_000
    """Partitions for which one group may have committed offsets."""
    member_metadata_max_bytes: Annotated[SizeBytes, Field(ge=1), Dynamic()] = 256 * KIB
    """The largest metadata of one member, under all its protocols: its subscription, mainly."""
    offset_metadata_max_bytes: Annotated[
        SizeBytes, Field(ge=0, le=_INT16_MAX), Dynamic("offset.metadata.max.bytes")
    ] = 4 * KIB
    """The longest metadata that may be committed with an offset."""
    offsets_retention_ms: Annotated[DurationMs, Field(ge=1), Dynamic()] = 7 * DAY_MS
    """How long offsets are kept after their last use (`offsets.retention.minutes`)."""
    offsets_retention_check_ms: Annotated[DurationMs, Field(ge=1), Dynamic("offsets.retention.check.interval.ms")] = (
        10 * MINUTE_MS
    )
    """How often expired offsets are looked for."""
    # Eight is enough to spread coordinators over a cluster, and few enough that a flush on one node, which syncs each
    # partition that was written, stays cheap however many groups commit. Groups are placed by hash, so it stays.
    offsets_partitions: Annotated[int, Field(ge=1, le=1_000), Static("offsets.topic.num.partitions")] = 8
    """Partitions of `__consumer_offsets`; fixed once it was created (`offsets.topic.num.partitions`)."""
    offsets_replication_factor: Annotated[int, Field(ge=1, le=32), Static("offsets.topic.replication.factor")] = 3
    """Replicas of each partition of `__consumer_offsets`, or as many as there are brokers when it is created."""
    # With 1, a commit may be on one disk alone, and be lost with it. With three replicas the second one costs little:
    # if two of three brokers are down, there is no controller either.
    offsets_min_insync_replicas: Annotated[int, Field(ge=1, le=32), Dynamic()] = 2
    """`min.insync.replicas` of `__consumer_offsets`, but at most one less than its partitions have replicas: with one
    or two replicas it is 1."""
    offsets_commit_timeout_ms: Annotated[
        DurationMs, Field(ge=1, le=_INT32_MAX), Static("offsets.commit.timeout.ms")
    ] = 5 * SECOND_MS
    """How long a commit waits for its replicas before it is answered COORDINATOR_NOT_AVAILABLE."""
    offsets_segment_bytes: Annotated[
        SizeBytes, Field(ge=16 * KIB, le=_INT32_MAX), Static("offsets.topic.segment.bytes")
    ] = 4 * MIB
    """`segment.bytes` of `__consumer_offsets`. A segment that is written to is not compacted, so a start loads up to
    this many bytes of each partition besides its live records."""
    offsets_max_message_bytes: Annotated[SizeBytes, Field(ge=64 * KIB, le=256 * MIB)] = 16 * MIB
    """The largest record of `__consumer_offsets`: the members of a group with their assignments must fit in one."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.session_timeout_min_ms > self.session_timeout_max_ms:
            raise ValueError("session_timeout_min_ms must not be above session_timeout_max_ms")
        return self

    def as_limits(self) -> GroupLimits:
        """The same values as the coordinators take them."""
        return GroupLimits(
            session_timeout_ms_min=self.session_timeout_min_ms,
            session_timeout_ms_max=self.session_timeout_max_ms,
            initial_rebalance_delay_ms=self.initial_rebalance_delay_ms,
            groups_max=self.groups_max,
            group_members_max=self.members_max,
            group_offsets_max=self.group_offsets_max,
            member_metadata_bytes_max=self.member_metadata_max_bytes,
            offset_metadata_bytes_max=self.offset_metadata_max_bytes,
            offsets_retention_ms=self.offsets_retention_ms,
            offsets_retention_check_ms=self.offsets_retention_check_ms,
        )


class CleanerConfig(Settings):
    """Key compaction (`cleanup.policy=compact`), one log at a time."""

    key_map_bytes: Annotated[SizeBytes, Field(ge=MIB, le=_INT32_MAX), Dynamic("log.cleaner.dedupe.buffer.size")] = (
        128 * MIB
    )
    """Memory for the keys that one compaction has seen. Of a log with more keys it compacts as much as fits, and the
    rest the next time."""
    max_io_bytes_per_s: Annotated[
        Annotated[SizeBytes, Field(ge=64 * KIB)] | None, Dynamic("log.cleaner.io.max.bytes.per.second", as_double=True)
    ] = None
    """How many bytes compaction reads and writes in a second, together, at most; null sets no limit."""
    backoff_ms: Annotated[DurationMs, Field(ge=10), Dynamic("log.cleaner.backoff.ms")] = 15 * SECOND_MS
    """How long compaction waits before it looks again for logs that need it."""


class ScrubberConfig(Settings):
    """The scrubber: everything durable in every log is read and checked in the background, one log at a time, so that
    what a disk has lost is noticed while other replicas have it."""

    interval_ms: Annotated[
        Annotated[DurationMs, Field(ge=SECOND_MS)] | None, Dynamic("logboom.scrubber.interval.ms")
    ] = 7 * DAY_MS
    """How long one pass over all logs takes: the reads are spread over it. Null: nothing is scrubbed."""
    max_io_bytes_per_s: Annotated[
        SizeBytes, Field(ge=64 * KIB), Dynamic("logboom.scrubber.io.max.bytes.per.second")
    ] = 8 * MIB
    """How many bytes the scrubber reads in a second at most. Where that is not enough for all logs, a pass takes longer
    than its interval."""


class ConditionsConfig(Settings):
    """Conditional records: those that are taken only if the latest record of their key is the one their writer knows
    (header `logboom-expected-offset`)."""

    scan_max_bytes: Annotated[SizeBytes, Field(ge=MIB), Dynamic()] = 64 * MIB
    """How much of a partition may be read to decide a condition, as stored and decompressed. Where the records since
    the offset up to which the writer has read are more, its batch is refused. Meanwhile the partition's appends
    wait."""
    memory_bytes: Annotated[SizeBytes, Field(ge=MIB), Dynamic()] = 64 * MIB
    """Memory for the keys of the newest records in partitions that get conditional records, from which conditions are
    decided without reading. One partition has a quarter of it at most."""


class MessageIdsConfig(Settings):
    """Ids of messages (`Nats-Msg-Id`), by which one that is published again is known as a duplicate."""

    memory_bytes: Annotated[SizeBytes, Field(ge=MIB), Dynamic()] = 256 * MIB
    """Memory for the ids of all partitions, some 200 bytes each. If they take more, the biggest window forgets its
    oldest ids early, and a message with one of these that is published again is stored again."""
    reload_max_bytes: Annotated[SizeBytes, Field(ge=MIB), Dynamic()] = 512 * MIB
    """How much of a partition's log a new leader reads for the ids of its messages, while the partition's appends wait.
    Ids that lie before it are not known any more."""


class BrokerConfig(Settings):
    """One broker."""

    data_dir: Annotated[Path, Static("log.dirs")] = Path("logboom-data")
    """The directory of all data. Only one broker at a time can use it."""
    broker_id: Annotated[int, Field(ge=0, le=_INT32_MAX), Static("node.id")] = 1
    """The broker's id in the Kafka protocol. Fixed when the data directory is created."""
    cluster_id: str | None = None
    """The cluster's id in the Kafka protocol; by default random, chosen when the data directory is created."""
    join: Annotated[tuple[Annotated[str, AfterValidator(_address)], ...], BeforeValidator(_split)] = ()
    """Addresses (HOST:PORT of `peer.listen`, as a list or with commas between them) of brokers of a cluster that a new
    broker joins; its own among them is left out. Without any, a new data directory is that of a broker that is alone;
    one that listens for others (`peer.listen`) does not start with it. A broker that belongs to a cluster needs them no
    more."""
    rack: Annotated[str | None, Static("broker.rack")] = None
    """Where the broker stands: replicas are spread over racks, and consumers may read from the replica in theirs."""
    observer: bool = False
    """Whether the broker only observes: it holds copies of streams with `logboom.observers` for readers, but no
    replicas, no leaderships and no vote on the metadata. It joins an existing cluster, and stays what it was when it
    joined."""
    failure_domain: str | None = None
    """The failure domain of this broker, such as the machine on which several run: no two replicas of a partition are
    placed in one. By default each broker is its own."""
    voters: Annotated[int, Field(ge=1, le=7), Dynamic()] = 3
    """Brokers that vote on the metadata of the cluster: an odd number, or as many as there are. Any minority of them
    may fail."""
    heartbeat_ms: Annotated[DurationMs, Field(ge=10), Static("broker.heartbeat.interval.ms")] = 250
    """How often a broker sends a heartbeat to the controller."""
    lease_ms: Annotated[DurationMs, Field(ge=100), Static("broker.session.timeout.ms")] = SECOND_MS
    """How long a broker may lead without an answer to a heartbeat. After that, and a tenth of it for clocks that run at
    different rates, others lead in its place. Must be the same on all brokers of a cluster."""
    idle_poll_us: Annotated[int, Field(ge=0, le=10_000), Static()] = 100
    """How many microseconds the broker polls for work after a request or an answer before it sleeps: waking up takes 5
    to 50 of them. Polling stops by itself while it mostly finds nothing, or while others want the core. 0 sleeps at
    once."""
    time_slice_us: Annotated[int, Field(ge=0, le=100_000), Static()] = 100
    """Length of the time slices that the broker asks Linux for (6.12 and newer), in microseconds; the least is 100.
    With short ones its threads run soon after they wake up although other programs use all cores; their share of the
    cores stays the same. 0 leaves the system's, some milliseconds."""
    command_timeout_ms: Annotated[DurationMs, Field(ge=1), Dynamic()] = 30 * SECOND_MS
    """How long a change of metadata may take, the wait for a controller included."""
    default_replication_factor: Annotated[int, Field(ge=1, le=_INT16_MAX), Dynamic("default.replication.factor")] = 3
    """Replicas of a stream that is created without a number; fewer where there are fewer brokers."""
    leader_rebalance_interval_ms: Annotated[DurationMs, Field(ge=SECOND_MS), Static()] = 5 * MINUTE_MS
    """How often leaderships are given back to preferred leaders that are in sync again
    (`leader.imbalance.check.interval.seconds`)."""
    auto_create_streams: Annotated[bool, Dynamic("auto.create.topics.enable")] = True
    """Whether asking for an unknown stream creates it. The answer already names the leaders of its partitions; Kafka
    answers with LEADER_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION first, and its clients wait and ask again."""
    default_partitions: Annotated[int, Field(ge=1), Dynamic("num.partitions")] = 1
    """Partitions of a stream that is created without a count."""
    max_partitions: Annotated[int, Field(ge=1, le=_NAME_PARTITIONS_MAX), Dynamic()] = 10_000
    """Partitions of all streams together, internal ones included."""
    max_streams: Annotated[int, Field(ge=1, le=_NAME_PARTITIONS_MAX), Dynamic()] = 10_000
    """Streams, internal ones included."""
    max_quotas: Annotated[int, Field(ge=0, le=1_000_000), Dynamic()] = 10_000
    """Clients and addresses that have quotas of their own."""
    quota_window_num: Annotated[int, Static("quota.window.num")] = Field(default=11, ge=2, le=3_600)
    """Windows of a quota: a client may use at once what its quota allows in all of these windows but one."""
    quota_window_size_s: Annotated[DurationS, Static("quota.window.size.seconds")] = Field(
        default=1.0, ge=0.1, le=3_600
    )
    """Length of one such window: 11 of 1 s let ten seconds' worth pass at once. The throttle time for using too much of
    the broker's time, or for too many connections, is at most one window."""
    max_decompressed_bytes: Annotated[SizeBytes, Dynamic()] = 64 * MIB
    """The largest size to which one compressed batch may decompress."""
    max_batch_records: Annotated[int, Field(ge=1), Dynamic()] = 1_000_000
    """The most records in one batch."""
    max_staged_bytes: Annotated[SizeBytes, Field(ge=1), Dynamic()] = 256 * MIB
    """Memory for records that wait to be written to the disk. Above it no produce request is begun, and no records are
    fetched from leaders, until some are written."""
    max_open_log_files: Annotated[int, Field(ge=16), Dynamic()] = 8_192
    """Open files of all partitions. Above it the least recently used are closed, and opened again when needed; a file
    with bytes that wait for a sync stays open."""
    shared_read_bytes: SizeBytes = 32 * MIB
    """Memory for the reads of the last two seconds, which serve other consumers that read the same, and for reading
    ahead of consumers that catch up; 0 reads the log for every fetch."""
    flush_threads: Annotated[int, Field(ge=1, le=64)] = 4
    """Partitions of one group commit that are synced in parallel."""
    inline_flush: bool = True
    """Whether small writes of up to 16 partitions at a time are made on the event loop and synced asynchronously by the
    kernel (io_uring or Linux AIO), where the system and the file system support that. Larger writes, those of more
    partitions, and all writes to a slow disk go through the flusher's thread."""
    read_threads: Annotated[int, Field(ge=1, le=64)] = 4
    """Threads for reads that are not in memory."""
    open_threads: Annotated[int, Field(ge=1, le=64)] = 4
    """Threads that open partitions at the start."""
    disk_hang_s: Annotated[DurationS, Field(ge=0.1), Dynamic()] = 10.0
    """A write or a sync that takes longer counts as a hanging disk: `/readyz` fails and the log reports it. In a
    cluster the broker is fenced, and others lead in its place, until the disk responds again."""
    checkpoint_interval_s: Annotated[DurationS, Field(ge=1), Dynamic()] = 60.0
    """How often the state that shortens recovery is made durable."""
    background_sync_interval_s: Annotated[DurationS, Field(ge=0.05), Dynamic()] = 1.0
    """How often streams with flush=none are synced: a power failure may lose the records of this time."""
    retention_check_interval_s: Annotated[
        DurationS, Field(ge=0.01), Dynamic("log.retention.check.interval.ms", in_ms=True)
    ] = 300.0
    """How often segments that exceed their retention are looked for."""
    producer_id_block: Annotated[int, Field(ge=1, le=1_000_000), Dynamic()] = 1_000
    """Producer ids allocated by one metadata record; those left over at a restart are never used."""
    metadata_snapshot_records: Annotated[int, Field(ge=1), Dynamic()] = 10_000
    """A snapshot of the metadata is taken once this many changes were applied since the last one, and as many bytes as
    that one had."""
    stream_defaults: StreamDefaults = StreamDefaults()
    """The settings of streams that have none of their own."""
    replica_lag_max_ms: Annotated[DurationMs, Field(ge=100), Static("replica.lag.time.max.ms")] = 30 * SECOND_MS
    """A follower that was not caught up for this long leaves the in-sync replicas."""
    high_watermark_checkpoint_ms: Annotated[
        DurationMs, Field(ge=100), Dynamic("replica.high.watermark.checkpoint.interval.ms")
    ] = 5 * SECOND_MS
    """How often the high-water marks of replicated partitions are saved, so that a broker shows that much at once when
    it starts."""
    replica_fetch_wait_ms: Annotated[DurationMs, Field(ge=1, le=60_000), Static("replica.fetch.wait.max.ms")] = 500
    """How long a leader that has nothing new holds a follower's fetch."""
    replica_fetch_bytes: Annotated[
        SizeBytes, Field(ge=64 * KIB, le=64 * MIB), Static("replica.fetch.response.max.bytes")
    ] = 8 * MIB
    """The records that one fetch of a follower brings, of all partitions together."""
    replica_fetch_partition_bytes: Annotated[
        SizeBytes, Field(ge=KIB, le=64 * MIB), Static("replica.fetch.max.bytes")
    ] = MIB
    """The records that one fetch of a follower brings of one partition. A larger batch comes alone."""
    replica_disk_reads: Annotated[int, Field(ge=1, le=64)] = 2
    """How many reads for followers may wait for the disk at a time, of the `read_threads`. What followers that keep up
    ask for is in memory."""
    leader_throttled_bytes_per_s: Annotated[
        Annotated[SizeBytes, Field(ge=0)] | None, Dynamic("leader.replication.throttled.rate", no_limit=INT64_MAX)
    ] = None
    """How many bytes a second this broker sends to replicas that are not in sync, of the partitions that streams name
    in `leader.replication.throttled.replicas`; null sets no limit. What in-sync replicas copy is not counted."""
    follower_throttled_bytes_per_s: Annotated[
        Annotated[SizeBytes, Field(ge=0)] | None, Dynamic("follower.replication.throttled.rate", no_limit=INT64_MAX)
    ] = None
    """How many bytes a second this broker's replicas that are not in sync fetch, of the partitions that streams name in
    `follower.replication.throttled.replicas`; null sets no limit."""
    cleaner: CleanerConfig = CleanerConfig()
    """Key compaction."""
    scrubber: ScrubberConfig = ScrubberConfig()
    """Reading and checking all logs in the background."""
    conditions: ConditionsConfig = ConditionsConfig()
    """Conditional records."""
    message_ids: MessageIdsConfig = MessageIdsConfig()
    """Ids of published messages."""
    groups: GroupsConfig = GroupsConfig()
    """Consumer groups."""

    def stream_config(self, stream: Stream) -> StreamConfig:
        """The settings that a stream runs under on this broker: its own over `stream_defaults`."""
        return stream.config_over(self.stream_defaults.stream_config)
