"""Rules that live in the broker and its storage, broken on purpose: one function for each part of a rule.

Nothing in the product can be asked to break a rule, so a function is put in another one's place, for one test. Those of
the pure cores are in `tests.replication.mutants` and `tests.raft.test_simulation`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final

import pytest

from logboom.base.errors import LogboomError, RetriableStorageError
from logboom.base.ids import Offset, StreamId
from logboom.broker.disk.failure import LogDirFailure
from logboom.broker.groups import shard
from logboom.broker.partition import append_queue
from logboom.broker.partition.append_queue import AppendQueue
from logboom.broker.partition.condition_check import ConditionCheck
from logboom.broker.partition.followed_deletions import FollowedDeletions
from logboom.broker.partition.leader import Leader
from logboom.broker.partition.refused_producers import RefusedProducers
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import ReplicaKey
from logboom.broker.raft.hard_state import HardStateFile
from logboom.broker.replica_manager import ReplicaManager
from logboom.broker.replication import serving
from logboom.broker.replication.fetch_response import FetchResponse
from logboom.broker.settled_clock import SettledClock
from logboom.metadata.revisions import ModRevisions
from logboom.nats.ingress import ingress
from logboom.nats.ingress.ingress import Ingress
from logboom.nats.ingress.plan import Attached, Wish, wishes
from logboom.nats.link.changeover import Changeover
from logboom.nats.link.overlap import Overlap
from logboom.raft import HardState
from logboom.replication import leadership
from logboom.replication.following import FetchAnswered, PartitionFollowing
from logboom.replication.leadership import PartitionLeadership
from logboom.storage import recovery
from logboom.storage.inline_writes import InlineWrites
from logboom.storage.log import PartitionLog
from logboom.storage.producers import ProducerTable
from logboom.storage.segment.file import SegmentFile
from logboom.storage.segment.scan import walk
from logboom.storage.state import LogState

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]
_LATE_PART: Final = 20
"""One of so many parts is late."""
_LATE_S: Final = 5e-3


def tell_no_divergence(patch: Patch) -> None:
    """Rules 1 and 2: the leader takes it that every follower's log is its own."""
    patch.setattr(serving, "divergence", lambda *_, **__: None)


def commit_what_the_leader_has(patch: Patch) -> None:
    """Rule 3: the mark follows the leader's own log."""

    def alone(self: PartitionLeadership) -> tuple[leadership.Effect, ...]:
        end = self._durable_ends.get(self.broker_id, Offset(0))
        if not self._has_lease or not self.has_minimum or end <= self.high_watermark:
            return ()
        self.high_watermark = end
        return (leadership.HighWatermarkMoved(end),)

    patch.setattr(PartitionLeadership, "_advance", alone)


def ack_what_fell_below_the_minimum(patch: Patch) -> None:
    """Rule 4: it is in the leader's log, after all."""

    def ack(self: AppendQueue, _: LogboomError) -> None:
        self._acks.of(-1).answer(self._log.durable_end)

    patch.setattr(AppendQueue, "fail_uncommitted", ack)


def believe_in_the_tail(patch: Patch) -> None:
    """Rule 9: what lies behind the durable end is taken without a look at its CRC."""
    patch.setattr(recovery, "walk_checked", walk)


def cut_damage_without_a_word(patch: Patch) -> None:
    """Rule 9: a start takes damage below the durable end for a torn tail, nor does the saved high-water mark tell."""
    patch.setattr(recovery, "_durable_end", lambda state, _: (state.active.base, 0))
    opened = ReplicaManager._opened

    def believed(self: ReplicaManager, marks: Mapping[ReplicaKey, Offset], partition: Partition) -> None:
        end = partition.log.durable_end
        opened(self, {key: min(mark, end) for key, mark in marks.items()}, partition)

    patch.setattr(ReplicaManager, "_opened", believed)


def keep_damage_to_itself(patch: Patch) -> None:
    """Rule 9: a copy that has met damage stays in the ISR, and is not fetched anew."""
    patch.setattr(ReplicaManager, "found_damage", lambda *_: False)


def take_lost_segments_for_deleted(patch: Patch) -> None:
    """Rule 9: a log begins with the first file that is there."""

    def begins(state: LogState, _: Any) -> None:
        state.log_start_offset, state.start_is_known = state.segments[0].base, True

    patch.setattr(recovery, "_set_start", begins)


def make_partitions_under_the_lease_of_that_moment(patch: Patch) -> None:
    """Rule 6: a partition that is made keeps to whether its broker had a lease then, although it goes into service
    later."""
    create, take = ReplicaManager._create, ReplicaManager._take

    async def made(self: ReplicaManager, *args: Any) -> list[Partition]:
        partitions = await create(self, *args)
        for partition in partitions:
            partition.role.leader.lease_changed(self._has_lease)
        return partitions

    def taken(self: ReplicaManager, partitions: Iterable[Partition]) -> None:
        had = [(partition, partition.role.leader._core.has_lease) for partition in partitions]
        take(self, [partition for partition, _ in had])
        for partition, held in had:
            partition.role.leader.lease_changed(held)

    patch.setattr(ReplicaManager, "_create", made)
    patch.setattr(ReplicaManager, "_take", taken)


def try_failed_syncs_again(patch: Patch) -> None:
    """Rule 10: an error of the disk is taken for one that passes, like a lack of room."""

    def passes(self: LogState, error: OSError) -> RetriableStorageError:
        return RetriableStorageError(f"once more: {error}")

    patch.setattr(LogState, "error_for", passes)
    patch.setattr(InlineWrites, "sync_failed", lambda self, error: passes(self._state, error))
    patch.setattr(LogDirFailure, "report", lambda self, error: error)


def take_short_writes_for_whole(patch: Patch) -> None:
    """Rule 10: what a full disk took of a write is taken for all of it."""
    append = SegmentFile.append

    def whole(self: SegmentFile, buffers: Any, size_bytes: int, preallocate_bytes: int) -> None:
        with suppress(OSError):
            append(self, buffers, size_bytes, preallocate_bytes)

    patch.setattr(SegmentFile, "append", whole)


def vote_without_a_note(patch: Patch) -> None:
    """Rule 11: term and vote are kept in memory, and the metadata is not synced."""

    def remember(self: HardStateFile, state: HardState) -> None:
        self.state = state

    flush = PartitionLog.flush

    def unsynced(self: PartitionLog, *, sync: bool, on_part: Any = None) -> Offset:
        return flush(self, sync=False, on_part=on_part)

    patch.setattr(HardStateFile, "write", remember)
    patch.setattr(PartitionLog, "flush", unsynced)


def delete_on_the_leader_alone(patch: Patch) -> None:
    """Rule 5: a deletion is answered before those that may lead next have deleted, and who has not may join them."""
    patch.setattr(Leader, "has_deleted", lambda *_: True)
    expand = PartitionLeadership._expand
    patch.setattr(PartitionLeadership, "_expand", lambda self, replica, _: expand(self, replica, Offset(0)))
    patch.setattr(FollowedDeletions, "follow", lambda *_: None)


def compare_no_revisions(patch: Patch) -> None:
    """What comes to the controller late is executed once more."""
    patch.setattr(ModRevisions, "check", lambda *_: None)


def take_records_whatever_they_expect(patch: Patch) -> None:
    """Of two writers that know the same version both are taken."""
    patch.setattr(ConditionCheck, "refusal", lambda *_: None)


def forget_producers_of_leaders(patch: Patch) -> None:
    """Rule 12: a follower writes down the batches of producers, and not that it has them."""
    append = PartitionLog.append_replicated

    def unknown(self: PartitionLog, *args: Any, **named: Any) -> Offset:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ProducerTable, "record", lambda *_: None)
            return append(self, *args, **named)

    patch.setattr(PartitionLog, "append_replicated", unknown)


def serve_groups_before_they_are_loaded(patch: Patch) -> None:
    """Rule 12: a coordinator answers from an empty memory."""

    async def nothing(*_: Any, **__: Any) -> list[Any]:
        return []

    patch.setattr(shard, "latest_records", nothing)


def drop_parts_that_overtake_each_other(patch: Patch) -> None:
    """A leader serves two requests of a follower side by side, so that now and then a part of an answer goes out behind
    the next one; the follower drops both, since neither begins where its log ends, and does not ask again."""
    send, answered, parts = FetchResponse.send, PartitionFollowing._answered, count()

    def late(self: FetchResponse) -> bool:
        if next(parts) % _LATE_PART:
            return send(self)
        loop, send_part = asyncio.get_running_loop(), self._send_part
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self, "_send_part", lambda part: loop.call_later(_LATE_S, send_part, part))
            return send(self)

    def dropped(self: PartitionFollowing, event: FetchAnswered) -> Any:
        return answered(self, event) if event.offset in (None, self._log_end) else ()

    patch.setattr(FetchResponse, "send", late)
    patch.setattr(PartitionFollowing, "_answered", dropped)


def leave_a_nats_server_before_another_one_is_heard(patch: Patch) -> None:
    """A broker moves from a nats-server that leaves as if it told others of a subscription at once."""

    async def at_once(_: Changeover) -> None:
        """Nothing is waited for."""

    patch.setattr(Changeover, "_both_hear_all", at_once)


def store_what_two_nats_servers_bring(patch: Patch) -> None:
    """What the old connection has brought is not known when the new one brings it."""
    patch.setattr(Overlap, "old", lambda *_: None)


def forget_a_stream_that_leaves_its_group(patch: Patch) -> None:
    """What the server has given a member of a queue before it left is nobody's."""

    def at_once(self: Ingress, stream_id: StreamId) -> None:
        self._detach(stream_id)
        self._forget(stream_id)

    patch.setattr(Ingress, "_retire", at_once)


def take_what_others_of_the_group_get(patch: Patch) -> None:
    """A member subscribes as if it were alone."""

    def alone(stream: Attached, led: Iterable[int]) -> set[Wish]:
        return {wish._replace(queue=None) for wish in wishes(stream, led)}

    patch.setattr(ingress, "wishes", alone)


def age_by_the_wall_clock(patch: Patch) -> None:
    """Records are deleted by the wall clock, whatever it shows."""

    def wall_ms(clock: SettledClock) -> int:
        return clock._clock.wall_ms()

    patch.setattr(SettledClock, "now_ms", wall_ms)


def forget_the_time_at_a_start(patch: Patch) -> None:
    """A process takes the wall clock as it is when it starts."""
    patch.setattr(SettledClock, "resume", lambda *_: None)


def forget_what_was_refused_for_a_moment(patch: Patch) -> None:
    """A batch whose sequence does not follow is told so, also where the one before it came a moment too early."""
    patch.setattr(append_queue, "_first_sequences", lambda _: ())
    patch.setattr(RefusedProducers, "begin", lambda _: None)
