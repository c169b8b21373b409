"""Settings of Kafka's brokers that cannot be other here, for tools that read them to learn what a cluster can do.

Described as read-only; changing one is refused with the same sentence. Setting one back to its default is not: that
changes nothing, and kafka-reassign-partitions does it to throttles at its end, whether it has set them or not.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

_NO_TIERS: Final = "There is no tiered storage."
_INT64_MAX: Final = str(2**63 - 1)


class FixedSetting(NamedTuple):
    """A setting with one value."""

    value: str
    is_boolean: bool
    why: str


def _flag(value: bool, why: str) -> FixedSetting:
    return FixedSetting(str(value).lower(), True, why)


FIXED_SETTINGS: Final[Mapping[str, FixedSetting]] = {
    "auto.leader.rebalance.enable": _flag(True, "Preferred leaders lead again once they are in sync, always."),
    "controlled.shutdown.enable": _flag(True, "A stop answers all that was taken and closes every log cleanly."),
    "delete.topic.enable": _flag(True, "Streams can be deleted, always."),
    "group.coordinator.rebalance.protocols": FixedSetting("classic", False, "Classic groups are served, no others."),
    "log.cleaner.enable": _flag(True, "Streams with cleanup.policy=compact are compacted, always."),
    "log.cleaner.threads": FixedSetting("1", False, "One log is compacted at a time."),
    "log.index.size.max.bytes": FixedSetting("10485760", False, "No segment ends because its index is full."),
    "log.preallocate": _flag(False, "Room is reserved ahead of the end of every log, up to 16 MiB."),
    "log.segment.delete.delay.ms": FixedSetting("0", False, "A deleted segment leaves its directory at once."),
    "remote.log.storage.system.enable": _flag(False, _NO_TIERS),
    "replica.alter.log.dirs.io.max.bytes.per.second": FixedSetting(_INT64_MAX, False, "There is one log dir."),
    "unclean.leader.election.enable": _flag(
        False, "Who may lack records leads by a command (ElectLeaders), or where its stream has this setting."
    ),
}
