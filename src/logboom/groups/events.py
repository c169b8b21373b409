"""The coordinator's input (events) and output (effects): plain values without behaviour.

A client's request comes as `Request(token, body)` and is answered by exactly one `Reply(token, ...)`, at once or after
later events. Records that must be durable first are put out as `Persist(ticket, ...)`; the outcome of the write comes
back as `Persisted(ticket, ...)`.
"""

from dataclasses import dataclass
from typing import NamedTuple, NewType, TypeAlias

from logboom.base.errors import LogboomError
from logboom.groups.records import LogRecord

Token = NewType("Token", int)
"""Identifies a request until it is answered."""

Ticket = NewType("Ticket", int)
"""Identifies a write until its outcome is known."""

NO_MEMBER = ""
"""Member id in the first join of a member, which has none yet."""

NO_GENERATION = -1


class Now(NamedTuple):
    """The time of an event. Sessions are measured with the monotonic clock; stored timestamps are wall time."""

    monotonic_ms: int
    wall_ms: int
    settled_ms: int
    """Wall time as far as it can be believed: offsets expire by it. Never later than `wall_ms`, so that what a clock
    stamped that was set right meanwhile is not old at once."""


class Protocol(NamedTuple):
    """An assignment protocol that a member supports, with the member's opaque metadata for it."""

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
    """A new member is first given an id and must join again with it (KIP-394, v4 and later)."""
    can_skip_assignment: bool
    """A static leader that returns can be told to skip the assignment (KIP-814, v9 and later)."""
    unique_id: str = ""
    """Makes the id of a new member unique. The shell draws it, because this core has no random numbers."""
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
    """A leaving member: named by member id, by instance id alone (removed by an administrator), or by both."""

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
    """OffsetCommit; generation -1 without a member id comes from a consumer without a group protocol, or a tool."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = -1
    """How long these offsets are kept; -1 follows the broker's setting (the field exists in v2 to v4)."""
    tells_missing_group: bool = False
    """The client knows GROUP_ID_NOT_FOUND (v9 and later); older clients are answered ILLEGAL_GENERATION."""


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
class Request:
    """A request of a client, to be answered exactly once."""

    token: Token
    body: RequestBody


@dataclass(frozen=True, slots=True)
class Persisted:
    """The outcome of a write: committed, or the error."""

    ticket: Ticket
    error: LogboomError | None


@dataclass(frozen=True, slots=True)
class StreamsDeleted:
    """These streams were deleted, so all offsets committed for them are to be deleted too."""

    streams: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; to be sent at `Coordinator.deadline_ms` or later."""


@dataclass(frozen=True, slots=True)
class Resign:
    """This broker stops coordinating: pending requests are answered NOT_COORDINATOR."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """This broker may serve again, after a time in which it refused requests, heartbeats too: sessions and the phases
    of rebalances start over."""


Event: TypeAlias = Request | Persisted | StreamsDeleted | Tick | Resign | Resumed


# --- answers ----------------------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    """A member in the answer to the leader's join."""

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
    """All members; empty for every member but the leader."""


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
    """Answer to Leave: one result per leaver, in the order of the request."""

    error: LogboomError | None = None
    results: tuple[LogboomError | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReply:
    """Answer to Commit: one result per offset, in the order of the request."""

    results: tuple[LogboomError | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsReply:
    """Answer to DeleteOffsets: one error for the whole request, or one result per partition, in its order."""

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
    """Append these records as one batch. Outcomes are reported in the order of the effects."""

    ticket: Ticket
    records: tuple[LogRecord, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the broker's log."""

    text: str
    group_id: str
    details: tuple[tuple[str, str | int], ...] = ()


Effect: TypeAlias = Reply | Persist | Note
