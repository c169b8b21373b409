"""The coordinator of all groups of one partition of `__consumer_offsets`: events in, effects out.

Life: created empty; `replay` for every record of its partition; `start`; then `step` for each event until `Resign`.
The coordinator performs nothing itself. The caller performs the effects in their order, and reports the outcome of each
Persist as a Persisted event, in the order in which the writes became durable.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from logboom.base.errors import LogboomError
from logboom.groups.context import CoordinatorContext
from logboom.groups.errors import GroupRecordError
from logboom.groups.events import (
    Commit,
    DeleteGroup,
    DeleteOffsets,
    Effect,
    Event,
    Heartbeat,
    Join,
    Leave,
    Now,
    Persisted,
    Request,
    RequestBody,
    Resign,
    Resumed,
    StreamsDeleted,
    Sync,
    Tick,
    Token,
)
from logboom.groups.group import Group, State
from logboom.groups.limits import GroupLimits
from logboom.groups.membership import Membership
from logboom.groups.offsets import Offsets
from logboom.groups.rebalance import HEARTBEAT, JOIN, SYNC, Rebalance
from logboom.groups.records import (
    CommittedOffset,
    GroupKey,
    LogRecord,
    OffsetKey,
    decode_key,
    decode_offset_value,
)

_EXPIRE = "expire"


class GroupOverview(NamedTuple):
    """A group in the answer to ListGroups."""

    group_id: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member in the answer to DescribeGroups."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group in the answer to DescribeGroups. Protocol, metadata and assignments are set while it is stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


class Coordinator:
    """See the module."""

    def __init__(self, limits: GroupLimits) -> None:
        self._context = CoordinatorContext(limits)
        self._rebalance = Rebalance(self._context)
        self._membership = Membership(self._context, self._rebalance)
        self._offsets = Offsets(self._context, self._rebalance)

    def configure(self, limits: GroupLimits) -> None:
        """Apply other limits from now on; what exceeds them already is not removed."""
        self._context.limits = limits

    # --- loading ------------------------------------------------------------------------------------------------

    def replay(self, record: LogRecord, now: Now) -> None:
        """Apply one record of the log. Raises GroupRecordError for an unreadable one, which changes nothing."""
        key = decode_key(record.key)
        if isinstance(key, OffsetKey):
            value = None if record.value is None else decode_offset_value(record.value)
            self._replay_offset(key, value, now)
        elif isinstance(key, GroupKey):
            self._replay_group(key, record.value, now)
        if key is not None:
            self._forget_if_empty(key.group_id)

    def _replay_offset(self, key: OffsetKey, value: CommittedOffset | None, now: Now) -> None:
        place = (key.stream, key.partition)
        group = self._group_to_replay(key.group_id, now)
        if value is None:
            group.offsets.pop(place, None)
        else:
            group.offsets[place] = value

    def _replay_group(self, key: GroupKey, value: bytes | None, now: Now) -> None:
        try:
            self._group_to_replay(key.group_id, now).restore(value)
        except GroupRecordError:
            self._forget_if_empty(key.group_id)
            raise

    def _group_to_replay(self, group_id: str, now: Now) -> Group:
        return self._context.groups.setdefault(group_id, Group(group_id, now.wall_ms))

    def _forget_if_empty(self, group_id: str) -> None:
        if self._context.groups[group_id].is_disposable:
            del self._context.groups[group_id]

    def start(self, now: Now) -> list[Effect]:
        """All records were replayed: begin to serve. Sessions start now; members keep their generation."""
        self._context.begin(now)
        for group in list(self._context.groups.values()):
            for member in group.members.values():
                self._rebalance.expect_heartbeat(group, member)
            if len(group.members) > self._context.limits.group_members_max:
                self._rebalance.prepare(group, "the group has more members than allowed")
        self._schedule_expiry()
        return self._context.finish()

    # --- events -------------------------------------------------------------------------------------------------

    def step(self, event: Event, now: Now) -> list[Effect]:
        """Process an event: the effects to perform."""
        self._context.begin(now)
        match event:
            case Request(token, body):
                self._request(token, body)
            case Persisted(ticket, error):
                self._context.persisted(ticket, error)
            case Tick():
                self._tick()
            case StreamsDeleted(streams):
                self._offsets.streams_deleted(streams)
            case Resign():
                self._resign()
            case Resumed():
                self._resume()
        return self._context.finish()

    def _request(self, token: Token, body: RequestBody) -> None:
        match body:
            case Heartbeat():
                self._membership.heartbeat(token, body)
            case Commit():
                self._offsets.commit(token, body)
            case Join():
                self._membership.join(token, body)
            case Sync():
                self._membership.sync(token, body)
            case Leave():
                self._membership.leave(token, body)
            case DeleteOffsets():
                self._offsets.delete_offsets(token, body)
            case DeleteGroup():
                self._offsets.delete_group(token, body)

    def _tick(self) -> None:
        now_ms = self._context.now.monotonic_ms
        while (key := self._context.timers.pop_due(now_ms)) is not None:
            match key:
                case (what, group_id, member_id) if what == HEARTBEAT:
                    if (group := self._find(group_id)) is not None:
                        self._membership.session_ended(group, member_id)
                case (what, group_id) if what == JOIN:
                    if (group := self._find(group_id)) is not None:
                        self._rebalance.join_timed_out(group)
                case (what, group_id) if what == SYNC:
                    if (group := self._find(group_id)) is not None:
                        self._rebalance.sync_timed_out(group)
                case _:
                    self._offsets.expire()
                    self._schedule_expiry()

    def _find(self, group_id: str) -> Group | None:
        try:
            return self._context.find(group_id)
        except LogboomError:
            return None

    def _schedule_expiry(self) -> None:
        self._context.set_timer(self._context.limits.offsets_retention_check_ms, _EXPIRE)

    def _resign(self) -> None:
        for group in self._context.groups.values():
            self._rebalance.resign(group)
        self._context.timers.clear()

    def _resume(self) -> None:
        for group in self._context.groups.values():
            self._rebalance.restart_timers(group)
        self._tick()  # what has no member to give time to is due

    def deadline_ms(self) -> int | None:
        """When the next Tick is due, on the monotonic clock; None while no timer runs."""
        return self._context.timers.next_ms()

    # --- queries: committed state only --------------------------------------------------------------------------

    def overview(self) -> list[GroupOverview]:
        """All groups."""
        return [
            GroupOverview(group.group_id, group.protocol_type or "", group.state.value)
            for group in self._context.groups.values()
        ]

    def usage(self) -> tuple[int, int]:
        """The number of groups, and of members in the largest group."""
        groups = self._context.groups
        return len(groups), max((len(group.members) for group in groups.values()), default=0)

    def describe(self, group_id: str) -> GroupDescription | None:
        """One group; None where there is none."""
        group = self._context.groups.get(group_id)
        if group is None:
            return None
        stable = group.is_in(State.STABLE)
        return GroupDescription(
            group_id=group_id,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_name=(group.protocol_name or "") if stable else "",
            members=tuple(
                MemberDescription(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata(group.protocol_name) if stable else b"",
                    assignment=member.assignment if stable else b"",
                )
                for member in group.members.values()
            ),
        )

    def committed(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """All offsets a group has committed."""
        group = self._context.groups.get(group_id)
        return {} if group is None or group.is_in(State.DEAD) else group.offsets

    def streams(self) -> frozenset[str]:
        """Streams for which any group has offsets."""
        return frozenset(stream for group in self._context.groups.values() for stream, _ in group.offsets)
