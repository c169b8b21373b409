"""Keeps the partitions that this broker holds as the committed metadata says: `replicas` is what it keeps.

`prepare` makes the directories of new partitions durable, `apply` gives the partitions their role and takes them into
service, reconfigures those whose stream changed and drops those that are deleted or held by others. The log manager
opens a log without a role; which partitions are here and in which role is in the image (`assignments`), and
`role_keeper` gives them that role. Knows no command and no protocol.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError, NotLeaderError, StorageError
from logboom.base.ids import BrokerEpoch, BrokerId, Epoch, Offset, PartitionIndex, StreamName
from logboom.broker.assignments import assignment_of, held_by, is_here, may_be_new, others_have_all
from logboom.broker.disk.log_manager import LogManager, MissingReplicaError, PartitionKey, deleted_stream_error
from logboom.broker.disk.made_replicas import MadeReplicas
from logboom.broker.group_commit import GroupCommit
from logboom.broker.lost_replicas import LostReplicas, NoOtherReplicas, ReplicaLossPort
from logboom.broker.partition.leader import Leading
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import ReplicaKey
from logboom.broker.replicas import Replicas
from logboom.broker.role_keeper import RoleKeeper
from logboom.metadata import Image, ImageDelta, Stream

_PARTITIONS_PER_TURN: Final = 500
_FIRST_EPOCH: Final = Epoch(0)
_NO_LOSSES: Final = NoOtherReplicas()
_DAMAGED: Final = "its log is damaged"
_BEGINNING_LOST: Final = "its log may have lost its beginning"


def _never_registered() -> None:
    return None


class ReplicaManager:
    """See the module. Life: `open`ed once, then deltas one at a time, then `close`d. Everything on the loop."""

    def __init__(
        self,
        replicas: Replicas,
        logs: LogManager,
        broker_id: BrokerId,
        *,
        made: MadeReplicas,
        flusher: GroupCommit,
        log: FilteringBoundLogger,
        own_epoch: Callable[[], BrokerEpoch | None] = _never_registered,
        losses: ReplicaLossPort = _NO_LOSSES,
    ) -> None:
        """`own_epoch`: that of the registration of this process; None before it, or where there is no cluster."""
        self._logs = logs
        self._broker_id = broker_id
        self._log = log
        self._replicas = replicas
        self._partitions = replicas.opened
        self._failed = replicas.failed
        self._prepared: list[Partition] = []
        self._made = made
        self._lost = LostReplicas(losses, self._rebuild, log)
        self._changing = asyncio.Lock()
        self._roles = RoleKeeper(
            self._partitions,
            broker_id,
            flusher=flusher,
            own_epoch=own_epoch,
            lost=self._lost,
            changing=self._changing,
            log=log,
        )
        self._has_lease = True
        self._has_removed_moved = False
        logs.on_damage = self.found_damage
        logs.on_unknown_start = self._found_unknown_start

    async def open(
        self,
        image: Image,
        marks: Mapping[ReplicaKey, Offset],
        index: int,
        grown_after: Callable[[int], Collection[ReplicaKey]],
    ) -> None:
        """Recover every partition that is here; where that fails, `find` gives the reason. `marks`: how far each was
        known to be committed. `index`: of the last change in the image; `grown_after`: which partitions the changes
        behind an index made."""
        async with self._changing:
            self._replicas.image = image
            new = await self._made.new_ones(grown_after)

            def is_new(stream: Stream, number: PartitionIndex) -> bool:
                return (stream.id, number) in new or may_be_new(stream, number, self._broker_id)

            opened, failed = await self._logs.open_all(
                image, held_by(image, self._broker_id), partial(self._opened, marks), is_new
            )
            for partition in opened.values():
                self._replicas.add(partition)
            self._failed.update(failed)
            for (name, number), error in failed.items():
                stream = image.by_name[name]
                if (mark := marks.get((stream.id, number))) is not None:
                    self._replicas.marks_of_failed[stream.id, number] = mark
                rebuild, never_made = isinstance(error, MissingReplicaError), (stream.id, number) in new
                self._found_lost(stream, number, str(error), rebuild=rebuild or never_made, is_new=never_made)
            if not self._made.is_noted:
                await self._made.note(index)
            await self._follow(self._roles.take(image, opened))

    def _opened(self, marks: Mapping[ReplicaKey, Offset], partition: Partition) -> None:
        """On the thread that opened it; syncs."""
        if not partition.stream.assignments:
            # Each start is a leadership, also one that writes nothing: a client that has read records which a power
            # failure then took can tell by the epoch (KIP-320). The log counts the leaderships of a partition that has
            # one replica. On a full disk the epoch is saved with the first write there is room for: a leadership that
            # wrote nothing leaves no trace that could be mistaken for another's.
            _lead_alone(partition, self._broker_id, Epoch(partition.log.epochs.latest + 1))
            partition.log.epochs.try_save()
            return
        mark = marks.get((partition.stream.id, partition.index), Offset(0))
        end = partition.log.durable_end
        if mark > end:
            # As a leader it would have the others cut what it lacks.
            raise MissingReplicaError(
                f"its log ends at offset {end}, and records up to offset {mark} were committed: files are missing; "
                f"restore its directory; or stop this broker, let the longest of the other logs lead (logboom cluster "
                f"elect {partition.stream.name} {partition.index} --unclean), and start it again"
            )
        partition.reads.high_watermark = min(mark, end)

    # --- following the metadata ---------------------------------------------------------------------------------

    async def prepare(self, delta: ImageDelta) -> None:
        """Make the new partitions of a delta, durable and empty, before it is committed. On an error none is left.

        Their first leader epoch is noted with them.
        """
        assert not self._prepared
        try:
            for stream, indexes in delta.grown:
                here = [index for index in indexes if is_here(stream, index, self._broker_id)]
                self._prepared += await self._create(stream, here, delta.before)
        except BaseException:  # a cancelled caller too: directories without metadata are left by no failure
            await self.abandon(delta)
            raise

    async def _create(self, stream: Stream, indexes: Sequence[int], image: Image) -> list[Partition]:
        first_epoch = None if stream.assignments else _FIRST_EPOCH
        return await self._logs.create(stream, indexes, first_epoch, image.tombstones) if indexes else []

    async def abandon(self, delta: ImageDelta) -> None:
        """The delta was not committed: remove what was prepared for it."""
        prepared, self._prepared = self._prepared, []
        for partition in prepared:
            await self._logs.delete((partition,), deleted_stream_error(partition.stream.name))

    async def apply(self, delta: ImageDelta, index: int) -> None:
        """Follow the committed delta of the entry `index`. `find` answers by it before the first wait; files of dropped
        ones go after."""
        self._replicas.image = delta.after
        gone: list[tuple[LogboomError, list[Partition]]]
        gone = [(deleted_stream_error(stream.name), self._remove(stream, _keys(stream))) for stream in delta.deleted]
        changed = {stream.id: (stream, _changed(delta.before, stream)) for stream in delta.reassigned}
        changed |= {stream.id: (stream, _changed(delta.before, stream)) for stream, _ in delta.grown}
        for stream, keys in changed.values():
            moved = [key for key in keys if not is_here(stream, key[1], self._broker_id)]
            removed = self._remove(stream, moved)
            for partition in removed:
                partition.role.rest()  # at once, since what it still takes another leader does not have
            gone.append((_moved_error(stream), removed))
        prepared, self._prepared = self._prepared, []
        wanted = [one for one in prepared if _exists(delta.after, one)]
        # Prepared for a change that was lost with the leadership of the controller.
        gone += [(deleted_stream_error(one.stream.name), [one]) for one in prepared if one not in wanted]
        makes = bool(wanted)
        self._take(wanted)
        taking = self._roles.take(delta.after, [key for _, keys in changed.values() for key in keys])
        async with self._changing:
            for reason, partitions in gone:
                await self._logs.delete(partitions, reason)
            for stream, keys in changed.values():
                makes |= await self._make_missing(stream, keys)
            if makes or not self._made.is_noted:
                await self._made.note(index)
            await self._follow(taking)
            for stream, keys in changed.values():
                for key in keys:
                    if _joined_without_records(self._partitions.get(key), delta.before, stream, self._broker_id):
                        self._found_lost(stream, key[1], "it was emptied before it joined the ISR", rebuild=True)
                    if (stream.id, key[1]) in self._lost.doubted:
                        self._found_lost(stream, key[1], _DAMAGED, rebuild=True)
                    if isinstance(failure := self._failed.get(key), MissingReplicaError):
                        self._found_lost(stream, key[1], str(failure), rebuild=True)
        await self.reconfigure(key for stream in delta.reconfigured for key in _keys(stream))

    def _take(self, made: Iterable[Partition]) -> None:
        """Take new partitions into service."""
        for partition in made:
            # Here and not where it was made: the lease may have ended or come back since, of which it was not told.
            partition.role.leader.lease_changed(self._has_lease)
            self._replicas.add(partition)
            if not partition.stream.assignments:
                _lead_alone(partition, self._broker_id, _FIRST_EPOCH)

    def _remove(self, stream: Stream, keys: Iterable[PartitionKey]) -> list[Partition]:
        removed = []
        for key in keys:
            self._failed.pop(key, None)
            self._made.unmade.discard((stream.id, key[1]))
            self._lost.forget((stream.id, key[1]))
            partition = self._replicas.remove(key)
            if partition is not None:
                removed.append(partition)
        return removed

    async def _make_missing(self, stream: Stream, keys: Iterable[PartitionKey]) -> bool:
        """Create the partitions that the image assigns to this broker and that were not prepared here; returns whether
        there were any."""
        missing = [
            key[1]
            for key in keys
            if is_here(stream, key[1], self._broker_id) and key not in self._partitions and key not in self._failed
        ]
        try:
            self._take(await self._create(stream, missing, self._replicas.image))
        except (StorageError, OSError) as error:
            self._log.error("replicas cannot be created", stream=stream.name, partitions=missing, reason=str(error))
            for index in missing:
                failure = MissingReplicaError(f"{stream.name}-{index} cannot be created: {error}")
                self._failed[stream.name, index] = failure
                self._found_lost(stream, index, str(failure), rebuild=True, is_new=True)
        return bool(missing)

    async def _follow(self, keys: Sequence[PartitionKey]) -> None:
        await self._roles.follow(keys)
        if self._roles.knows_process and not self._has_removed_moved:
            self._has_removed_moved = True
            await self._logs.remove_moved_away(self._replicas.image, held_by(self._replicas.image, self._broker_id))

    def lease_changed(self, held: bool) -> None:
        """This broker has lost its lease with the controller, or has it again: the partitions it leads stop committing,
        or continue (rule 6)."""
        self._has_lease = held
        for partition in self._partitions.values():
            partition.role.leader.lease_changed(held)

    # --- lost replicas ------------------------------------------------------------------------------------------

    def found_damage(self, name: str, index: int) -> bool:
        """The log of a partition is damaged. Returns whether other brokers have its records: this copy is then replaced
        by theirs, and another broker leads."""
        stream = self._replicas.image.by_name.get(StreamName(name))
        if stream is None:
            return False
        found = self._found_lost(stream, index, _DAMAGED, rebuild=True)
        if not found:
            self._lost.doubted.add((stream.id, PartitionIndex(index)))
        return found

    def is_damaged(self, key: ReplicaKey) -> bool:
        """Whether this broker's copy is known to be damaged or lost, and was not replaced yet."""
        return key in self._lost or key in self._lost.doubted

    def _found_unknown_start(self, name: str, index: int) -> None:
        """The log of a partition may have lost its beginning. Where nobody else has the records it goes on with the
        rest, and is compared with other replicas once there are any in sync (`replication.isr`)."""
        stream = self._replicas.image.by_name.get(StreamName(name))
        if stream is not None:
            self._found_lost(stream, index, _BEGINNING_LOST, rebuild=True)

    def _found_lost(self, stream: Stream, index: int, reason: str, *, rebuild: bool, is_new: bool = False) -> bool:
        """This broker's copy cannot be relied on: where others have the records, it is to be replaced by theirs.
        `is_new`: it never had any and could not be made, which is tried again in any case."""
        assignment, key = assignment_of(stream, index), (stream.id, PartitionIndex(index))
        if is_new:
            self._made.unmade.add(key)
        elif assignment is None or not others_have_all(assignment, self._broker_id):
            return False
        self._lost.add(key, f"{stream.name}-{index}", reason, rebuild=rebuild, is_new=is_new)
        return True

    async def _rebuild(self, key: ReplicaKey) -> None:
        """Empty a replica that no ISR or ELR contains any more, or create one that could not be created, and let it
        follow."""
        async with self._changing:
            stream = self._replicas.image.by_id.get(key[0])
            if stream is None or not is_here(stream, key[1], self._broker_id):
                return
            assignment, name = assignment_of(stream, key[1]), (stream.name, key[1])
            is_counted_on = assignment is None or self._broker_id in (*assignment.isr, *assignment.elr)
            if is_counted_on and key not in self._made.unmade:
                # Nobody else has its records any more, and half a log is better than none.
                await self._follow((name,))
                return
            partition = self._partitions.get(name)
            if partition is None:
                self._take(await self._create(stream, [key[1]], self._replicas.image))
                self._failed.pop(name, None)
                if key in self._made.unmade:
                    self._made.unmade.discard(key)
                    await self._made.note()
            else:
                partition.role.rest()
                await self._logs.empty(partition)
            await self._follow((name,))

    # --- settings -----------------------------------------------------------------------------------------------

    async def reconfigure(self, keys: Iterable[PartitionKey] | None = None) -> None:
        """The broker's own settings changed, those under every stream's settings among them: partitions take the
        settings in force. With very many of them the loop gets its turn in between."""
        for number, key in enumerate(tuple(self._partitions) if keys is None else keys, 1):
            partition = self._partitions.get(key)
            if partition is not None:
                partition.configure(self._replicas.image.by_name[key[0]])
            if number % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    # --- the end ------------------------------------------------------------------------------------------------

    def go_offline(self, error: StorageError) -> None:
        """The log dir failed: take no appends any more, in any partition; reads go on. Others take over (rule 10)."""
        for partition in self._partitions.values():
            partition.go_offline(error)
            self._found_lost(partition.stream, partition.index, str(error), rebuild=False)

    def refuse_appends(self, reason: LogboomError) -> None:
        """The broker stops: answer appends with `reason` from now on; those under way are still completed."""
        for partition in self._partitions.values():
            partition.refuse_appends(reason)

    async def close(self, reason: LogboomError) -> None:
        """Close every log cleanly once no thread reads it; appends and reads that wait are answered with `reason`."""
        await self._lost.stop()
        await self._roles.stop()
        await self._logs.close_all(self._partitions.values(), reason)


def _lead_alone(partition: Partition, broker: BrokerId, epoch: Epoch) -> None:
    """Become the leader of a stream that has no assignments; this broker is the only replica, and so the ISR."""
    partition.role.lead(Leading(epoch, frozenset({broker})))


def _keys(stream: Stream) -> list[PartitionKey]:
    return [(stream.name, PartitionIndex(index)) for index in range(stream.partitions)]


def _changed(before: Image, stream: Stream) -> list[PartitionKey]:
    """The partitions of a stream that are new, or have another assignment than before."""
    known = before.by_id.get(stream.id)
    if known is None:
        return _keys(stream)
    pairs = zip(known.assignments, stream.assignments, strict=False)
    same = {index for index, (old, new) in enumerate(pairs) if old is new or old == new}
    if not stream.assignments:
        same = set(range(known.partitions))
    return [key for key in _keys(stream) if key[1] not in same]


def _exists(image: Image, partition: Partition) -> bool:
    stream = image.by_id.get(partition.stream.id)
    return stream is not None and partition.index < stream.partitions


def _joined_without_records(partition: Partition | None, before: Image, stream: Stream, broker: BrokerId) -> bool:
    """Whether this change adds a copy to the ISR that lacks the records it is counted on for: it was emptied while its
    leader proposed it."""
    if partition is None or not partition.role.follows:
        return False
    was = before.assignment(stream.id, partition.index)
    joined = was is not None and broker not in was.isr and broker in stream.assignments[partition.index].isr
    return joined and partition.log_end_offset < partition.role.follower.high_watermark


def _moved_error(stream: Stream) -> NotLeaderError:
    """The error for requests that still name a partition which other brokers hold now."""
    return NotLeaderError(f"this broker holds no replica of that partition of {stream.name} any more")
