"""What goes into the coordinator and what comes out of it: plain values, no behaviour.

A request that expects an answer comes as `Asked(token, body)` and is answered by exactly one `Reply(token, ...)`, now
or after later events. What must be durable first comes out as `Persist(ticket, ...)`; its fate comes back as
`Persisted(ticket, ...)`.
"""

from dataclasses import dataclass
from typing import NamedTuple, NewType, TypeAlias

from logboom.base.errors import LogboomError
from logboom.groups.records import LogRecord

Token = NewType("Token", int)
"""Names a request that waits for its answer."""

Ticket = NewType("Ticket", int)
"""Names a write that waits for its fate."""

NO_MEMBER = ""
"""Member id of one who has none yet."""

NO_GENERATION = -1


class Now(NamedTuple):
    """The moment of an event. Sessions run on the clock that never jumps, stored timestamps on the wall's."""

    monotonic_ms: int
    wall_ms: int


class Protocol(NamedTuple):
    """An assignment protocol a member can do, with its metadata for it (opaque)."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup. The answer waits for the whole group."""

    group_id: str
    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    member_id_required: bool
    """A newcomer is first given an id and must join again with it (KIP-394, v4 and later)."""
    can_skip_assignment: bool
    """A static leader that returns may be told not to assign anew (KIP-814, v9 and later)."""
    fresh_id: str = ""
    """What makes a new member's id unique; the shell rolls the dice."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup. The answer waits for the leader's assignment to be stored."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Heartbeat."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class Leaver(NamedTuple):
    """One who leaves: by member id, by instance id alone (an administrator removes it), or by both."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """LeaveGroup."""

    group_id: str
    leavers: tuple[Leaver, ...]


class OffsetToCommit(NamedTuple):
    """One offset of a commit."""

    stream: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """OffsetCommit; generation -1 with no member is a simple consumer or a tool."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = -1
    """How long these offsets stay, where the committer says so (v2 to v4)."""
    tells_missing_group: bool = False
    """The client knows GROUP_ID_NOT_FOUND (v9 and later); older ones are told ILLEGAL_GENERATION."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """OffsetDelete."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """One group of DeleteGroups."""

    group_id: str


RequestBody: TypeAlias = Join | Sync | Heartbeat | Leave | Commit | DeleteOffsets | DeleteGroup


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that must be answered once."""

    token: Token
    body: RequestBody


@dataclass(frozen=True, slots=True)
class Persisted:
    """The fate of a write: committed, or the error that stopped it."""

    ticket: Ticket
    error: LogboomError | None


@dataclass(frozen=True, slots=True)
class StreamsDeleted:
    """These streams are gone, and with them all offsets committed for them."""

    streams: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due at `Coordinator.deadline_ms` or later."""


@dataclass(frozen=True, slots=True)
class Resign:
    """This broker stops coordinating: everyone who waits is sent to look for another coordinator."""


Event: TypeAlias = Asked | Persisted | StreamsDeleted | Tick | Resign


# --- answers ----------------------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    """A member as its leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """Answer to Join."""

    error: LogboomError | None = None
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    """For the leader alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """Answer to Sync."""

    error: LogboomError | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """Answer to Heartbeat."""

    error: LogboomError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveReply:
    """Answer to Leave: what became of each leaver, in the order asked."""

    error: LogboomError | None = None
    results: tuple[LogboomError | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReply:
    """Answer to Commit: one result for each offset, in the order asked."""

    results: tuple[LogboomError | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsReply:
    """Answer to DeleteOffsets: an error of the whole, or one result for each partition, in the order asked."""

    error: LogboomError | None = None
    results: tuple[LogboomError | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupReply:
    """Answer to DeleteGroup."""

    error: LogboomError | None = None


Answer: TypeAlias = (
    JoinReply | SyncReply | HeartbeatReply | LeaveReply | CommitReply | DeleteOffsetsReply | DeleteGroupReply
)


# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request."""

    token: Token
    answer: Answer


@dataclass(frozen=True, slots=True)
class Persist:
    """Append these records as one batch and give back its fate, in the order of the effects."""

    ticket: Ticket
    records: tuple[LogRecord, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """Something an operator wants to read in the log."""

    text: str
    group_id: str
    details: tuple[tuple[str, str | int], ...] = ()


Effect: TypeAlias = Reply | Persist | Note
