"""Consumer groups as the front ends call them: finds the shard of a group and passes the request on.

Groups and their offsets are stored in the internal stream `__consumer_offsets`, each group in the partition that Kafka
would choose. Whoever leads that partition coordinates the group; `shards` has those of this broker. Requests of members
never raise: a shard that is elsewhere, loads, failed or resigned is an error in the answer.

Life: created with the broker; `start` once its partitions are open (shards load in the background); `let_go` and
`follow` with every change of the metadata; `stop` before the partitions close.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError
from logboom.broker.config import BrokerConfig, GroupsConfig
from logboom.broker.groups.offsets_stream import OFFSETS_STREAM, stream_settings
from logboom.broker.groups.shards import CoordinatorStanding, Shards
from logboom.broker.internal_streams import InternalStreams
from logboom.broker.runtime import Runtime
from logboom.groups import (
    Commit,
    CommitReply,
    CommittedOffset,
    DeleteGroup,
    DeleteGroupReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    GroupDescription,
    GroupOverview,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    RequestBody,
    Sync,
    SyncReply,
)
from logboom.groups.errors import CoordinatorLoadInProgressError
from logboom.metadata import ImageDelta, Stream

__all__ = ["OFFSETS_STREAM", "GroupService"]


class GroupService:
    """See the module. Everything is called on the broker's loop."""

    def __init__(
        self,
        config: Current[BrokerConfig],
        streams: InternalStreams,
        standing: CoordinatorStanding,
        *,
        runtime: Runtime,
        log: FilteringBoundLogger,
    ) -> None:
        self._config = config
        self._streams = streams
        self._runtime = runtime
        self._shards = Shards(config, streams, standing, runtime=runtime, log=log)

    # --- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to load what this broker coordinates.

        A broker that is alone creates the stream of offsets where there is none, and gives it the settings that are
        configured now. In a cluster the first group creates it: then it has replicas on the brokers that there are.
        """
        if len(self._streams.metadata.image.brokers) <= 1:
            await self._make_stream()
        self._shards.follow(self._stream)

    async def offsets_stream(self) -> Stream:
        """The stream that groups are kept in; created where there is none. Raises what the creation raises."""
        return self._stream or await self._make_stream()

    async def _make_stream(self) -> Stream:
        config = self._config.now.groups
        return await self._streams.ensure(
            OFFSETS_STREAM,
            partitions=config.offsets_partitions,
            replication_factor=config.offsets_replication_factor,
            config=stream_settings(config),
        )

    @property
    def _stream(self) -> Stream | None:
        return self._streams.find(OFFSETS_STREAM)

    def let_go(self, delta: ImageDelta) -> None:
        """Resign what this broker does not lead any more. Before its partitions take other roles: nothing is answered
        from memory from then on."""
        self._shards.let_go(delta.after.by_name.get(OFFSETS_STREAM))

    def follow(self, delta: ImageDelta) -> None:
        """Coordinate what this broker leads now, and drop offsets of streams that are gone. Once its partitions have
        taken their roles."""
        self._shards.follow(delta.after.by_name.get(OFFSETS_STREAM))
        if delta.deleted:
            self._shards.streams_deleted(frozenset(stream.name for stream in delta.deleted))

    def lease_changed(self, *, held: bool) -> None:
        """This broker has lost its lease, or has one again."""
        self._shards.lease_changed(held=held)

    def configure(self, config: GroupsConfig) -> None:
        """Apply other settings; those of the stream itself are applied at the start."""
        self._shards.configure(config)

    async def loaded(self) -> None:
        """Return when every shard has loaded, or failed to."""
        await self._shards.loaded()

    def resign(self) -> None:
        """Answer held requests NOT_COORDINATOR and refuse new ones. Requests with a pending write are still answered.

        Called before a front end waits for its last answers, because a JoinGroup can be held for minutes.
        """
        self._shards.resign()

    async def stop(self) -> None:
        """Resign, if that was not done, and wait for pending writes."""
        self.resign()
        await self._shards.drain()

    # --- members ------------------------------------------------------------------------------------------------

    async def join(self, join: Join) -> JoinReply:
        """JoinGroup; answered when the whole group has joined."""
        try:
            named = replace(join, unique_id=str(self._runtime.ids.uuid()))
            reply: JoinReply = await self._shards.find(join.group_id).submit(named)
        except LogboomError as error:
            return JoinReply(error=error, member_id=join.member_id)
        return reply

    async def sync(self, sync: Sync) -> SyncReply:
        """SyncGroup; answered when the leader's assignment is committed."""
        try:
            reply: SyncReply = await self._shards.find(sync.group_id).submit(sync)
        except LogboomError as error:
            return SyncReply(error=error)
        return reply

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        """Heartbeat; accepted unchecked while groups are being loaded, as in Kafka."""
        try:
            reply: HeartbeatReply = await self._shards.find(heartbeat.group_id).submit(heartbeat)
        except CoordinatorLoadInProgressError:
            return HeartbeatReply()
        except LogboomError as error:
            return HeartbeatReply(error=error)
        return reply

    async def leave(self, leave: Leave) -> LeaveReply:
        """LeaveGroup."""
        try:
            reply: LeaveReply = await self._shards.find(leave.group_id).submit(leave)
        except LogboomError as error:
            return LeaveReply(error=error)
        return reply

    # --- offsets and groups -------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> CommitReply:
        """OffsetCommit; answered when the offsets are committed, or with an error after a time limit: then they may
        still be."""
        try:
            reply: CommitReply = await self._in_time(commit.group_id, commit)
        except LogboomError as error:
            return CommitReply(results=tuple(error for _ in commit.offsets))
        return reply

    async def delete_offsets(self, request: DeleteOffsets) -> DeleteOffsetsReply:
        """OffsetDelete."""
        try:
            reply: DeleteOffsetsReply = await self._in_time(request.group_id, request)
        except LogboomError as error:
            return DeleteOffsetsReply(error=error)
        return reply

    async def delete_group(self, request: DeleteGroup) -> DeleteGroupReply:
        """One group of DeleteGroups."""
        try:
            reply: DeleteGroupReply = await self._in_time(request.group_id, request)
        except LogboomError as error:
            return DeleteGroupReply(error=error)
        return reply

    async def _in_time(self, group_id: str, body: RequestBody) -> Any:
        """The answer to a request that waits for nothing but its write."""
        timeout_ms = self._config.now.groups.offsets_commit_timeout_ms
        return await self._shards.find(group_id).submit_in_time(body, timeout_ms / 1_000)

    # --- queries ------------------------------------------------------------------------------------------------

    def committed(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """Committed offsets of a group, by stream and partition. Raises GroupError while the shard does not serve."""
        return self._shards.find(group_id).coordinator.committed(group_id)

    def describe(self, group_id: str) -> GroupDescription | None:
        """A group; None where there is none. Raises GroupError while the shard does not serve."""
        return self._shards.find(group_id).coordinator.describe(group_id)

    def overview(self) -> list[GroupOverview]:
        """All groups that this broker coordinates. Raises GroupError while any of its shards does not serve: clients
        would take a partial list for all."""
        return [group for shard in self._shards.all() for group in shard.coordinator.overview()]

    def usage(self) -> tuple[int, int]:
        """The most groups in any partition of the offsets stream, and the most members in any group."""
        sizes = [shard.coordinator.usage() for shard in self._shards.serving()]
        return max((groups for groups, _ in sizes), default=0), max((members for _, members in sizes), default=0)

    def states(self) -> Mapping[str, int]:
        """The number of loaded groups by state."""
        return Counter(group.state for shard in self._shards.serving() for group in shard.coordinator.overview())
