"""One group: its members, its state and what can be derived from them. It makes no decisions and has no effects.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance ...
    PreparingRebalance -> Empty      when all members left
    Empty -> Dead                    while the group is being deleted

Invariants: the leader is a member whenever there are members; `awaiting_join_count` counts the members with a join
token; every instance id maps to a member that carries it. Source: ClassicGroup of Apache Kafka.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from logboom.groups.errors import FencedInstanceIdError, UnknownMemberError
from logboom.groups.events import JoinedMember, Protocol, Token
from logboom.groups.protocol import CONSUMER_PROTOCOL_TYPE, subscribed_streams
from logboom.groups.records import CommittedOffset, StoredGroup, StoredMember, decode_group_value

GENERATION_MAX: Final = (1 << 31) - 1
"""The largest value on the wire. No group gets there by itself, but a damaged record can hold it."""


class State(Enum):
    """The values are the names in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_NEXT_STATES = {
    State.EMPTY: {State.PREPARING_REBALANCE, State.DEAD},
    State.PREPARING_REBALANCE: {State.COMPLETING_REBALANCE, State.EMPTY},
    State.COMPLETING_REBALANCE: {State.STABLE, State.PREPARING_REBALANCE},
    State.STABLE: {State.PREPARING_REBALANCE},
    State.DEAD: {State.EMPTY},
}


@dataclass(slots=True, kw_only=True)
class Member:
    """One member. Its tokens are its requests that wait for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False
    """Its first JoinGroup is not answered yet: it has no id to send heartbeats with, and another timeout applies."""

    @property
    def is_static(self) -> bool:
        """Carries a group.instance.id (KIP-345)."""
        return self.instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for a protocol; empty where it does not support it."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """The candidate that comes first in its list."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)


class Group:
    """One group of the coordinator; lives as long as it has members, offsets or a record in the log."""

    def __init__(self, group_id: str, now_wall_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.state_timestamp_ms = now_wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        self.pending_joins: set[str] = set()
        """Ids given out with MEMBER_ID_REQUIRED with which no member has joined yet."""
        self.pending_syncs: set[str] = set()
        self.awaiting_join_count = 0
        self.new_member_added = False
        """A member joined during the initial delay, which may therefore be extended."""
        self.assigned_generation = -1
        """The generation for which the leader sent an assignment; a second one for it is ignored."""
        self.stored: bytes | None = None
        """The group's metadata as last committed to the log; often of an older generation."""
        self.subscribed: frozenset[str] | None = None
        """Streams that the members read; None where the subscriptions cannot be parsed."""
        self.offsets: dict[tuple[str, int], CommittedOffset] = {}
        self.pending_offsets: Counter[tuple[str, int]] = Counter()
        """How many commits of an offset are being written."""
        self.writes_in_flight = 0
        self._supported: Counter[str] = Counter()

    # --- state --------------------------------------------------------------------------------------------------

    def move_to(self, state: State, now_wall_ms: int) -> None:
        """Change state along the arrows of the module's docstring."""
        assert state in _NEXT_STATES[self.state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_wall_ms

    def is_in(self, *states: State) -> bool:
        """Whether the state is one of these."""
        return self.state in states

    @property
    def is_disposable(self) -> bool:
        """Whether the group holds nothing that would be lost with it."""
        return (
            self.state is State.EMPTY
            and self.stored is None
            and not (self.members or self.pending_joins or self.offsets or self.writes_in_flight)
            and not self.pending_offsets
        )

    # --- members ------------------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member whose protocols were checked."""
        assert member.member_id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self.static_ids
            self.static_ids[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._supported.update(protocol.name for protocol in member.protocols)
        self.awaiting_join_count += member.join_token is not None
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id. Its requests have been answered."""
        member = self.members.pop(member_id, None)
        if member is not None:
            assert member.join_token is None, "answer first"
            assert member.sync_token is None, "answer first"
            self._supported.subtract(protocol.name for protocol in member.protocols)
            self._supported += Counter()
            if member.instance_id is not None:
                del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def rename_static(self, instance_id: str, new_id: str) -> Member:
        """Give the member of an instance id a new member id. Its requests under the old one have been answered."""
        old_id = self.static_ids[instance_id]
        member = self.members.pop(old_id)
        assert member.join_token is None, "answer first"
        assert member.sync_token is None, "answer first"
        member.member_id = new_id
        self.members[new_id] = member
        self.static_ids[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(new_id)
        return member

    def update(
        self, member: Member, protocols: tuple[Protocol, ...], session_timeout_ms: int, rebalance_timeout_ms: int
    ) -> None:
        """Take the protocols and timeouts with which a member joins again."""
        self._supported.subtract(protocol.name for protocol in member.protocols)
        self._supported += Counter()
        self._supported.update(protocol.name for protocol in protocols)
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def await_join(self, member: Member, token: Token) -> Token | None:
        """Hold a join until the join phase ends; the token of an earlier join that this one replaces."""
        replaced, member.join_token = member.join_token, token
        self.awaiting_join_count += replaced is None
        return replaced

    def take_join_token(self, member: Member) -> Token | None:
        """The held join of a member, which is to be answered now."""
        token, member.join_token = member.join_token, None
        self.awaiting_join_count -= token is not None
        return token

    def validate(self, member_id: str, instance_id: str | None) -> Member:
        """The member that sent a request. Raises UnknownMemberError or FencedInstanceIdError."""
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is None:
                raise UnknownMemberError(f"no member with instance id {instance_id!r}")
            if known != member_id:
                raise FencedInstanceIdError(f"instance id {instance_id!r} belongs to another member now")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberError(f"no member {member_id!r}")
        return member

    @property
    def all_joined(self) -> bool:
        """Whether every member has joined and no pending id is left."""
        return len(self.members) == self.awaiting_join_count and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members' rebalance timeouts."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Make a member that joined the leader; False where none did."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_token is None:
            joined = next((member for member in self.members.values() if member.join_token is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    # --- protocols ----------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols could be in this group."""
        if self.state is State.EMPTY:
            return protocol_type != "" and any(True for _ in names)
        if not self.members:
            # All members left during the rebalance, so only the protocol type must match.
            return protocol_type == self.protocol_type and any(True for _ in names)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(self._supported[name] == count for name in names)

    def select_protocol(self) -> str:
        """Of the protocols that all members support, the one with most votes; the leader's order breaks ties."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        assert self.leader is not None
        leader_order = [protocol.name for protocol in self.members[self.leader].protocols]
        return max(votes, key=lambda name: (votes[name], -leader_order.index(name)))

    def start_generation(self, now_wall_ms: int) -> None:
        """Begin the next generation, with the present members."""
        self.generation = self.generation + 1 if self.generation < GENERATION_MAX else 0
        self.pending_syncs.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.learn_subscription()
        self.move_to(State.COMPLETING_REBALANCE if self.members else State.EMPTY, now_wall_ms)

    def learn_subscription(self) -> None:
        """Parse which streams the members read, where all of them use the consumer protocol."""
        self.subscribed = None
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return
        streams: set[str] = set()
        for member in self.members.values():
            named = subscribed_streams(member.metadata(self.protocol_name))
            if named is None:
                return
            streams |= named
        self.subscribed = frozenset(streams)

    def is_subscribed_to(self, stream: str) -> bool:
        """Whether the group reads a stream; a consumer group with unreadable subscriptions counts as reading all."""
        if self.subscribed is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return stream in self.subscribed

    def member_list(self) -> tuple[JoinedMember, ...]:
        """All members, for the answer to the leader's join."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    # --- the log ------------------------------------------------------------------------------------------------

    def as_stored(self, assignments: dict[str, bytes]) -> StoredGroup:
        """This generation with these assignments, as the value of a record."""
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                StoredMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )

    def restore(self, value: bytes | None) -> None:
        """Take the state in a record's value, None for a tombstone. Offsets stay. Raises GroupRecordError unchanged."""
        stored = StoredGroup("", 0, None, None, -1, ()) if value is None else decode_group_value(value)
        self.members.clear()
        self.static_ids.clear()
        self._supported.clear()
        self.leader = None
        self.stored = value
        for member in stored.members:
            self.add(_restored(member, stored.protocol or ""), stored.protocol_type)
        if stored.leader in self.members:
            self.leader = stored.leader
        self.protocol_type = stored.protocol_type or None
        self.protocol_name = stored.protocol
        self.generation = stored.generation
        self.state = State.STABLE if stored.members else State.EMPTY
        self.state_timestamp_ms = stored.state_timestamp_ms
        self.learn_subscription()


def _restored(member: StoredMember, protocol: str) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=(Protocol(protocol, member.subscription),),
        assignment=member.assignment,
    )
