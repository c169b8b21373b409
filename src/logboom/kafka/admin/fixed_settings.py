"""Settings of Kafka's brokers that have only one value here, for tools that read them to learn what a cluster supports.

They are described as read-only, and an attempt to change one is refused with the text in its description. Resetting one
to its default is accepted: that changes nothing, and kafka-reassign-partitions does it to throttles at its end, whether
it has set them or not.
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
    "auto.leader.rebalance.enable": _flag(True, "Preferred leaders always lead again once they are in sync."),
    "controlled.shutdown.enable": _flag(True, "A stop answers all accepted requests and closes every log cleanly."),
    "delete.topic.enable": _flag(True, "Streams can always be deleted."),
    "group.coordinator.rebalance.protocols": FixedSetting("classic", False, "Only classic groups are supported."),
    "log.cleaner.enable": _flag(True, "Streams with cleanup.policy=compact are always compacted."),
    "log.cleaner.threads": FixedSetting("1", False, "One log is compacted at a time."),
    "log.index.size.max.bytes": FixedSetting("10485760", False, "No segment ends because its index is full."),
    "log.preallocate": _flag(False, "Space is reserved behind the end of every log, up to 16 MiB."),
    "log.segment.delete.delay.ms": FixedSetting("0", False, "A deleted segment leaves its directory at once."),
    "remote.log.storage.system.enable": _flag(False, _NO_TIERS),
    "replica.alter.log.dirs.io.max.bytes.per.second": FixedSetting(_INT64_MAX, False, "There is one log dir."),
    "unclean.leader.election.enable": _flag(
        False,
        "A replica that may lack records leads only after a command (ElectLeaders), or if its stream has this setting.",
    ),
}
