"""The settings of consumer groups. Knows names, defaults and ranges; the cores take them as `GroupLimits`."""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from logboom.base.dynamic import Dynamic, Static
from logboom.base.settings import DurationMs, Settings, SizeBytes
from logboom.base.units import DAY_MS, KIB, MIB, MINUTE_MS, SECOND_MS
from logboom.groups import GroupLimits

_INT16_MAX: Final = 2**15 - 1
_INT32_MAX: Final = 2**31 - 1


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
    """The most that one member may say of itself when it joins: its subscription, under all its protocols."""
    offset_metadata_max_bytes: Annotated[
        SizeBytes, Field(ge=0, le=_INT16_MAX), Dynamic("offset.metadata.max.bytes")
    ] = 4 * KIB
    """The longest note that may be committed with an offset."""
    offsets_retention_ms: Annotated[DurationMs, Field(ge=1), Dynamic()] = 7 * DAY_MS
    """How long offsets outlive their last use by a living group (`offsets.retention.minutes`)."""
    offsets_retention_check_ms: Annotated[DurationMs, Field(ge=1), Dynamic("offsets.retention.check.interval.ms")] = (
        10 * MINUTE_MS
    )
    """How often offsets beyond their retention are looked for."""
    # Eight is enough to spread coordinators over a cluster, and few enough that a flush on one node, which syncs each
    # partition that was written, stays cheap however many groups commit. Groups are placed by hash, so it stays.
    offsets_partitions: Annotated[int, Field(ge=1, le=1_000), Static("offsets.topic.num.partitions")] = 8
    """Partitions of `__consumer_offsets`; fixed once it was created (`offsets.topic.num.partitions`)."""
    offsets_rewrite_records_min: Annotated[int, Field(ge=1), Dynamic()] = 50_000
    """A partition of `__consumer_offsets` with so many records, and four times as many as are alive, is written anew
    with the living ones alone."""
    offsets_max_message_bytes: Annotated[SizeBytes, Field(ge=64 * KIB, le=256 * MIB)] = 16 * MIB
    """The largest record of `__consumer_offsets`: all members of a group with their assignments must fit in it. Fixed
    once it was created."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.session_timeout_min_ms > self.session_timeout_max_ms:
            raise ValueError("session_timeout_min_ms must not be above session_timeout_max_ms")
        return self

    def as_limits(self) -> GroupLimits:
        """The same as the core knows it."""
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
