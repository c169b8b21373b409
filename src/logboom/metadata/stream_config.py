"""The settings of a stream: one table, with Kafka's names, from which everything else is made.

Each field of `StreamConfig` is declared once, with its default, its name in Kafka, the name of the broker's default for
it, the rule of its values and its description. What clients describe and alter, the broker's `stream_defaults`, the
reference page and the checks all come from these declarations.

All other settings that Kafka has for a topic are known by name too: those that change nothing here are checked and
kept (`WITHOUT_EFFECT`), the rest is refused with the reason (`REFUSED`). Holds no knowledge of which part of the
program acts on a setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

from logboom.base.errors import InvalidConfigError
from logboom.base.units import DAY_MS, GIB, HOUR_MS, KIB, MIB, MINUTE_MS
from logboom.metadata import attachment
from logboom.metadata.named_settings import READ_BY_NAME, REFUSED, WITHOUT_EFFECT, StreamSetting
from logboom.metadata.setting_values import (
    INT32_MAX,
    INT64_MAX,
    Choice,
    Choices,
    Number,
    Ratio,
    Unit,
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


class Declared(NamedTuple):
    """The declaration of one field of StreamConfig, beside its type and its default."""

    name: str
    broker_name: str | None
    """None if all brokers have to have the same value, so that none has a default of its own."""
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
            "The most by which the segments of a partition may end before segment.ms, so that those of many "
            "partitions do not end at once. Each partition has a constant share of it.",
        ),
    ] = 0
    max_message_bytes: Annotated[
        int,
        Declared(
            "max.message.bytes",
            "message.max.bytes",
            _BYTES_32,
            "The largest record batch that is accepted, as it was sent (compressed if it is compressed).",
        ),
    ] = MAX_MESSAGE_BYTES_DEFAULT
    message_timestamp_type: Annotated[
        TimestampType,
        Declared(
            "message.timestamp.type",
            "log.message.timestamp.type",
            Choice(TimestampType),
            "CreateTime keeps the producer's timestamps; LogAppendTime replaces them with the broker's.",
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
            "How many in-sync replicas there must be before a produce request with acks=all is accepted. A stream's "
            "own value is at most its number of replicas.",
        ),
    ] = 1
    observers: Annotated[
        int,
        Declared(
            "logboom.observers",
            "logboom.observers",
            Number(0, 64),
            "How many observers each partition has: copies that only serve readers. They are not in-sync replicas, "
            "no produce request waits for them, and they never lead.",
        ),
    ] = 0
    observer_reads: Annotated[
        ObserverReads,
        Declared(
            "logboom.observer.reads",
            "logboom.observer.reads",
            Choice(ObserverReads),
            "Which consumers the leader sends to observers. rack: those that name the rack of an observer "
            "(client.rack), if the leader is in another rack. preferred: all of them, to an observer in their rack "
            "if there is one, otherwise to all observers in turn.",
        ),
    ] = ObserverReads.RACK
    observer_max_lag_ms: Annotated[
        int,
        Declared(
            "logboom.observer.max.lag.ms",
            "logboom.observer.max.lag.ms",
            Number(-1, INT64_MAX, Unit.MS, unlimited=_NO_LIMIT),
            "How far an observer may be behind its leader: if it is further behind, it sends consumers back to the "
            "leader.",
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
            "commit acknowledges after fsync: a power failure loses nothing that was acked. none acknowledges once "
            "the operating system has the bytes: the death of the process loses nothing that was acked, but a power "
            "failure may lose the last seconds.",
        ),
    ] = Flush.COMMIT
    flush_messages: Annotated[
        int,
        Declared(
            "flush.messages",
            "log.flush.interval.messages",
            Number(1, INT64_MAX, unlimited=INT64_MAX),
            "With logboom.flush=none: how many records may be written without fsync; the append that reaches this "
            "number is acknowledged after an fsync. With commit every append is.",
        ),
    ] = INT64_MAX
    flush_ms: Annotated[
        int,
        Declared(
            "flush.ms",
            "log.flush.interval.ms",
            Number(0, INT64_MAX, Unit.MS, unlimited=INT64_MAX),
            "With logboom.flush=none: how long a written record may wait for its fsync, if that is less than the "
            "broker's background_sync_interval_s. With commit no record waits.",
        ),
    ] = INT64_MAX
    cleanup_policy: Annotated[
        str,
        Declared(
            "cleanup.policy",
            "log.cleanup.policy",
            Choices((_DELETE, _COMPACT)),
            "What happens to old records. delete: whole segments are deleted once they exceed a limit of retention, "
            "and kept if no limit is set. compact: the latest record of each key is kept, and records without a key "
            "are refused. None: everything is kept.",
        ),
    ] = _DELETE
    min_cleanable_dirty_ratio: Annotated[
        float,
        Declared(
            "min.cleanable.dirty.ratio",
            "log.cleaner.min.cleanable.ratio",
            Ratio(),
            "With compact: a log is compacted once this share of it is not compacted yet.",
        ),
    ] = 0.5
    min_compaction_lag_ms: Annotated[
        int,
        Declared(
            "min.compaction.lag.ms",
            "log.cleaner.min.compaction.lag.ms",
            _MS,
            "With compact: the least time for which every record is kept, by its timestamp.",
        ),
    ] = 0
    max_compaction_lag_ms: Annotated[
        int,
        Declared(
            "max.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
            Number(1, INT64_MAX, Unit.MS, unlimited=INT64_MAX),
            "With compact: the longest that a record may wait for compaction, whatever share of the log is not "
            "compacted yet; segments also end after this time.",
        ),
    ] = INT64_MAX
    delete_retention_ms: Annotated[
        int,
        Declared(
            "delete.retention.ms",
            "log.cleaner.delete.retention.ms",
            _MS,
            "With compact: how long a tombstone (a record without a value) is kept after it was first compacted, so "
            "that consumers that read from the start learn that its key is deleted.",
        ),
    ] = DAY_MS
    retention_ms: Annotated[
        int,
        Declared(
            "retention.ms",
            "log.retention.ms",
            Number(-1, INT64_MAX, Unit.MS, unlimited=_NO_LIMIT),
            "The least time for which records are kept, by their own timestamps; without a limit, for ever. Whole "
            "segments are deleted once their newest record is older.",
        ),
    ] = _NO_LIMIT
    retention_bytes: Annotated[
        int,
        Declared(
            "retention.bytes",
            "log.retention.bytes",
            Number(-1, INT64_MAX, Unit.BYTES, unlimited=_NO_LIMIT),
            "The least number of bytes that each partition keeps. Whole segments are deleted, oldest first, as long "
            "as at least this much is left.",
        ),
    ] = _NO_LIMIT
    retention_messages: Annotated[
        int,
        Declared(
            "logboom.retention.messages",
            "logboom.retention.messages",
            Number(-1, INT64_MAX, unlimited=_NO_LIMIT),
            "The least number of records that each partition keeps. Whole segments are deleted, oldest first, as "
            "long as at least this many are left. Offsets are counted: with compact,delete also those of removed "
            "records.",
        ),
    ] = _NO_LIMIT
    compression_type: Annotated[
        Compression,
        Declared(
            "compression.type",
            "compression.type",
            Choice(Compression),
            "The codec that batches are stored with: producer keeps them as they were sent, with any other value "
            "the broker compresses again what came in another codec.",
        ),
    ] = Compression.PRODUCER
    compression_gzip_level: Annotated[
        int,
        Declared(
            "compression.gzip.level",
            "compression.gzip.level",
            Number(1, 9, also=-1),
            "The level with which the broker compresses if compression.type is gzip; -1 is the library's own.",
        ),
    ] = -1
    compression_lz4_level: Annotated[
        int,
        Declared(
            "compression.lz4.level",
            "compression.lz4.level",
            Number(1, 17),
            "The level with which the broker compresses if compression.type is lz4.",
        ),
    ] = 9
    compression_zstd_level: Annotated[
        int,
        Declared(
            "compression.zstd.level",
            "compression.zstd.level",
            Number(-131_072, 22),
            "The level with which the broker compresses if compression.type is zstd.",
        ),
    ] = 3
    index_interval_bytes: Annotated[
        int,
        Declared(
            "index.interval.bytes",
            "log.index.interval.bytes",
            _BYTES_32,
            "How many bytes of the log lie between two entries of its index: a smaller number makes the first read "
            "at an offset faster and the index larger.",
        ),
    ] = 4 * KIB
    nats_subjects: Annotated[
        str,
        Declared(
            attachment.SUBJECTS,
            None,
            attachment.Subjects(),
            "The NATS subjects whose messages the stream stores; several streams may have the same subjects, and "
            "each stores all of their messages. Needs brokers that run with nats.servers, or `serve --nats`.",
        ),
    ] = ""
    nats_group: Annotated[
        str,
        Declared(
            attachment.GROUP,
            None,
            attachment.Group(),
            "Streams with the same subject and the same group split its messages among them (a NATS queue group).",
        ),
    ] = ""
    nats_ack: Annotated[
        attachment.AckWhen,
        Declared(
            attachment.ACK,
            None,
            Choice(attachment.AckWhen),
            "What the answer to a message with a reply subject waits for. commit: it is committed. leader: it is on "
            "the leader's disk. none: there is no answer. The header Logboom-Ack of a message overrides it.",
        ),
    ] = attachment.AckWhen.COMMIT
    nats_key: Annotated[
        str,
        Declared(
            attachment.KEY,
            None,
            attachment.Key(),
            "Where the key of a record comes from. header: the header Logboom-Key, or Liftbridge's envelope if the "
            "message has one. envelope: only the envelope. subject: the whole subject. token:N: its Nth token.",
        ),
    ] = "header"
    nats_partitioner: Annotated[
        str,
        Declared(
            attachment.PARTITIONER,
            None,
            attachment.Partitioner(),
            "How the partition of a message is chosen, if the stream has several and its subject has no "
            "{partition}. key: as Kafka's clients do, by the key, or without one by the subject. subject, "
            "token:N+N: by the subject, or by these tokens of it. range: by a table, in which values below the "
            "first bound belong to partition 0, those below the second to partition 1. round_robin: any partition, "
            "without order.",
        ),
    ] = "key"
    nats_services: Annotated[
        str,
        Declared(
            attachment.SERVICES,
            None,
            attachment.Listened(),
            "NATS subjects that services answer: requests on them and their replies are recorded, with the reply "
            "subject as key. The broker answers nothing. The stream may also have logboom.nats.subjects.",
        ),
    ] = ""
    nats_replies: Annotated[
        str,
        Declared(
            attachment.REPLIES,
            None,
            attachment.Listened(),
            "The subjects on which replies to recorded requests arrive: all messages on them are examined. Nothing: "
            "only requests are recorded.",
        ),
    ] = attachment.REPLIES_DEFAULT
    nats_duplicate_window_ms: Annotated[
        int,
        Declared(
            "logboom.nats.duplicate.window.ms",
            "logboom.nats.duplicate.window.ms",
            Number(0, DAY_MS, Unit.MS),
            "How long the id of a published message (header Nats-Msg-Id) is remembered: a message with the same id "
            "is a duplicate, which is acked and not stored. No longer than retention.ms. 0 ignores ids.",
        ),
    ] = 2 * MINUTE_MS
    nats_duplicate_window_records: Annotated[
        int,
        Declared(
            "logboom.nats.duplicate.window.records",
            "logboom.nats.duplicate.window.records",
            Number(1, 10_000_000),
            "For how many of the newest records of each partition ids are remembered, at most. Each takes some 200 "
            "bytes of the leader's memory.",
        ),
    ] = 500_000

    def __hash__(self) -> int:
        """Of a few fields: that of all forty takes longer than what is looked up by it, once for each partition."""
        return hash((self.segment_bytes, self.retention_ms, self.cleanup_policy))

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


DEFAULT_STREAM_CONFIG: Final = StreamConfig()

_HINTS: Final = get_type_hints(StreamConfig, include_extras=True)


def _row(field: str, default: Any, hint: Any) -> StreamSetting:
    declared: Declared = hint.__metadata__[0]
    return StreamSetting(declared.name, declared.broker_name, declared.rule, default, declared.doc, field, acts=True)


STREAM_SETTINGS: Final[tuple[StreamSetting, ...]] = (
    *(_row(one.name, one.default, hint) for one, hint in zip(fields(StreamConfig), _HINTS.values(), strict=True)),
    *READ_BY_NAME,
    *WITHOUT_EFFECT,
)

_BY_NAME: Final = {setting.name: setting for setting in STREAM_SETTINGS}


def refused_settings() -> Mapping[str, str]:
    """Kafka's settings that are refused by name, and why."""
    return REFUSED


def minimum_fault(overrides: Mapping[str, str], replicas: int) -> str | None:
    """What is wrong with a stream's own `min.insync.replicas`, which so few replicas could never meet; one sentence.

    A default of the broker may be above them: it is said of no stream in particular.
    """
    given = overrides.get(MINIMUM)
    if given is None or int(given) <= replicas:
        return None
    return (
        f"min.insync.replicas={given} is above the number of replicas, {replicas}: no record with acks=all could ever "
        f"be accepted. Set it to {replicas} or less, or have more replicas"
    )


def stream_setting(name: str) -> StreamSetting:
    """The row of a name. Raises InvalidConfigError: why it is refused, or which name is the most similar."""
    try:
        return _BY_NAME[name]
    except KeyError:
        if name in REFUSED:
            raise InvalidConfigError(f"the setting {name} is refused: {REFUSED[name]}") from None
        nearest = get_close_matches(name, _BY_NAME, 1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(_BY_NAME)}"
        raise InvalidConfigError(f"unknown setting {name!r} ({hint})") from None
