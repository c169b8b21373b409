"""What Raft nodes store and send to one another: entries, snapshots, hard state, membership, messages.

Names and numbers follow etcd's raftpb, so that a message can be compared with etcd's field by field. All of it is
immutable; a message that is forwarded is a copy with another addressee. `codec` turns messages into bytes.
"""

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Final, NewType

import msgspec

NodeId = NewType("NodeId", int)
"""A member of the group, from 1 to 2^64 - 3. It is given to one voter with one log and never again (etcd: "an ID
represents a unique node in a cluster for all time"); 0 stands for nobody."""

Term = NewType("Term", int)
"""The count of elections. At most one leader exists in a term (thesis, section 3.2)."""

Index = NewType("Index", int)
"""Position of an entry in the log. The first entry has index 1; 0 is the empty log."""

NOBODY: Final = NodeId(0)
LOCAL_APPEND_THREAD: Final = NodeId(2**64 - 1)
"""The addressee of what this node must write to its log, with asynchronous storage writes."""

LOCAL_APPLY_THREAD: Final = NodeId(2**64 - 2)
"""The addressee of what this node's state machine must apply, with asynchronous storage writes."""

NO_LIMIT: Final = 2**64 - 1
TERM_MAX: Final = Term(2**31 - 1)
"""Files keep the term of an entry as a leader epoch, which has 32 bits with a sign (Kafka's record batch)."""


class EntryType(IntEnum):
    """What the data of an entry are."""

    NORMAL = 0
    """The state machine's own; empty for the entry with which a leader begins its term."""

    CONF_CHANGE = 1
    """A change of one member, encoded `ConfChange`."""

    CONF_CHANGE_V2 = 2
    """A change of several members, or the end of a joint configuration, encoded `ConfChangeV2` (empty: the end)."""


class EntryId(msgspec.Struct, frozen=True, array_like=True):
    """Identifies an entry: no two leaders share a term, and none writes two entries at one index."""

    term: Term
    index: Index


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One entry of the log."""

    term: Term
    index: Index
    type: EntryType = EntryType.NORMAL
    data: bytes = b""

    @property
    def id(self) -> EntryId:
        """Its term and index."""
        return EntryId(self.term, self.index)


class ConfState(msgspec.Struct, frozen=True, array_like=True):
    """A configuration as it is stored with a snapshot.

    While `voters_outgoing` has members the configuration is joint: a decision needs a majority of both sets (thesis,
    section 4.3).
    """

    voters: tuple[NodeId, ...] = ()
    learners: tuple[NodeId, ...] = ()
    voters_outgoing: tuple[NodeId, ...] = ()
    learners_next: tuple[NodeId, ...] = ()
    """Outgoing voters that become learners once the joint configuration ends."""

    auto_leave: bool = False
    """Whether the leader ends the joint configuration by itself."""

    def in_order(self) -> "ConfState":
        """The same configuration with each tuple sorted."""
        return ConfState(
            tuple(sorted(self.voters)),
            tuple(sorted(self.learners)),
            tuple(sorted(self.voters_outgoing)),
            tuple(sorted(self.learners_next)),
            self.auto_leave,
        )


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state machine after the entry at `index`, and the configuration that held then."""

    index: Index = Index(0)
    term: Term = Term(0)
    conf_state: ConfState = ConfState()
    data: bytes = b""

    @property
    def is_empty(self) -> bool:
        """Whether it stands for no snapshot at all."""
        return self.index == 0


class HardState(msgspec.Struct, frozen=True, array_like=True):
    """What must be durable before a message that follows from it is sent (thesis, section 3.8)."""

    term: Term = Term(0)
    vote: NodeId = NOBODY
    commit: Index = Index(0)
    """Need not be durable for safety; with it a restart goes on where the node was."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was stored so far."""
        return self == HardState()


class Role(Enum):
    """What a node is in its term. The values are etcd's names."""

    FOLLOWER = "StateFollower"
    CANDIDATE = "StateCandidate"
    LEADER = "StateLeader"
    PRE_CANDIDATE = "StatePreCandidate"


class SoftState(msgspec.Struct, frozen=True):
    """What need not be stored: who leads, as far as this node knows, and its own role."""

    lead: NodeId
    role: Role


class ConfChangeType(IntEnum):
    """What happens to one member."""

    ADD_NODE = 0
    REMOVE_NODE = 1
    UPDATE_NODE = 2
    """Nothing changes but what the context says; the core ignores it."""

    ADD_LEARNER_NODE = 3


class ConfChangeTransition(IntEnum):
    """How a change of the configuration takes effect."""

    AUTO = 0
    """At once for a single change; otherwise through a joint configuration that is left automatically."""

    JOINT_IMPLICIT = 1
    """Through a joint configuration that the leader leaves by itself."""

    JOINT_EXPLICIT = 2
    """Through a joint configuration that stays until an empty change is proposed."""


class ConfChangeSingle(msgspec.Struct, frozen=True, array_like=True):
    """A change of one member. Node 0 is ignored: an application cancels a change by it."""

    type: ConfChangeType
    node_id: NodeId


class ConfChangeV2(msgspec.Struct, frozen=True, array_like=True):
    """Changes that take effect together. No changes and the transition AUTO: leave the joint configuration."""

    changes: tuple[ConfChangeSingle, ...] = ()
    transition: ConfChangeTransition = ConfChangeTransition.AUTO
    context: bytes = b""
    """The application's own, for example who stands behind a node id and where it listens."""

    @property
    def leaves_joint(self) -> bool:
        """Whether it ends a joint configuration."""
        return self.transition is ConfChangeTransition.AUTO and not self.changes

    @property
    def enters_joint(self) -> bool:
        """Whether it goes through a joint configuration. Liberal, as in etcd: any two changes do."""
        return self.transition is not ConfChangeTransition.AUTO or len(self.changes) > 1

    @property
    def auto_leave(self) -> bool:
        """Whether the joint configuration that it enters is left by the leader itself."""
        return self.transition is not ConfChangeTransition.JOINT_EXPLICIT


class ConfChange(msgspec.Struct, frozen=True, array_like=True):
    """A change of one member, which overlapping majorities make safe without a joint configuration (section 4.1)."""

    change: ConfChangeSingle
    context: bytes = b""

    @property
    def as_v2(self) -> ConfChangeV2:
        """The same change in the general form."""
        return ConfChangeV2((self.change,), ConfChangeTransition.AUTO, self.context)


class MessageType(IntEnum):
    """Numbers of raftpb. What each one does is documented where it is handled."""

    HUP = 0
    BEAT = 1
    PROP = 2
    APP = 3
    APP_RESP = 4
    VOTE = 5
    VOTE_RESP = 6
    SNAP = 7
    HEARTBEAT = 8
    HEARTBEAT_RESP = 9
    UNREACHABLE = 10
    SNAP_STATUS = 11
    CHECK_QUORUM = 12
    TRANSFER_LEADER = 13
    TIMEOUT_NOW = 14
    READ_INDEX = 15
    READ_INDEX_RESP = 16
    PRE_VOTE = 17
    PRE_VOTE_RESP = 18
    STORAGE_APPEND = 19
    STORAGE_APPEND_RESP = 20
    STORAGE_APPLY = 21
    STORAGE_APPLY_RESP = 22
    FORGET_LEADER = 23


LOCAL_MESSAGES: Final = frozenset(
    {
        MessageType.HUP,
        MessageType.BEAT,
        MessageType.UNREACHABLE,
        MessageType.SNAP_STATUS,
        MessageType.CHECK_QUORUM,
        MessageType.STORAGE_APPEND,
        MessageType.STORAGE_APPEND_RESP,
        MessageType.STORAGE_APPLY,
        MessageType.STORAGE_APPLY_RESP,
    }
)
"""What a node says to itself; it never comes from another one."""

RESPONSES: Final = frozenset(
    {
        MessageType.APP_RESP,
        MessageType.VOTE_RESP,
        MessageType.HEARTBEAT_RESP,
        MessageType.UNREACHABLE,
        MessageType.READ_INDEX_RESP,
        MessageType.PRE_VOTE_RESP,
        MessageType.STORAGE_APPEND_RESP,
        MessageType.STORAGE_APPLY_RESP,
    }
)
"""What answers something; from a node that is no member it answers nothing that was asked."""

SENT_AFTER_APPEND: Final = frozenset({MessageType.APP_RESP, MessageType.VOTE_RESP, MessageType.PRE_VOTE_RESP})
"""Promises about this node's log or vote: they wait until all they rest on is durable (thesis, section 3.8)."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. Which fields mean something depends on its type; the rest have their defaults."""

    type: MessageType
    to: NodeId = NOBODY
    sender: NodeId = NOBODY
    term: Term = Term(0)
    """0 for messages that belong to no term: local ones, and proposals and reads on their way to the leader."""

    log_term: Term = Term(0)
    """APP: the term of the entry before `entries`. Votes: of the candidate's last entry."""

    index: Index = Index(0)
    """APP: the index of the entry before `entries`. APP_RESP: what is acknowledged, or was rejected."""

    entries: tuple[Entry, ...] = ()
    commit: Index = Index(0)
    vote: NodeId = NOBODY
    snapshot: Snapshot | None = None
    reject: bool = False
    reject_hint: Index = Index(0)
    """APP_RESP: a guess where the two logs may still agree."""

    context: bytes = b""
    responses: "tuple[Message, ...]" = ()
    """STORAGE_APPEND and STORAGE_APPLY: what to deliver once the write is durable, or the entries are applied."""


def entry_size(entry: Entry) -> int:
    """Bytes of an entry in etcd's encoding (protocol buffers), by which message and apply limits are counted."""
    size = 2 + _varint_size(entry.term) + _varint_size(entry.index)
    if entry.type is not EntryType.NORMAL:
        size += 2
    if entry.data:
        size += 1 + _varint_size(len(entry.data)) + len(entry.data)
    return size


def entries_size(entries: tuple[Entry, ...]) -> int:
    """Bytes of all entries, by `entry_size`."""
    return sum(map(entry_size, entries))


def payload_size(entries: tuple[Entry, ...]) -> int:
    """Bytes of the data alone: what bounds the uncommitted tail. An empty entry counts nothing."""
    return sum(len(entry.data) for entry in entries)


def limit_size(entries: Iterable[Entry], max_bytes: int) -> tuple[Entry, ...]:
    """The longest prefix of at most `max_bytes`, but never less than one entry where there is one."""
    taken: list[Entry] = []
    size = 0
    for entry in entries:
        size += entry_size(entry)
        if size > max_bytes and taken:
            break
        taken.append(entry)
    return tuple(taken)


def _varint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
