"""The settings of a stream: one table, with Kafka's names, from which everything else is made.

Each field of `StreamConfig` is declared once, with its default, its name in Kafka, the name of the broker's default for
it, the rule of its values and its description. What clients describe and alter, the broker's `stream_defaults`, the
reference page and the checks all come from these declarations.

All other settings that Kafka has for a topic are known by name too: those that change nothing here are checked and
kept (`_WITHOUT_EFFECT`), the rest is refused with the reason (`_REFUSED`). Holds no knowledge of which part of the
program acts on a setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

from logboom.base.errors import InvalidConfigError
from logboom.base.units import DAY_MS, GIB, HOUR_MS, KIB, MIB, MINUTE_MS
from logboom.metadata.setting_values import (
    INT32_MAX,
    INT64_MAX,
    Choice,
    Choices,
    Flag,
    Number,
    Ratio,
    SettingType,
    ThrottledReplicas,
    Unit,
    Value,
    ValueRule,
)


class TimestampType(StrEnum):
    """Which clock a record's timestamp comes from: the producer's or the broker's."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class ObserverReads(StrEnum):
    """Which consumers are sent to observers."""

    RACK = "rack"
    PREFERRED = "preferred"


class Flush(StrEnum):
    """What an ack waits for on the leader's disk."""

    COMMIT = "commit"
    NONE = "none"


class Compression(StrEnum):
    """How batches are stored: as their producer sent them, or in one codec for all."""

    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


FAULTS_MAX: Final = 20
"""Faults of one request that its error lists. Each costs a search for similar names, and requests can hold many."""

BATCH_PREFIX_BYTES: Final = 12
"""Base offset and length at the head of every batch; Kafka's default limit of 1048588 includes them."""

MAX_MESSAGE_BYTES_DEFAULT: Final = MIB + BATCH_PREFIX_BYTES

MINIMUM: Final = "min.insync.replicas"

_DELETE: Final = "delete"
_COMPACT: Final = "compact"
_NO_LIMIT: Final = -1


@dataclass(frozen=True, slots=True)
class StreamSetting:
    """One row of the table."""

    name: str
    """Kafka's name, or one under `logboom.` where Kafka has none."""
    broker_name: str | None
    """Kafka's name of the broker's own setting that is the default of this one."""
    rule: ValueRule
    default_value: Value
    doc: str
    field: str | None = None
    """The attribute of StreamConfig; None where the setting is none of its."""
    acts: bool = False
    """Whether it changes anything here."""

    @property
    def type(self) -> SettingType:
        """The type in DescribeConfigs."""
        return self.rule.type

    def parse(self, text: str) -> Value:
        """Parse a value. Raises InvalidConfigError that names the setting."""
        try:
            return self.rule.parse(text)
        except ValueError as error:
            raise InvalidConfigError(f"{self.name}={text!r}: expected {error}") from None

    def text_in_force(self, config: "StreamConfig", overrides: Mapping[str, str]) -> str:
        """The value that a stream has, as Kafka writes it. `config` are the settings in force, `overrides` its own."""
        if self.field is not None:
            return _text(getattr(config, self.field))
        given = overrides.get(self.name)
        return self.default if given is None else _text(self.rule.parse(given))

    @property
    def default(self) -> str:
        """The table's own value, as text."""
        return _text(self.default_value)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Declared(NamedTuple):
    """The declaration of one field of StreamConfig, beside its type and its default."""

    name: str
    broker_name: str
    rule: ValueRule
    doc: str


_BYTES_32: Final = Number(0, INT32_MAX, Unit.BYTES)
_MS: Final = Number(0, INT64_MAX, Unit.MS)


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """The settings in force for one stream: its own over the broker's defaults over these."""

    segment_bytes: Annotated[
        int,
        Declared(
            "segment.bytes",
            "log.segment.bytes",
            Number(16 * KIB, INT32_MAX, Unit.BYTES),
            "A segment file is closed and a new one begun before it grows beyond this size.",
        ),
    ] = GIB
    segment_ms: Annotated[
        int,
        Declared(
            "segment.ms",
            "log.roll.ms",
            Number(1, INT64_MAX, Unit.MS),
            "A segment file is closed and a new one begun by the first append once its first record is this old.",
        ),
    ] = 7 * DAY_MS
    segment_jitter_ms: Annotated[
        int,
        Declared(
            "segment.jitter.ms",
            "log.roll.jitter.ms",
            _MS,
            "By how much each partition's segments may end before segment.ms, so that those of many partitions do "
            "not end at once. Each partition has its own part of it, which stays the same.",
        ),
    ] = 0
    max_message_bytes: Annotated[
        int,
        Declared(
            "max.message.bytes",
            "message.max.bytes",
            _BYTES_32,
            "The largest record batch that is taken, as it was sent (compressed where it is).",
        ),
    ] = MAX_MESSAGE_BYTES_DEFAULT
    message_timestamp_type: Annotated[
        TimestampType,
        Declared(
            "message.timestamp.type",
            "log.message.timestamp.type",
            Choice(TimestampType),
            "CreateTime keeps the producer's timestamps; LogAppendTime puts the broker's in their place.",
        ),
    ] = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: Annotated[
        int,
        Declared(
            "message.timestamp.before.max.ms",
            "log.message.timestamp.before.max.ms",
            Number(0, INT64_MAX, Unit.MS, unlimited=INT64_MAX),
            "With CreateTime: how far before the broker's clock the timestamp of a record may lie; a batch with an "
            "older one is refused.",
        ),
    ] = INT64_MAX
    message_timestamp_after_max_ms: Annotated[
        int,
        Declared(
            "message.timestamp.after.max.ms",
            "log.message.timestamp.after.max.ms",
            _MS,
            "With CreateTime: how far ahead of the broker's clock the timestamp of a record may lie; a batch with a "
            "later one is refused.",
        ),
    ] = HOUR_MS
    min_insync_replicas: Annotated[
        int,
        Declared(
            MINIMUM,
            MINIMUM,
            Number(1, INT32_MAX),
            "How many in-sync replicas there must be for a produce request with acks=all to be taken. A stream's own "
            "value is at most its number of replicas.",
        ),
    ] = 1
    observers: Annotated[
        int,
        Declared(
            "logboom.observers",
            "logboom.observers",
            Number(0, 64),
            "How many observers each partition has: copies for readers, outside of the in-sync replicas, for which no "
            "produce request waits and of which none ever leads.",
        ),
    ] = 0
    observer_reads: Annotated[
        ObserverReads,
        Declared(
            "logboom.observer.reads",
            "logboom.observer.reads",
            Choice(ObserverReads),
            "Which consumers the leader sends to observers. rack: those that name the rack of one (client.rack), where "
            "the leader is in another. preferred: all of them, to one in their rack where there is one, else to each "
            "observer in turn.",
        ),
    ] = ObserverReads.RACK
    observer_max_lag_ms: Annotated[
        int,
        Declared(
            "logboom.observer.max.lag.ms",
            "logboom.observer.max.lag.ms",
            Number(-1, INT64_MAX, Unit.MS, unlimited=_NO_LIMIT),
            "How old what an observer shows may be, compared with its leader: one that is further behind sends "
            "consumers back to the leader.",
        ),
    ] = 30_000
    observer_max_lag_records: Annotated[
        int,
        Declared(
            "logboom.observer.max.lag.records",
            "logboom.observer.max.lag.records",
            Number(-1, INT64_MAX, unlimited=_NO_LIMIT),
            "As logboom.observer.max.lag.ms, in committed records that the observer does not have yet.",
        ),
    ] = _NO_LIMIT
    flush: Annotated[
        Flush,
        Declared(
            "logboom.flush",
            "logboom.flush",
            Choice(Flush),
            "commit acknowledges after fsync: nothing acked is lost with the power. none acknowledges once the "
            "operating system has the bytes: nothing acked is lost with the process, the last seconds may be with "
            "the power.",
        ),
    ] = Flush.COMMIT
    flush_messages: Annotated[
        int,
        Declared(
            "flush.messages",
            "log.flush.interval.messages",
            Number(1, INT64_MAX, unlimited=INT64_MAX),
            "With logboom.flush=none: how many records may be written without fsync; the append that makes them so "
            "many is acknowledged after one. With commit every append is.",
        ),
    ] = INT64_MAX
    flush_ms: Annotated[
        int,
        Declared(
            "flush.ms",
            "log.flush.interval.ms",
            Number(0, INT64_MAX, Unit.MS, unlimited=INT64_MAX),
            "With logboom.flush=none: how long a written record may wait for its fsync, where that is less than the "
            "broker's background_sync_interval_s. With commit none waits.",
        ),
    ] = INT64_MAX
    cleanup_policy: Annotated[
        str,
        Declared(
            "cleanup.policy",
            "log.cleanup.policy",
            Choices((_DELETE, _COMPACT)),
            "What becomes of old records. delete: whole segments go once a limit of retention is passed, and stay "
            "where none is set. compact: of each key the latest record stays, and records without a key are refused. "
            "None: everything stays.",
        ),
    ] = _DELETE
    min_cleanable_dirty_ratio: Annotated[
        float,
        Declared(
            "min.cleanable.dirty.ratio",
            "log.cleaner.min.cleanable.ratio",
            Ratio(),
            "With compact: the share of a log that was not compacted yet from which on it is.",
        ),
    ] = 0.5
    min_compaction_lag_ms: Annotated[
        int,
        Declared(
            "min.compaction.lag.ms",
            "log.cleaner.min.compaction.lag.ms",
            _MS,
            "With compact: how long every record stays, at least, by its timestamp.",
        ),
    ] = 0
    max_compaction_lag_ms: Annotated[
        int,
        Declared(
            "max.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
            Number(1, INT64_MAX, Unit.MS, unlimited=INT64_MAX),
            "With compact: how long a record may wait for compaction, whatever share of the log was not compacted "
            "yet; segments end this soon, too.",
        ),
    ] = INT64_MAX
    delete_retention_ms: Annotated[
        int,
        Declared(
            "delete.retention.ms",
            "log.cleaner.delete.retention.ms",
            _MS,
            "With compact: how long a tombstone (a record without a value) stays after it was first compacted, for "
            "consumers that read from the start to learn that its key is gone.",
        ),
    ] = DAY_MS
    retention_ms: Annotated[
        int,
        Declared(
            "retention.ms",
            "log.retention.ms",
            Number(-1, INT64_MAX, Unit.MS, unlimited=_NO_LIMIT),
            "How long records are kept, at least, by their own timestamps; without a limit for ever. Whole segments "
            "are deleted, once their newest record is older.",
        ),
    ] = _NO_LIMIT
    retention_bytes: Annotated[
        int,
        Declared(
            "retention.bytes",
            "log.retention.bytes",
            Number(-1, INT64_MAX, Unit.BYTES, unlimited=_NO_LIMIT),
            "How many bytes each partition keeps, at least. Whole segments are deleted, oldest first, while what is "
            "left is at least as much.",
        ),
    ] = _NO_LIMIT
    retention_messages: Annotated[
        int,
        Declared(
            "logboom.retention.messages",
            "logboom.retention.messages",
            Number(-1, INT64_MAX, unlimited=_NO_LIMIT),
            "How many records each partition keeps, at least. Whole segments are deleted, oldest first, while what "
            "is left is at least as many. Offsets are counted: with compact,delete those too whose record is gone.",
        ),
    ] = _NO_LIMIT
    compression_type: Annotated[
        Compression,
        Declared(
            "compression.type",
            "compression.type",
            Choice(Compression),
            "The codec that batches are stored with: producer keeps them as they were sent, any other value has the "
            "broker compress again what came in another codec.",
        ),
    ] = Compression.PRODUCER
    compression_gzip_level: Annotated[
        int,
        Declared(
            "compression.gzip.level",
            "compression.gzip.level",
            Number(1, 9, also=-1),
            "The level with which the broker compresses where compression.type is gzip; -1 is the library's own.",
        ),
    ] = -1
    compression_lz4_level: Annotated[
        int,
        Declared(
            "compression.lz4.level",
            "compression.lz4.level",
            Number(1, 17),
            "The level with which the broker compresses where compression.type is lz4.",
        ),
    ] = 9
    compression_zstd_level: Annotated[
        int,
        Declared(
            "compression.zstd.level",
            "compression.zstd.level",
            Number(-131_072, 22),
            "The level with which the broker compresses where compression.type is zstd.",
        ),
    ] = 3
    index_interval_bytes: Annotated[
        int,
        Declared(
            "index.interval.bytes",
            "log.index.interval.bytes",
            _BYTES_32,
            "How many bytes of the log lie between two entries of its index: a smaller number makes the first read "
            "at an offset quicker and the index larger.",
        ),
    ] = 4 * KIB

    @property
    def compacts(self) -> bool:
        """Whether of each key only the latest record is kept."""
        return _COMPACT in self.cleanup_policy.split(",")

    @property
    def deletes(self) -> bool:
        """Whether the limits of retention hold."""
        return _DELETE in self.cleanup_policy.split(",")

    @property
    def fault(self) -> str | None:
        """What is wrong with settings that are right one by one; one sentence."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            return (
                f"min.compaction.lag.ms={self.min_compaction_lag_ms} is above "
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}"
            )
        return None

    def with_overrides(self, overrides: Mapping[str, str]) -> "StreamConfig":
        """These settings with some replaced, by Kafka's names. Raises InvalidConfigError that lists the faults."""
        values: dict[str, Any] = {}
        faults: list[str] = []
        for name, text in overrides.items():
            try:
                setting = stream_setting(name)
                value = setting.parse(text)
            except InvalidConfigError as error:
                faults.append(str(error))
                if len(faults) == FAULTS_MAX:
                    break
            else:
                if setting.field is not None:
                    values[setting.field] = value
        if faults:
            raise InvalidConfigError("; ".join(faults))
        return replace(self, **values)


_NO_TIERS: Final = "Changes nothing: there is no tiered storage here, and all records are local."

_UNCLEAN: Final = "unclean.leader.election.enable"

_READ_BY_NAME: Final = (
    StreamSetting(
        _UNCLEAN,
        None,
        Flag(),
        False,
        "Whether a partition whose in-sync and eligible replicas stay away for 10 s is led by the longest log among "
        "the others, although acked records may be lost. Otherwise it waits for them, or for a command (ElectLeaders).",
        acts=True,
    ),
    StreamSetting(
        "leader.replication.throttled.replicas",
        None,
        ThrottledReplicas(),
        "",
        "Which leaders send to replicas that are not in sync no faster than leader.replication.throttled.rate of their "
        "broker, together.",
        acts=True,
    ),
    StreamSetting(
        "follower.replication.throttled.replicas",
        None,
        ThrottledReplicas(),
        "",
        "Which replicas, while they are not in sync, copy no faster than follower.replication.throttled.rate of their "
        "broker, together.",
        acts=True,
    ),
)
"""Settings without a default of the broker, which whoever acts on them reads in the stream's own."""
THROTTLED_REPLICAS: Final = frozenset(one.name for one in _READ_BY_NAME if isinstance(one.rule, ThrottledReplicas))

_WITHOUT_EFFECT: Final = (
    StreamSetting(
        "file.delete.delay.ms",
        None,
        _MS,
        MINUTE_MS,
        "Changes nothing: a deleted segment leaves its directory at once, and reads that are under way keep its file.",
    ),
    StreamSetting(
        "preallocate",
        None,
        Flag(),
        False,
        "Changes nothing: room is reserved ahead of the end of every segment, as much as it has, up to 16 MiB.",
    ),
    StreamSetting(
        "segment.index.bytes",
        None,
        Number(4, INT32_MAX, Unit.BYTES),
        10 * MIB,
        "Changes nothing: an index is as large as its entries, and no segment ends because its index is full.",
    ),
    StreamSetting(
        "remote.storage.enable",
        None,
        Flag(only=False, because="there is no tiered storage"),
        False,
        "Whether old segments move to another storage: only false, there is no tiered storage here.",
    ),
    StreamSetting("remote.log.copy.disable", None, Flag(), False, _NO_TIERS),
    StreamSetting("remote.log.delete.on.disable", None, Flag(), False, _NO_TIERS),
    StreamSetting("local.retention.ms", None, Number(-2, INT64_MAX, Unit.MS), -2, _NO_TIERS),
    StreamSetting("local.retention.bytes", None, Number(-2, INT64_MAX, Unit.BYTES), -2, _NO_TIERS),
)

_REFUSED: Final[Mapping[str, str]] = {
    "internal.segment.bytes": "Kafka has it for its own tests: segment.bytes takes 16 KiB and more here",
    "message.downconversion.enable": "Kafka 4.0 removed it: batches are never converted to older formats",
    "message.format.version": "Kafka 4.0 removed it: batches are stored in format 2, always",
    "message.timestamp.difference.max.ms": (
        "Kafka 4.0 removed it: use message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
}
"""Names that Kafka has or had, and why they are refused."""

DEFAULT_STREAM_CONFIG: Final = StreamConfig()

_HINTS: Final = get_type_hints(StreamConfig, include_extras=True)


def _row(field: str, default: Any, hint: Any) -> StreamSetting:
    declared: Declared = hint.__metadata__[0]
    return StreamSetting(declared.name, declared.broker_name, declared.rule, default, declared.doc, field, acts=True)


STREAM_SETTINGS: Final[tuple[StreamSetting, ...]] = (
    *(_row(one.name, one.default, hint) for one, hint in zip(fields(StreamConfig), _HINTS.values(), strict=True)),
    *_READ_BY_NAME,
    *_WITHOUT_EFFECT,
)

_BY_NAME: Final = {setting.name: setting for setting in STREAM_SETTINGS}


def refused_settings() -> Mapping[str, str]:
    """Kafka's settings that are refused by name, and why."""
    return _REFUSED


def minimum_fault(overrides: Mapping[str, str], replicas: int) -> str | None:
    """What is wrong with a stream's own `min.insync.replicas`, which so few replicas could never meet; one sentence.

    A default of the broker may be above them: it is said of no stream in particular.
    """
    given = overrides.get(MINIMUM)
    if given is None or int(given) <= replicas:
        return None
    return (
        f"min.insync.replicas={given} is above the number of replicas, {replicas}: no record with acks=all could ever "
        f"be taken. Set it to {replicas} or less, or have more replicas"
    )


def takes_unclean_leaders(overrides: Mapping[str, str]) -> bool:
    """Whether a stream with these own settings would lose records rather than wait."""
    return overrides.get(_UNCLEAN, "").strip().lower() == "true"


def stream_setting(name: str) -> StreamSetting:
    """The row of a name. Raises InvalidConfigError: why it is refused, or which name is the most similar."""
    try:
        return _BY_NAME[name]
    except KeyError:
        if name in _REFUSED:
            raise InvalidConfigError(f"the setting {name} is refused: {_REFUSED[name]}") from None
        nearest = get_close_matches(name, _BY_NAME, 1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(_BY_NAME)}"
        raise InvalidConfigError(f"unknown setting {name!r} ({hint})") from None
