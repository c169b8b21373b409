"""Committed offsets of groups: commit, delete, expire. An offset counts as committed once its write is durable.

Deletions cover pending commits too: a commit that is written before a tombstone must not survive it in the log.
Sources: OffsetMetadataManager of Apache Kafka 4.0; KIP-211 (expiry), KIP-496 (OffsetDelete).
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from logboom.base.errors import LogboomError
from logboom.groups.context import CoordinatorContext, OnStored
from logboom.groups.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToStreamError,
    IllegalGenerationError,
    InvalidCommitOffsetSizeError,
    InvalidGroupIdError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberError,
    metadata_store_error,
    offset_store_error,
)
from logboom.groups.events import (
    Commit,
    CommitReply,
    DeleteGroup,
    DeleteGroupReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    OffsetToCommit,
    Token,
)
from logboom.groups.group import Group, State
from logboom.groups.protocol import CONSUMER_PROTOCOL_TYPE
from logboom.groups.rebalance import Rebalance
from logboom.groups.records import (
    NO_EXPIRY,
    CommittedOffset,
    LogRecord,
    OffsetKey,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)

_INT64_MAX: Final = (1 << 63) - 1

_StreamPartition = tuple[str, int]
"""A stream's name and a partition's index, for which an offset is committed."""


class Offsets:
    """Serves requests on offsets. One per coordinator."""

    def __init__(self, context: CoordinatorContext, rebalance: Rebalance) -> None:
        self._context = context
        self._rebalance = rebalance

    # --- commit -------------------------------------------------------------------------------------------------

    def commit(self, token: Token, commit: Commit) -> None:
        """OffsetCommit."""
        try:
            group = self._group_for_commit(commit)
            self._validate(group, commit)
        except LogboomError as error:
            self._context.reply(token, CommitReply(results=tuple(error for _ in commit.offsets)))
            return
        member = group.members.get(commit.member_id)
        if member is not None and group.is_in(State.STABLE, State.PREPARING_REBALANCE):
            self._rebalance.expect_heartbeat(group, member)
        results = self._check_offsets(group, commit.offsets)
        accepted = [offset for offset, error in zip(commit.offsets, results, strict=True) if error is None]
        if not accepted:
            self._context.reply(token, CommitReply(results=tuple(results)))
            return
        values = {(item.stream, item.partition): self._committed_offset(item, commit) for item in accepted}
        records = tuple(self._record(group, partition, value) for partition, value in values.items())
        group.pending_offsets.update(values.keys())
        self._context.persist(group, records, partial(self._committed, group, token, values, results))

    def _group_for_commit(self, commit: Commit) -> Group:
        if len(commit.group_id.encode()) > self._context.limits.name_bytes_max:
            raise InvalidGroupIdError(f"a group id has at most {self._context.limits.name_bytes_max} bytes")
        if commit.generation < 0:
            return self._context.find_or_create(commit.group_id)
        try:
            return self._context.find(commit.group_id)
        except GroupIdNotFoundError:
            if commit.tells_missing_group:
                raise
            # Before OffsetCommit v9 (KIP-848) there is no better error for a group that is gone.
            raise IllegalGenerationError(f"no group {commit.group_id!r}") from None

    @staticmethod
    def _validate(group: Group, commit: Commit) -> None:
        if commit.generation < 0 and group.is_in(State.EMPTY):
            return  # a consumer that assigns its partitions itself ("simple"), or an administrator
        if commit.generation < 0 and not commit.member_id and commit.instance_id is None:
            raise UnknownMemberError("the group has members; only they commit its offsets")
        group.validate(commit.member_id, commit.instance_id)
        if commit.generation != group.generation:
            raise IllegalGenerationError(f"generation {commit.generation} is not the current one")
        if group.is_in(State.COMPLETING_REBALANCE):
            raise RebalanceInProgressError("the group is being rebalanced")

    def _check_offsets(self, group: Group, offsets: Iterable[OffsetToCommit]) -> list[LogboomError | None]:
        limits = self._context.limits
        remaining = limits.group_offsets_max - len(group.offsets) - len(group.pending_offsets)
        results: list[LogboomError | None] = []
        for item in offsets:
            partition = (item.stream, item.partition)
            new = partition not in group.offsets and partition not in group.pending_offsets
            if len(item.metadata.encode()) > limits.offset_metadata_bytes_max:
                text = f"metadata of an offset has at most {limits.offset_metadata_bytes_max} bytes"
                results.append(OffsetMetadataTooLargeError(text, limit="broker.groups.offset_metadata_max_bytes"))
            elif new and remaining <= 0:
                text = f"a group has offsets of at most {limits.group_offsets_max} partitions"
                results.append(InvalidCommitOffsetSizeError(text, limit="broker.groups.group_offsets_max"))
            else:
                remaining -= new
                results.append(None)
        return results

    def _committed_offset(self, item: OffsetToCommit, commit: Commit) -> CommittedOffset:
        now_ms = self._context.now.wall_ms
        return CommittedOffset(
            offset=item.offset,
            leader_epoch=item.leader_epoch,
            metadata=item.metadata,
            commit_timestamp_ms=now_ms,
            expire_timestamp_ms=min(now_ms + commit.retention_ms, _INT64_MAX)
            if commit.retention_ms >= 0
            else NO_EXPIRY,
        )

    @staticmethod
    def _record(group: Group, partition: _StreamPartition, value: CommittedOffset | None) -> LogRecord:
        key = encode_offset_key(OffsetKey(group.group_id, *partition))
        return LogRecord(key, None if value is None else encode_offset_value(value))

    def _committed(
        self,
        group: Group,
        token: Token,
        values: dict[_StreamPartition, CommittedOffset],
        results: list[LogboomError | None],
        error: LogboomError | None,
    ) -> None:
        for partition in values:
            group.pending_offsets[partition] -= 1
            if group.pending_offsets[partition] == 0:
                del group.pending_offsets[partition]
        if error is None:
            group.offsets.update(values)
            self._context.reply(token, CommitReply(results=tuple(results)))
        else:
            failure = offset_store_error(error)
            self._context.reply(token, CommitReply(results=tuple(result or failure for result in results)))

    # --- delete -------------------------------------------------------------------------------------------------

    def delete_offsets(self, token: Token, request: DeleteOffsets) -> None:
        """OffsetDelete. Members of another protocol and streams that are read are errors of the reply."""
        try:
            if not request.group_id:
                raise InvalidGroupIdError("the group id is empty")
            group = self._context.find(request.group_id)
            if group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
                raise NonEmptyGroupError("the group has members, and the streams that they read are unknown")
        except LogboomError as error:
            self._context.reply(token, DeleteOffsetsReply(error=error))
            return
        results: list[LogboomError | None] = [
            GroupSubscribedToStreamError(f"the group reads {stream!r}") if group.is_subscribed_to(stream) else None
            for stream, _ in request.partitions
        ]
        accepted = {partition for partition, error in zip(request.partitions, results, strict=True) if error is None}
        self._delete_offsets(group, accepted, partial(self._offsets_deleted, token, results))

    def _offsets_deleted(self, token: Token, results: list[LogboomError | None], error: LogboomError | None) -> None:
        failure = None if error is None else metadata_store_error(error)
        self._context.reply(token, DeleteOffsetsReply(results=tuple(result or failure for result in results)))

    def _delete_offsets(self, group: Group, partitions: set[_StreamPartition], done: OnStored) -> None:
        """Delete those of these offsets that exist; `done` is called at once where none does."""
        found = sorted(
            partition for partition in partitions if partition in group.offsets or partition in group.pending_offsets
        )
        if not found:
            done(None)
            return

        def stored(error: LogboomError | None) -> None:
            if error is None:
                for partition in found:
                    group.offsets.pop(partition, None)
            done(error)

        self._context.persist(group, tuple(self._record(group, partition, None) for partition in found), stored)

    def delete_group(self, token: Token, request: DeleteGroup) -> None:
        """One group of DeleteGroups. A group with members is an error of the reply."""
        try:
            if not request.group_id:
                raise InvalidGroupIdError("the group id is empty")
            group = self._context.find(request.group_id)
            if not group.is_in(State.EMPTY):
                raise NonEmptyGroupError(f"group {request.group_id!r} has members")
        except LogboomError as error:
            self._context.reply(token, DeleteGroupReply(error=error))
            return
        self._delete(group, partial(self._group_deleted, token))

    def _group_deleted(self, token: Token, error: LogboomError | None) -> None:
        failure = None if error is None else metadata_store_error(error)
        self._context.reply(token, DeleteGroupReply(error=failure))

    def _delete(self, group: Group, done: OnStored) -> None:
        """Write tombstones for all records of a group. It is Dead meanwhile, and Empty again where the write fails."""
        for member_id in sorted(group.pending_joins):
            self._rebalance.expel(group, member_id, UnknownMemberError("the group is being deleted"))
        group.move_to(State.DEAD, self._context.now.wall_ms)
        partitions = sorted(group.offsets.keys() | group.pending_offsets.keys())
        records = [self._record(group, partition, None) for partition in partitions]
        records.append(LogRecord(encode_group_key(group.group_id), None))

        def stored(error: LogboomError | None) -> None:
            if error is None:
                del self._context.groups[group.group_id]
                self._context.note("group deleted", group)
            else:
                group.move_to(State.EMPTY, self._context.now.wall_ms)
            done(error)

        self._context.persist(group, tuple(records), stored)

    # --- time and streams ---------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Delete offsets that were unused for the retention time, and groups that have nothing left (KIP-211)."""
        for group in list(self._context.groups.values()):
            if group.is_in(State.DEAD):
                continue
            expired = {
                partition for partition, value in group.offsets.items() if self._is_expired(group, partition, value)
            }
            none_left = len(expired) == len(group.offsets) and not group.pending_offsets
            # Pending joins and writes would find their group gone: it is looked at again at the next check.
            if none_left and group.is_in(State.EMPTY) and not group.pending_joins and not group.writes_in_flight:
                self._delete(group, lambda _error: None)
            elif expired:
                self._context.note("offsets expired", group, count=len(expired))
                self._delete_offsets(group, expired, lambda _error: None)

    def _is_expired(self, group: Group, partition: _StreamPartition, value: CommittedOffset) -> bool:
        if partition in group.pending_offsets or group.is_subscribed_to(partition[0]):
            return False
        now_ms, retention_ms = self._context.now.settled_ms, self._context.limits.offsets_retention_ms
        if group.protocol_type is None:
            since_ms = value.commit_timestamp_ms  # a consumer without a group protocol: its last use is its last commit
        elif group.is_in(State.EMPTY):
            # Records of Kafka before 2.1 do not say since when the group is empty.
            since_ms = group.state_timestamp_ms if group.state_timestamp_ms >= 0 else value.commit_timestamp_ms
        elif group.is_in(State.STABLE) and group.subscribed is not None:
            # The members read other streams now: this offset is unused since its last commit.
            since_ms = value.commit_timestamp_ms
        else:
            return False
        if value.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= value.expire_timestamp_ms
        return now_ms - since_ms >= retention_ms

    def streams_deleted(self, streams: frozenset[str]) -> None:
        """Delete offsets of deleted streams: they would be wrong for a later stream of the same name."""
        for group in list(self._context.groups.values()):
            if group.is_in(State.DEAD):
                continue
            partitions = {
                partition
                for partition in group.offsets.keys() | group.pending_offsets.keys()
                if partition[0] in streams
            }
            if partitions:
                self._context.note("offsets of deleted streams removed", group, count=len(partitions))
                self._delete_offsets(group, partitions, lambda _error: None)
