"""All limits and periods of the coordinator."""

from dataclasses import dataclass

from logboom.base.units import DAY_MS, KIB, MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Defaults are Kafka's where Kafka has the setting."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    """How long an empty group waits for more members before its first rebalance (KIP-134)."""
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """How long a new member's JoinGroup may wait; it has no id yet to send heartbeats with."""
    groups_max: int = 10_000
    """Groups in one partition of the offsets stream."""
    group_members_max: int = 1_000
    group_offsets_max: int = 100_000
    """Partitions for which one group may have committed offsets."""
    name_bytes_max: int = 1 * KIB
    """Length of group ids, instance ids, protocol types and names, and client ids."""
    member_metadata_bytes_max: int = 256 * KIB
    """Metadata of one member, under all its protocols together."""
    offset_metadata_bytes_max: int = 4 * KIB
    offsets_retention_ms: int = 7 * DAY_MS
    offsets_retention_check_ms: int = 10 * MINUTE_MS
