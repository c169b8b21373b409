"""Opens, creates, closes and deletes the logs of partitions, each in a directory of its own; Kafka's LogManager.

A stream's directories are made durable before the stream is committed to the metadata, so a crash in between leaves
empty directories that no stream owns; a deleted stream's are renamed to `*.deleted` after the commit and removed in the
background, once no thread reads them any more. Both kinds of leftover are removed at the next start, and nothing else
is: see `ownership`.

Knows directories and the storage package; not which streams there should be, nor the role of a partition: what it opens
leads nothing and takes no appends. Methods without `async` run on threads.
"""

import asyncio
import contextlib
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError, StorageError, UnknownStreamError
from logboom.base.ids import Epoch, Offset, PartitionIndex, StreamId, StreamName
from logboom.base.ports import Disk, SyncFailedError
from logboom.broker.disk.data_dir import STREAMS_DIR
from logboom.broker.disk.flusher import Flusher
from logboom.broker.disk.ownership import (
    deleted_directory_of,
    directory_of,
    is_damaged,
    is_moved_away,
    is_rest,
    mark_of,
    read_mark,
    remove_trees,
    set_aside_directories_of,
    why_removable,
    write_mark,
)
from logboom.broker.partition.replica import Partition, log_config
from logboom.broker.partition.services import PartitionServices
from logboom.broker.runtime import Runtime
from logboom.metadata import Image, Stream
from logboom.storage import Damage, Notice, PartitionLog, UnknownStart, is_log, retriable_error_for

_NAMED_MAX: Final = 20
_MADE_AT_ONCE: Final = 100
_OPENED_AT_ONCE: Final = 50
"""Partitions that a thread opens, or closes, before it asks for more work: to hand over each takes as long as a third
of opening it."""
_PROGRESS_EVERY_S: Final = 1.0

Result = TypeVar("Result")
Item = TypeVar("Item")
PartitionKey = tuple[StreamName, PartitionIndex]
Assigned = tuple[Stream, PartitionIndex]
"""A partition that this broker holds."""


class MissingReplicaError(StorageError):
    """A partition that this broker held has no directory any more, or not all of its files."""


class _Start(NamedTuple):
    """What is known of partitions at a start before they are opened."""

    there: Container[str]
    """The directories that were found."""
    deleted: Container[StreamId]
    take_role: Callable[[Partition], None]
    may_be_new: Callable[[Stream, PartitionIndex], bool]


class LogManager:
    """See the module. Life: that of the broker; `close_all` ends it."""

    def __init__(
        self,
        disk: Disk,
        runtime: Runtime,
        flusher: Flusher,
        services: PartitionServices,
        log: FilteringBoundLogger,
        *,
        open_threads: int,
        keeps_moved: bool,
    ) -> None:
        """`keeps_moved`: whether directories of partitions that other brokers hold stay where a start finds them, since
        the metadata may be from before they were moved here (`raft.quorum_recovery`)."""
        self._keeps_moved = keeps_moved
        self._disk = disk
        self._clock = runtime.clock
        self._settled_clock = runtime.settled_clock
        self._flusher = flusher
        self._services = services
        self._log = log
        self._openers = runtime.workers.pool("open", open_threads)
        self._open_threads = open_threads
        self._removals: dict[asyncio.Task[None], Partition] = {}
        self._loop = asyncio.get_running_loop()
        self.on_damage: Callable[[StreamName, PartitionIndex], object] = _nobody_asks
        """Called on the loop when damage was found below the durable end of a log."""
        self.on_unknown_start: Callable[[StreamName, PartitionIndex], object] = _nobody_asks
        """Called on the loop when a log may have lost its beginning."""

    # --- start --------------------------------------------------------------------------------------------------

    async def open_all(
        self,
        image: Image,
        assigned: Sequence[Assigned],
        take_role: Callable[[Partition], None],
        may_be_new: Callable[[Stream, PartitionIndex], bool],
    ) -> tuple[dict[PartitionKey, Partition], dict[PartitionKey, StorageError]]:
        """Recover the partitions that are assigned to this broker: those that are open, and why the others are not.

        `take_role` is called for each of them on the thread that opened it, where it may sync: a thousand syncs one
        after the other on the loop would be most of a start. `may_be_new` tells whether one that has no directory is to
        be made. `image` explains the directories that are not assigned.
        """
        names = await self._on_openers(partial(self._disk.list, STREAMS_DIR))
        await self._on_openers(partial(self._remove_leftovers, image, names, _directories(assigned)))
        there = frozenset(f"{STREAMS_DIR}/{name}" for name in names)
        start = _Start(there, frozenset(image.tombstones), take_role, may_be_new)
        opened: dict[PartitionKey, Partition] = {}
        failed: dict[PartitionKey, StorageError] = {}
        started_s = logged_s = self._clock.monotonic_s()
        parts = _parts(assigned, self._opened_at_once(len(assigned)))
        futures = [self._on_openers(partial(self._try_open_all, part, start)) for part in parts]
        for part, future in zip(parts, futures, strict=True):
            for (stream, index), result in zip(part, await future, strict=True):
                if isinstance(result, StorageError):
                    failed[stream.name, index] = result
                else:
                    opened[stream.name, index] = result
            if self._clock.monotonic_s() - logged_s > _PROGRESS_EVERY_S:
                logged_s = self._clock.monotonic_s()
                self._log.info("opening partitions", opened=len(opened), of=len(assigned))
        self._log.info(
            "partitions opened",
            opened=len(opened),
            failed=len(failed),
            seconds=round(self._clock.monotonic_s() - started_s, 3),
        )
        return opened, failed

    def _opened_at_once(self, count: int) -> int:
        """The number of partitions to open together: several for each thread, so that waits for the disk overlap."""
        return max(1, min(_OPENED_AT_ONCE, count // self._open_threads))

    def _try_open_all(self, part: Sequence[Assigned], start: "_Start") -> list[Partition | StorageError]:
        return [self._try_open(stream, index, start) for stream, index in part]

    def _try_open(self, stream: Stream, index: PartitionIndex, start: "_Start") -> Partition | StorageError:
        try:
            directory = directory_of(stream.name, index)
            if directory in start.there and self._is_of(stream, index, directory, start):
                partition = self._open(stream, index)
            elif start.may_be_new(stream, index):
                (partition,) = self._create(stream, (index,), first_epoch=None, deleted=())
            else:
                # It was durable before the stream was: an empty log in its place would hide that records are lost.
                raise MissingReplicaError(f"the directory {directory} is missing; restore it, or delete the stream")
            try:
                start.take_role(partition)
            except StorageError:
                partition.log.abandon()
                raise
        except MissingReplicaError as error:
            self._log.error("partition cannot be opened", stream=stream.name, partition=index, reason=str(error))
            return MissingReplicaError(f"{stream.name}-{index} cannot be opened: {error}")
        except (StorageError, OSError) as error:
            self._report_failed_sync(error)
            known = retriable_error_for(error, stream.name) if isinstance(error, OSError) else None
            reason = str(known or error)
            self._log.error("partition cannot be opened", stream=stream.name, partition=index, reason=reason)
            return StorageError(f"{stream.name}-{index} cannot be opened: {reason}")
        return partition

    def _is_of(self, stream: Stream, index: PartitionIndex, directory: str, start: "_Start") -> bool:
        """Whether a directory is this partition's. In the place of a new one that of a deleted stream is removed: one
        may have been deleted, and the other made under its name, while no process of this broker ran. StorageError
        where it is another partition's, whose directory may have been renamed or restored to this place."""
        expected = mark_of(stream, index)
        found = read_mark(self._disk, directory, expected)
        if found == expected:
            return True
        if start.may_be_new(stream, index) and is_rest(self._disk, directory):
            return False  # nobody relies on this broker's copy
        if found is None or is_damaged(found, expected):
            self._log.warning("the mark of a partition's directory is rewritten", directory=directory)
            write_mark(self._disk, directory, expected)
            return True
        is_left_over = found.id in start.deleted and directory_of(found.stream, found.index) == directory
        if not is_left_over or not start.may_be_new(stream, index):
            raise StorageError(
                f"the directory {directory} holds {found.stream}-{found.index} of the stream with the id {found.id}, "
                f"and that of {expected.stream} is {expected.id}; move it away and restore the right one"
            )
        self._log.info("removing a leftover directory", directory=directory, reason="its stream was deleted")
        remove_trees(self._disk, [directory])
        return False

    def _open(self, stream: Stream, index: PartitionIndex) -> Partition:
        directory = directory_of(stream.name, index)
        report = partial(self._report, stream.name, index)
        config = self._services.config.now
        log = PartitionLog.open(
            self._disk,
            directory,
            log_config(stream, index, config),
            now_ms=self._settled_clock.now_ms(),
            report=report,
            open_files=self._services.open_files,
        )
        return Partition(stream, index, log, self._services)

    def _report(self, name: StreamName, index: PartitionIndex, found: Damage | Notice) -> None:
        log = self._log.bind(stream=name, partition=index)
        if isinstance(found, Damage):
            self._loop.call_soon_threadsafe(self.on_damage, name, index)
        elif isinstance(found, UnknownStart):
            self._loop.call_soon_threadsafe(self.on_unknown_start, name, index)
        if isinstance(found, Damage):
            log.error(
                "damaged batch", file=found.path, position=found.position, offset=found.offset, reason=found.reason
            )
        elif isinstance(found, UnknownStart):
            log.warning("the beginning of a log may be lost", notice=str(found))
        else:
            log.info("recovery", notice=str(found))

    async def remove_moved_away(self, image: Image, assigned: Iterable[Assigned]) -> None:
        """Remove the directories of partitions that other brokers hold according to an image that is not older than
        this process: what an earlier process did not finish. If that image may not know of a move, they stay."""
        await self._on_openers(partial(self._remove_moved_away, image, _directories(assigned)))

    def _remove_moved_away(self, image: Image, owned: set[str]) -> None:
        unassigned = [name for name in self._disk.list(STREAMS_DIR) if f"{STREAMS_DIR}/{name}" not in owned]
        moved = [name for name in unassigned if is_moved_away(self._disk, name, image)]
        if self._keeps_moved:
            if moved:
                self._report_unknown(image, moved)
            return
        for name in moved:
            self._log.info("removing a replica that other brokers hold", directory=f"{STREAMS_DIR}/{name}")
        remove_trees(self._disk, [f"{STREAMS_DIR}/{name}" for name in moved])

    def _remove_leftovers(self, image: Image, names: Iterable[str], owned: set[str]) -> None:
        deleted = frozenset(image.tombstones)
        unknown: list[str] = []
        removed: list[str] = []
        for name in names:
            directory = f"{STREAMS_DIR}/{name}"
            if directory in owned:
                continue
            why = why_removable(self._disk, name, image, deleted)
            if why is None:
                if not is_moved_away(self._disk, name, image):
                    unknown.append(name)
                continue
            self._log.info("removing a leftover directory", directory=directory, reason=why)
            removed.append(directory)
        remove_trees(self._disk, removed)
        if unknown:
            self._report_unknown(image, unknown)

    def _report_unknown(self, image: Image, unknown: list[str]) -> None:
        logs = [name for name in unknown if is_log(self._disk, f"{STREAMS_DIR}/{name}")]
        if logs and not image.by_name and not image.tombstones:
            # Empty metadata beside streams is a lost metadata directory sooner than anything else.
            raise StorageError(
                f"the metadata knows no stream and never did, yet {len(logs)} partition directories are there "
                f"({logs[0]}, ...); restore the metadata directory, or move them away"
            )
        self._log.warning(
            "unknown directories left in place",
            directory=STREAMS_DIR,
            names=unknown[:_NAMED_MAX],
            count=len(unknown),
        )

    # --- while running ------------------------------------------------------------------------------------------

    async def create(
        self, stream: Stream, indexes: Sequence[int], first_epoch: Epoch | None, deleted: Container[StreamId] = ()
    ) -> list[Partition]:
        """New partitions: empty, durable, in no role, `first_epoch` noted in each. On an error none of them is left.

        What an earlier replica of the same partition left in their place is used: a follower finds out what of it
        holds. What a stream in `deleted` left is removed; anything else there is moved aside.
        """
        create = partial(self._create, stream, first_epoch=first_epoch, deleted=deleted)
        parts = _parts(tuple(map(PartitionIndex, indexes)), _MADE_AT_ONCE)
        futures = [self._on_openers(partial(create, part)) for part in parts]
        results = await asyncio.gather(*futures, return_exceptions=True)
        made = [partition for result in results if isinstance(result, list) for partition in result]
        faults = [result for result in results if isinstance(result, BaseException)]
        if not faults:
            return made
        await self.delete(made, StorageError(f"the stream {stream.name} could not be created"))
        fault = faults[0]
        self._report_failed_sync(fault)
        if isinstance(fault, OSError):
            raise _creation_error(fault, stream) from fault
        raise fault

    def _create(
        self,
        stream: Stream,
        indexes: Sequence[PartitionIndex],
        *,
        first_epoch: Epoch | None,
        deleted: Container[StreamId],
    ) -> list[Partition]:
        """New partitions, which share one wait for the disk. On an error no new directory is left."""
        found = {index for index in indexes if self._is_there(stream, index, deleted)}
        missing = [directory_of(stream.name, index) for index in indexes if index not in found]
        made: list[Partition] = []
        try:
            if missing:
                self._disk.make_dirs(missing)
            for index in indexes:
                if index not in found:
                    write_mark(self._disk, directory_of(stream.name, index), mark_of(stream, index))
                partition = self._open(stream, index)
                made.append(partition)
                if first_epoch is not None and index not in found:
                    partition.log.epochs.begin(first_epoch, partition.log.log_end_offset)
                    partition.log.epochs.try_save()
        except (StorageError, OSError):
            for partition in made:
                partition.log.abandon()
            for directory in missing:
                with contextlib.suppress(OSError):  # each retry of a client would leave one more
                    self._disk.remove_tree(directory)
            raise
        return made

    def _is_there(self, stream: Stream, index: PartitionIndex, deleted: Container[StreamId]) -> bool:
        """Whether an earlier replica of the partition left this directory. Any other directory is moved out of the
        way."""
        directory = directory_of(stream.name, index)
        if not self._disk.exists(directory):
            return False
        if read_mark(self._disk, directory) == mark_of(stream, index):
            return True
        self._free_directory(directory, stream, index, deleted)
        return False

    def _free_directory(
        self, directory: str, stream: Stream, index: PartitionIndex, deleted: Container[StreamId]
    ) -> None:
        """Free the directory of a new partition: remove what a deleted stream left there, move anything else aside."""
        mark = read_mark(self._disk, directory)
        if mark is not None and mark.id in deleted and directory_of(mark.stream, mark.index) == directory:
            remove_trees(self._disk, [directory])
            return
        asides = set_aside_directories_of(stream, index)
        aside = next(name for name in asides if not self._disk.exists(name))
        self._log.warning("unknown directory moved aside for a new stream", directory=directory, moved_to=aside)
        self._disk.rename(directory, aside)
        self._disk.sync_dir(STREAMS_DIR)

    async def delete(self, partitions: Iterable[Partition], error: LogboomError) -> None:
        """Close partitions for good, set their directories aside, and remove those in the background.

        Does not wait for reads that are under way: one that hangs would hold up every change of the metadata.
        """
        for partition in partitions:
            partition.close(error)
            await self._flusher.run(partition.log.abandon)  # behind the flush of it that may be under way
            aside = deleted_directory_of(partition.stream, partition.index)
            if await self._on_openers(partial(self._rename_deleted, partition, aside)):
                self._remove_in_background(partition, aside)

    async def empty(self, partition: Partition) -> None:
        """Remove all records of a partition that has no role, durably; it begins at offset 0. Raises StorageError."""
        cut = partial(partition.log.truncate, Offset(0), now_ms=self._settled_clock.now_ms(), discard_all=True)
        await self._flusher.run(cut)
        partition.reads.high_watermark = Offset(0)
        partition.reads.forget()

    def _rename_deleted(self, partition: Partition, aside: str) -> bool:
        """Rename the directory, which frees the stream's name at once. False where that failed."""
        try:
            partition.log.move_to(aside)
            self._disk.sync_dir(STREAMS_DIR)
        except OSError as error:
            self._report_failed_sync(error)
            self._log.warning("files of a deleted partition not removed; the next start retries", reason=str(error))
            return False
        return True

    def _remove_in_background(self, partition: Partition, directory: str) -> None:
        task = asyncio.ensure_future(self._remove(partition, directory))
        self._removals[task] = partition
        task.add_done_callback(self._removals.pop)

    async def _remove(self, partition: Partition, directory: str) -> None:
        await partition.reads.ended()
        try:
            await self._on_openers(partial(self._disk.remove_tree, directory))
        except OSError as error:
            self._log.warning("files of a deleted partition not removed; the next start retries", reason=str(error))

    # --- end ----------------------------------------------------------------------------------------------------

    async def close_all(self, partitions: Iterable[Partition], error: LogboomError) -> None:
        """Close every log cleanly. Those of a failed log dir are left as they are, to be recovered."""
        open_ones = list(partitions)
        for partition in open_ones:
            partition.close(error)
        for partition in open_ones:
            await partition.reads.ended()
        for removal, deleted in tuple(self._removals.items()):
            if not deleted.reads.is_idle:
                removal.cancel()  # its read hangs; the next start removes the directory
        await asyncio.gather(*self._removals, return_exceptions=True)
        if self._flusher.failure is None:
            parts = _parts(open_ones, self._opened_at_once(len(open_ones)))
            await asyncio.gather(*(self._on_openers(partial(self._close_all, part)) for part in parts))
        self._openers.shutdown(wait=False)

    def _close_all(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            try:
                partition.log.close()
            except (StorageError, OSError) as error:
                self._log.error("partition not closed cleanly", partition=str(partition), reason=str(error))

    def _report_failed_sync(self, error: BaseException) -> None:
        """Take the log dir offline where a failed sync is the cause: no later write can be trusted (rule 10)."""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, SyncFailedError):
                self._flusher.disk_failed(cause)
                return
            cause = cause.__cause__

    def _on_openers(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self._openers, function)


def _creation_error(fault: OSError, stream: Stream) -> StorageError:
    """The error for a client whose stream could not be created."""
    return retriable_error_for(fault, stream.name) or StorageError(
        f"the partitions of {stream.name} could not be created: {fault}"
    )


def deleted_stream_error(name: str) -> UnknownStreamError:
    """The error for requests that still name a partition of a deleted stream."""
    return UnknownStreamError(f"the stream {name!r} was deleted")


def _directories(assigned: Iterable[Assigned]) -> set[str]:
    return {directory_of(stream.name, index) for stream, index in assigned}


def _parts(whole: Sequence[Item], most: int) -> list[Sequence[Item]]:
    return [whole[at : at + most] for at in range(0, len(whole), most)]


def _nobody_asks(_name: StreamName, _index: PartitionIndex) -> None:
    """Damage is reported and nothing else."""
