"""The settings of a stream: one table, with Kafka's names, from which everything else is made.

The table holds names, types, defaults, descriptions and rules; not which part of the program acts on a setting. A
setting of Kafka's that is absent here is refused, rather than accepted without effect.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from enum import IntEnum, StrEnum
from typing import Any, Final, TypeAlias

from logboom.base.errors import InvalidConfigError
from logboom.base.units import DAY_MS, GIB, HOUR_MS, KIB, MIB

Value: TypeAlias = int | str
"""A parsed value. The enums below are strings."""


class SettingType(IntEnum):
    """Types as DescribeConfigs numbers them (Kafka's ConfigDef.Type)."""

    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


class TimestampType(StrEnum):
    """Which clock a record's timestamp comes from: the producer's or the broker's."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class Flush(StrEnum):
    """What an ack waits for on the leader's disk."""

    COMMIT = "commit"
    NONE = "none"


FAULTS_MAX: Final = 20
"""Faults of one request that its error lists. Each costs a search for similar names, and requests can hold many."""

BATCH_PREFIX_BYTES: Final = 12
"""Base offset and length at the head of every batch; Kafka's default limit of 1048588 includes them."""

MAX_MESSAGE_BYTES_DEFAULT: Final = MIB + BATCH_PREFIX_BYTES
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """The settings in force for one stream: its own over the broker's defaults over the table's."""

    segment_bytes: int = GIB
    segment_ms: int = 7 * DAY_MS
    max_message_bytes: int = MAX_MESSAGE_BYTES_DEFAULT
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = HOUR_MS
    min_insync_replicas: int = 1
    flush: Flush = Flush.COMMIT
    cleanup_policy: str = "delete"
    retention_ms: int = -1
    retention_bytes: int = -1
    retention_messages: int = -1
    compression_type: str = "producer"

    def with_overrides(self, overrides: Mapping[str, str]) -> "StreamConfig":
        """These settings with some replaced, by Kafka's names. Raises InvalidConfigError that lists the faults."""
        values: dict[str, Any] = {}
        faults: list[str] = []
        for name, text in overrides.items():
            try:
                setting = stream_setting(name)
                values[setting.field] = setting.parse(text)
            except InvalidConfigError as error:
                faults.append(str(error))
            if len(faults) == FAULTS_MAX:
                break
        if faults:
            raise InvalidConfigError("; ".join(faults))
        return replace(self, **values)


@dataclass(frozen=True, slots=True)
class StreamSetting:
    """One row of the table."""

    name: str
    """Kafka's name, or one under `logboom.` where Kafka has none."""
    field: str
    """The attribute of StreamConfig."""
    type: SettingType
    doc: str
    rule: Callable[[str], Value]
    """Parses a text. Its ValueError carries the end of a sentence that says what is expected."""

    def parse(self, text: str) -> Value:
        """Parse a value. Raises InvalidConfigError that names the setting."""
        try:
            return self.rule(text)
        except ValueError as error:
            raise InvalidConfigError(f"{self.name}={text!r}: expected {error}") from None

    def text(self, config: StreamConfig) -> str:
        """The value in a config as Kafka writes it."""
        value: Value = getattr(config, self.field)
        return str(value)

    @property
    def default(self) -> str:
        """The table's own value, as text."""
        return self.text(DEFAULT_STREAM_CONFIG)


def _number(lowest: int, highest: int) -> Callable[[str], int]:
    expected = f"a whole number from {lowest} to {highest}"

    def rule(text: str) -> int:
        digits = text.strip().removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and lowest <= int(text) <= highest):
            raise ValueError(expected)
        return int(text)

    return rule


def _one_of(kinds: Iterable[str], why: str = "") -> Callable[[str], str]:
    known = {str(kind): kind for kind in kinds}
    expected = " or ".join(known) + why

    def rule(text: str) -> str:
        try:
            return known[text.strip()]
        except KeyError:
            raise ValueError(expected) from None

    return rule


DEFAULT_STREAM_CONFIG: Final = StreamConfig()

STREAM_SETTINGS: Final[tuple[StreamSetting, ...]] = (
    StreamSetting(
        "segment.bytes",
        "segment_bytes",
        SettingType.INT,
        "A segment file is closed and a new one begun before it grows beyond this many bytes.",
        _number(16 * KIB, INT32_MAX),
    ),
    StreamSetting(
        "segment.ms",
        "segment_ms",
        SettingType.LONG,
        "A segment file is closed and a new one begun once its first record is this many milliseconds old.",
        _number(1, INT64_MAX),
    ),
    StreamSetting(
        "max.message.bytes",
        "max_message_bytes",
        SettingType.INT,
        "The largest record batch that is taken, in bytes, as it was sent (compressed where it is).",
        _number(0, INT32_MAX),
    ),
    StreamSetting(
        "message.timestamp.type",
        "message_timestamp_type",
        SettingType.STRING,
        "CreateTime keeps the producer's timestamps; LogAppendTime puts the broker's in their place.",
        _one_of(TimestampType),
    ),
    StreamSetting(
        "message.timestamp.before.max.ms",
        "message_timestamp_before_max_ms",
        SettingType.LONG,
        "With CreateTime: how far before the broker's clock the timestamp of a record may lie, in milliseconds; a "
        "batch with an older one is refused.",
        _number(0, INT64_MAX),
    ),
    StreamSetting(
        "message.timestamp.after.max.ms",
        "message_timestamp_after_max_ms",
        SettingType.LONG,
        "With CreateTime: how far ahead of the broker's clock the timestamp of a record may lie, in milliseconds; a "
        "batch with a later one is refused.",
        _number(0, INT64_MAX),
    ),
    StreamSetting(
        "min.insync.replicas",
        "min_insync_replicas",
        SettingType.INT,
        "How many in-sync replicas there must be for a produce request with acks=all to be taken.",
        _number(1, INT32_MAX),
    ),
    StreamSetting(
        "logboom.flush",
        "flush",
        SettingType.STRING,
        "commit acknowledges after fsync: nothing acked is lost with the power. none acknowledges once the operating "
        "system has the bytes: nothing acked is lost with the process, the last seconds may be with the power.",
        _one_of(Flush),
    ),
    StreamSetting(
        "cleanup.policy",
        "cleanup_policy",
        SettingType.LIST,
        "What becomes of old segments. Only delete is known: they go once a limit of retention is passed, and stay "
        "where none is set.",
        _one_of(["delete"]),
    ),
    StreamSetting(
        "retention.ms",
        "retention_ms",
        SettingType.LONG,
        "How long records are kept, at least, in milliseconds by their own timestamps; -1 keeps them for ever. Whole "
        "segments are deleted, once their newest record is older.",
        _number(-1, INT64_MAX),
    ),
    StreamSetting(
        "retention.bytes",
        "retention_bytes",
        SettingType.LONG,
        "How many bytes each partition keeps, at least; -1 sets no limit. Whole segments are deleted, oldest first, "
        "while what is left is at least as much.",
        _number(-1, INT64_MAX),
    ),
    StreamSetting(
        "logboom.retention.messages",
        "retention_messages",
        SettingType.LONG,
        "How many records each partition keeps, at least; -1 sets no limit. Whole segments are deleted, oldest first, "
        "while what is left is at least as many.",
        _number(-1, INT64_MAX),
    ),
    StreamSetting(
        "compression.type",
        "compression_type",
        SettingType.STRING,
        "The codec batches are stored with. Only producer is known: batches stay as they were sent.",
        _one_of(["producer"]),
    ),
)

_BY_NAME: Final = {setting.name: setting for setting in STREAM_SETTINGS}
assert [field.name for field in fields(StreamConfig)] == [setting.field for setting in STREAM_SETTINGS]


def stream_setting(name: str) -> StreamSetting:
    """The row of a name. Raises InvalidConfigError that suggests the most similar name."""
    try:
        return _BY_NAME[name]
    except KeyError:
        nearest = get_close_matches(name, _BY_NAME, 1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(_BY_NAME)}"
        raise InvalidConfigError(f"unknown setting {name!r} ({hint})") from None
