"""Settings of a stream that are not fields of `StreamConfig`: what acts on one reads it by name, or nothing does.

Holds the row of the table of settings, too, whichever kind it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logboom.base.errors import InvalidConfigError
from logboom.base.units import MIB, MINUTE_MS
from logboom.metadata.setting_values import (
    INT32_MAX,
    INT64_MAX,
    Flag,
    Number,
    SettingType,
    ThrottledReplicas,
    Unit,
    Value,
    ValueRule,
)

_MS: Final = Number(0, INT64_MAX, Unit.MS)


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
    """The attribute of StreamConfig; None if the setting is none of its."""
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

    def text_in_force(self, config: object, overrides: Mapping[str, str]) -> str:
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


_NO_TIERS: Final = "Has no effect: there is no tiered storage, and all records are local."

_UNCLEAN: Final = "unclean.leader.election.enable"

READ_BY_NAME: Final = (
    StreamSetting(
        _UNCLEAN,
        None,
        Flag(),
        False,
        "Whether the longest log among the others leads a partition whose in-sync and eligible replicas are down "
        "for 10 s, although acked records may be lost. Otherwise it waits for them, or for a command (ElectLeaders).",
        acts=True,
    ),
    StreamSetting(
        "leader.replication.throttled.replicas",
        None,
        ThrottledReplicas(),
        "",
        "The leaders that send to replicas that are not in sync no faster than leader.replication.throttled.rate of "
        "their broker, together.",
        acts=True,
    ),
    StreamSetting(
        "follower.replication.throttled.replicas",
        None,
        ThrottledReplicas(),
        "",
        "The replicas that copy, while they are not in sync, no faster than follower.replication.throttled.rate of "
        "their broker, together.",
        acts=True,
    ),
)
"""Settings without a default of the broker, which whoever acts on them reads in the stream's own."""
THROTTLED_REPLICAS: Final = frozenset(one.name for one in READ_BY_NAME if isinstance(one.rule, ThrottledReplicas))

WITHOUT_EFFECT: Final = (
    StreamSetting(
        "file.delete.delay.ms",
        None,
        _MS,
        MINUTE_MS,
        "Has no effect: a deleted segment is removed from its directory at once, and running reads keep its file.",
    ),
    StreamSetting(
        "preallocate",
        None,
        Flag(),
        False,
        "Has no effect: space is always reserved behind the end of every segment, as much as it already has, up to "
        "16 MiB.",
    ),
    StreamSetting(
        "segment.index.bytes",
        None,
        Number(4, INT32_MAX, Unit.BYTES),
        10 * MIB,
        "Has no effect: an index is as large as its entries, and no segment ends because its index is full.",
    ),
    StreamSetting(
        "remote.storage.enable",
        None,
        Flag(only=False, because="there is no tiered storage"),
        False,
        "Whether old segments move to another storage: only false, since there is no tiered storage.",
    ),
    StreamSetting("remote.log.copy.disable", None, Flag(), False, _NO_TIERS),
    StreamSetting("remote.log.delete.on.disable", None, Flag(), False, _NO_TIERS),
    StreamSetting("local.retention.ms", None, Number(-2, INT64_MAX, Unit.MS), -2, _NO_TIERS),
    StreamSetting("local.retention.bytes", None, Number(-2, INT64_MAX, Unit.BYTES), -2, _NO_TIERS),
)

REFUSED: Final[Mapping[str, str]] = {
    "internal.segment.bytes": "Kafka has it for its own tests: here segment.bytes accepts 16 KiB and more",
    "message.downconversion.enable": "Kafka 4.0 removed it: batches are never converted to older formats",
    "message.format.version": "Kafka 4.0 removed it: batches are always stored in format 2",
    "message.timestamp.difference.max.ms": (
        "Kafka 4.0 removed it: use message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
}
"""Names that Kafka has or had, and why they are refused."""


def takes_unclean_leaders(overrides: Mapping[str, str]) -> bool:
    """Whether a stream with these own settings would lose records rather than wait."""
    return overrides.get(_UNCLEAN, "").strip().lower() == "true"
