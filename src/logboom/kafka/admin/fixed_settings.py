"""Settings of Kafka's brokers that cannot be other here, for tools that read them to learn what a cluster can do.

Described as read-only; changing one is refused with the same sentence.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

_ONE_BROKER: Final = "One broker has the only replica of each partition."
_NO_TIERS: Final = "There is no tiered storage."


class FixedSetting(NamedTuple):
    """A setting with one value."""

    value: str
    is_boolean: bool
    why: str


def _flag(value: bool, why: str) -> FixedSetting:
    return FixedSetting(str(value).lower(), True, why)


FIXED_SETTINGS: Final[Mapping[str, FixedSetting]] = {
    "auto.leader.rebalance.enable": _flag(False, _ONE_BROKER),
    "controlled.shutdown.enable": _flag(True, "A stop answers all that was taken and closes every log cleanly."),
    "default.replication.factor": FixedSetting("1", False, _ONE_BROKER),
    "delete.topic.enable": _flag(True, "Streams can be deleted, always."),
    "group.coordinator.rebalance.protocols": FixedSetting("classic", False, "Classic groups are served, no others."),
    "log.cleaner.enable": _flag(True, "Streams with cleanup.policy=compact are compacted, always."),
    "log.cleaner.threads": FixedSetting("1", False, "One log is compacted at a time."),
    "log.index.size.max.bytes": FixedSetting("10485760", False, "No segment ends because its index is full."),
    "log.preallocate": _flag(False, "Room is reserved ahead of the end of every log, up to 16 MiB."),
    "log.segment.delete.delay.ms": FixedSetting("0", False, "A deleted segment leaves its directory at once."),
    "offsets.topic.replication.factor": FixedSetting("1", False, _ONE_BROKER),
    "remote.log.storage.system.enable": _flag(False, _NO_TIERS),
    "unclean.leader.election.enable": _flag(False, _ONE_BROKER),
}
