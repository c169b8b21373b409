"""Consumer groups as the doors call them: finds the shard of a group and passes the request on.

Groups and their offsets are stored in the internal stream `__consumer_offsets`, each group in the partition that Kafka
would choose; every partition has one shard. Requests of members never raise: a shard that loads, failed or resigned is
an error in the answer.

Life: created with the broker; `start` once its partitions are open (shards load in the background); `stop` before they
close.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError
from logboom.broker.config import BrokerConfig, GroupsConfig
from logboom.broker.groups.shard import STALL_GRACE_S, GroupShard
from logboom.broker.partition.replica import Partition
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
    StreamsDeleted,
    Sync,
    SyncReply,
    partition_of_group,
)
from logboom.groups.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError
from logboom.metadata import Stream

OFFSETS_STREAM: Final = "__consumer_offsets"


class EnsureStream(Protocol):
    """Gives the internal stream of a name with these settings; creates it where there is none."""

    async def __call__(self, name: str, *, partitions: int, config: Mapping[str, str]) -> Stream: ...


class GroupService:
    """See the module. Everything is called on the broker's loop."""

    def __init__(
        self,
        config: Current[BrokerConfig],
        *,
        find_partition: Callable[[str, int], Partition],
        ensure_stream: EnsureStream,
        stream_names: Callable[[], Collection[str]],
        runtime: Runtime,
        log: FilteringBoundLogger,
    ) -> None:
        """`find_partition` raises LogboomError where there is no such partition; `stream_names` gives all there are."""
        self._config = config
        self._find_partition = find_partition
        self._ensure_stream = ensure_stream
        self._stream_names = stream_names
        self._runtime = runtime
        self._log = log
        self._shards: list[GroupShard] = []
        self._loading: list[asyncio.Task[None]] = []
        self._stall_logged_until_s = 0.0

    # --- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Create the stream of offsets where there is none, and start loading the shards."""
        config = self._config.now.groups
        stream = await self.offsets_stream()
        self._shards = [
            GroupShard(
                partial(self._find_partition, OFFSETS_STREAM, index),
                config.as_limits(),
                clock=self._runtime.clock,
                log=self._log.bind(offsets_partition=index),
                max_decompressed_bytes=self._config.now.max_decompressed_bytes,
                on_stall=self._log_stall,
            )
            for index in range(stream.partitions)
        ]
        self._loading = [asyncio.create_task(shard.load(self._existing_streams)) for shard in self._shards]

    async def offsets_stream(self) -> Stream:
        """The stream that groups are kept in; created where there is none."""
        config = self._config.now.groups
        settings = {
            "cleanup.policy": "compact",
            "logboom.flush": "commit",
            "max.message.bytes": str(config.offsets_max_message_bytes),
            "message.timestamp.type": "CreateTime",
            # A segment that is written to is not compacted, and is loaded whole: smaller ones make a quick start.
            "segment.bytes": str(config.offsets_segment_bytes),
        }
        return await self._ensure_stream(OFFSETS_STREAM, partitions=config.offsets_partitions, config=settings)

    def configure(self, config: GroupsConfig) -> None:
        """Apply other settings; those of the stream itself are applied at the start."""
        for shard in self._shards:
            shard.configure(config.as_limits())

    def _log_stall(self, late_ms: int) -> None:
        """Every shard notices; one of them tells it."""
        now_s = self._runtime.clock.monotonic_s()
        if now_s >= self._stall_logged_until_s:
            self._stall_logged_until_s = now_s + STALL_GRACE_S
            self._log.warning("the event loop was blocked", late_ms=late_ms)

    def _existing_streams(self) -> frozenset[str]:
        return frozenset(self._stream_names())

    async def loaded(self) -> None:
        """Return when every shard has loaded, or failed to."""
        await asyncio.gather(*self._loading)

    def resign(self) -> None:
        """Answer held requests NOT_COORDINATOR and refuse new ones. Requests with a pending write are still answered.

        Called before a door waits for its last answers, because a JoinGroup can be held for minutes.
        """
        for shard in self._shards:
            shard.resign()

    async def stop(self) -> None:
        """Resign, if that was not done, and wait for pending writes."""
        for task in self._loading:
            task.cancel()
        await asyncio.gather(*self._loading, return_exceptions=True)
        self.resign()
        for shard in self._shards:
            await shard.drain()

    def streams_deleted(self, names: frozenset[str]) -> None:
        """Delete all offsets of deleted streams."""
        for shard in self._shards:
            shard.process_if_serving(StreamsDeleted(names))

    def _shard(self, group_id: str) -> GroupShard:
        if not self._shards:
            raise CoordinatorNotAvailableError("groups are not served yet")
        return self._shards[partition_of_group(group_id, len(self._shards))]

    # --- members ------------------------------------------------------------------------------------------------

    async def join(self, join: Join) -> JoinReply:
        """JoinGroup; answered when the whole group has joined."""
        try:
            named = replace(join, unique_id=str(self._runtime.ids.uuid()))
            reply: JoinReply = await self._shard(join.group_id).submit(named)
        except LogboomError as error:
            return JoinReply(error=error, member_id=join.member_id)
        return reply

    async def sync(self, sync: Sync) -> SyncReply:
        """SyncGroup; answered when the leader's assignment is committed."""
        try:
            reply: SyncReply = await self._shard(sync.group_id).submit(sync)
        except LogboomError as error:
            return SyncReply(error=error)
        return reply

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        """Heartbeat; accepted unchecked while groups are being loaded, as in Kafka."""
        try:
            reply: HeartbeatReply = await self._shard(heartbeat.group_id).submit(heartbeat)
        except CoordinatorLoadInProgressError:
            return HeartbeatReply()
        except LogboomError as error:
            return HeartbeatReply(error=error)
        return reply

    async def leave(self, leave: Leave) -> LeaveReply:
        """LeaveGroup."""
        try:
            reply: LeaveReply = await self._shard(leave.group_id).submit(leave)
        except LogboomError as error:
            return LeaveReply(error=error)
        return reply

    # --- offsets and groups -------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> CommitReply:
        """OffsetCommit; answered when the offsets are committed."""
        try:
            reply: CommitReply = await self._shard(commit.group_id).submit(commit)
        except LogboomError as error:
            return CommitReply(results=tuple(error for _ in commit.offsets))
        return reply

    async def delete_offsets(self, request: DeleteOffsets) -> DeleteOffsetsReply:
        """OffsetDelete."""
        try:
            reply: DeleteOffsetsReply = await self._shard(request.group_id).submit(request)
        except LogboomError as error:
            return DeleteOffsetsReply(error=error)
        return reply

    async def delete_group(self, request: DeleteGroup) -> DeleteGroupReply:
        """One group of DeleteGroups."""
        try:
            reply: DeleteGroupReply = await self._shard(request.group_id).submit(request)
        except LogboomError as error:
            return DeleteGroupReply(error=error)
        return reply

    # --- queries ------------------------------------------------------------------------------------------------

    def committed(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """Committed offsets of a group, by stream and partition. Raises GroupError while the shard does not serve."""
        return self._shard(group_id).coordinator.committed(group_id)

    def describe(self, group_id: str) -> GroupDescription | None:
        """A group; None where there is none. Raises GroupError while the shard does not serve."""
        return self._shard(group_id).coordinator.describe(group_id)

    def overview(self) -> list[GroupOverview]:
        """All groups. Raises GroupError while any shard does not serve: clients would take a partial list for all."""
        return [group for shard in self._shards for group in shard.coordinator.overview()]

    def usage(self) -> tuple[int, int]:
        """The most groups in any partition of the offsets stream, and the most members in any group."""
        sizes = [shard.coordinator.usage() for shard in self._shards if shard.serves]
        return max((groups for groups, _ in sizes), default=0), max((members for _, members in sizes), default=0)

    def states(self) -> Mapping[str, int]:
        """The number of loaded groups by state."""
        serving = [shard.coordinator for shard in self._shards if shard.serves]
        return Counter(group.state for coordinator in serving for group in coordinator.overview())
