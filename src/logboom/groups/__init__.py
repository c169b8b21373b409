"""Row 2, pure: classic consumer groups and their offsets. Events in, effects out; no loop, socket, clock or log.

One Coordinator holds all groups of one partition of `__consumer_offsets`. `broker.groups.shard` drives it:

    coordinator.replay(record)              for every record of the partition, once, before anything else
    effects = coordinator.start(now)        it serves from now on
    effects = coordinator.step(event, now)  for each request, each outcome of a write, each tick

and performs the effects in their order. There are three:

    Reply(token, answer)       answer a client's request: exactly one per request, perhaps many events later
    Persist(ticket, records)   append these records as one batch. The outcome comes back as Persisted(ticket, error),
                               and until then the coordinator acts as if nothing had been written
    Note(text, ...)            a line for the log

Time is an argument: `now` with each event, and `deadline_ms` says when the next Tick is due. The coordinator therefore
runs the same in a test, which plays a day of sessions in milliseconds.

A request is checked in `membership` (JoinGroup, SyncGroup, Heartbeat, LeaveGroup) or `offsets` (commit, delete,
expire). What several of them cause, the steps of a rebalance, is in `rebalance`:

    Empty or Stable --join--> PreparingRebalance: every member must send JoinGroup; the answers are held
        --all joined, or timeout--> CompletingRebalance: the joins are answered; the leader computes an assignment, the
            others' SyncGroup requests are held
        --the leader's SyncGroup, once its record is committed--> Stable: the syncs are answered

`group` has the members and the table of states, `context` what the parts share, `records` Kafka's own record format, so
that Kafka's tools read the stream. The rules are those of GroupMetadataManager and OffsetMetadataManager of Apache
Kafka 4.0, checked in the same order, because clients rely on which of several errors comes first.

What it must not know: how records are stored, which broker leads what, the wire format of requests, authentication.
"""

from logboom.groups.coordinator import Coordinator, GroupDescription, GroupOverview, MemberDescription
from logboom.groups.events import (
    Commit,
    CommitReply,
    DeleteGroup,
    DeleteGroupReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    Effect,
    Event,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinedMember,
    JoinReply,
    Leave,
    Leaver,
    LeaveReply,
    Note,
    Now,
    OffsetToCommit,
    Persist,
    Persisted,
    Protocol,
    Reply,
    Request,
    RequestBody,
    Resign,
    Resumed,
    StreamsDeleted,
    Sync,
    SyncReply,
    Tick,
    Ticket,
    Token,
)
from logboom.groups.limits import GroupLimits
from logboom.groups.placement import partition_of_group
from logboom.groups.records import CommittedOffset, LogRecord

__all__ = [
    "Commit",
    "CommitReply",
    "CommittedOffset",
    "Coordinator",
    "DeleteGroup",
    "DeleteGroupReply",
    "DeleteOffsets",
    "DeleteOffsetsReply",
    "Effect",
    "Event",
    "GroupDescription",
    "GroupLimits",
    "GroupOverview",
    "Heartbeat",
    "HeartbeatReply",
    "Join",
    "JoinReply",
    "JoinedMember",
    "Leave",
    "LeaveReply",
    "Leaver",
    "LogRecord",
    "MemberDescription",
    "Note",
    "Now",
    "OffsetToCommit",
    "Persist",
    "Persisted",
    "Protocol",
    "Reply",
    "Request",
    "RequestBody",
    "Resign",
    "Resumed",
    "StreamsDeleted",
    "Sync",
    "SyncReply",
    "Tick",
    "Ticket",
    "Token",
    "partition_of_group",
]
