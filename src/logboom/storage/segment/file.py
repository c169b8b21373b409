"""The `.log` file of one segment: opened when first needed, written at its end, with room reserved ahead."""

import errno
from collections.abc import Sequence
from typing import Final

from logboom.base.ids import Offset
from logboom.base.ports import Bytes, File
from logboom.base.units import KIB, MIB
from logboom.storage.open_files import OpenFiles
from logboom.storage.segment.directory import LogDirectory
from logboom.storage.segment.sparse_index import SparseIndex

_MIN_ROOM_BYTES: Final = 64 * KIB
_SMALL_WRITE_BYTES: Final = 32 * KIB
_ZEROS: Final = memoryview(bytes(MIB))


class SegmentFile:
    """Batches from offset `base` on. One thread writes; any thread reads below `size_bytes`. An `OpenFiles` holder."""

    __slots__ = (
        "_allocated_bytes",
        "_directory",
        "_handle",
        "_length_is_set",
        "_open_files",
        "base",
        "cached_index",
        "end",
        "known_end",
        "name",
        "retired",
        "size_bytes",
        "unsynced",
        "used",
    )

    def __init__(self, directory: LogDirectory, name: str, base: Offset, open_files: OpenFiles) -> None:
        self._directory = directory
        self.name = name
        """The file's name in the directory; a compacted segment has another one until it is in its place."""
        self._open_files = open_files
        self._handle: File | None = None
        self._allocated_bytes = 0
        # Whether this process has set where the file ends. A sync that failed in the life before may have left the
        # length in memory only: a shortening that looks done, and what was cut off comes back after a power failure.
        self._length_is_set = False
        self.base = base
        self.used = self.unsynced = False  # base: open_files.Holder
        self.end: Offset | None = None
        """First offset of the next segment; None while this is the last one."""
        self.known_end: Offset | None = None
        """While this is the last one: the offset after its batches as far as that is known. No CRC covers a batch's
        offset (the broker sets it), so what a search after damage finds must at least lie below this."""
        self.size_bytes = 0
        """Bytes of batches; the file may be longer where room was reserved."""
        self.retired = False
        """Whether another file has taken its place, which may be the one at `path` now. It is not opened again."""
        self.cached_index: SparseIndex | None = None
        """The index while it is in memory. That of a complete segment is dropped with the handle."""

    @property
    def handle(self) -> File:
        """The open file. Raises OSError where it cannot be opened."""
        handle = self._handle
        if handle is None:
            handle = self._directory.open(self.name)
            if self.retired:  # looked at after the opening, since the file may have been replaced before it
                handle.close()
                raise FileNotFoundError(errno.ENOENT, "it was replaced by a compacted segment", self.path)
            self._handle = handle
            self._open_files.opened(self)
        self.used = True
        return handle

    def open_apart(self) -> File:
        """A handle of its own for whoever reads the whole file once. Raises OSError."""
        return self._directory.open(self.name)

    @property
    def path(self) -> str:
        return f"{self._directory.path}/{self.name}"

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    @property
    def limit(self) -> Offset:
        """The offset that no batch in here reaches above."""
        if self.end is not None:
            return self.end
        return self.known_end if self.known_end is not None else Offset(2**63 - 1)

    def create(self) -> None:
        """Make an empty file, in place of one that a failed attempt may have left."""
        self._handle = self._directory.open(self.name, create=True)
        self._handle.truncate(0)
        self._length_is_set = True
        self._open_files.opened(self)

    def adopt(self, handle: File, size_bytes: int, index: SparseIndex) -> None:
        """Consist of a file that was written elsewhere, and stay open until `unsynced` is set back."""
        self._handle, self.size_bytes, self.cached_index = handle, size_bytes, index
        self.unsynced = True
        self._open_files.opened(self)

    def retire(self) -> None:
        """Another file takes its place. Reads in progress, and those that know this object, go on with its handle; it
        is closed with the last of them."""
        self.retired = True
        self._open_files.closed(self)

    def release(self) -> None:
        """Give up handle and index; they come back when needed. Reads in progress keep theirs."""
        self._open_files.closed(self)
        self.drop_handle()

    def drop_handle(self) -> None:
        """Base: open_files.Holder."""
        self._handle = None
        if self.end is not None:
            self.cached_index = None

    def remove(self) -> None:
        """Unlink the file. Reads in progress go on with their handle."""
        self._directory.unlink(self.name)
        self._open_files.closed(self)
        self._handle = None

    def sync(self) -> None:
        """Return once all that was written survives a power failure."""
        self.handle.sync()
        self.unsynced = False

    def append(self, buffers: Sequence[Bytes], size_bytes: int, preallocate_bytes: int) -> None:
        """Write after the last batch; `size_bytes` stays as it is until the index takes note of the batches.

        After an OSError `cut` removes what was written.
        """
        self.unsynced = True
        if not self._length_is_set:
            self._set_length(max(self.size_bytes, self._allocated_bytes))
        end = self.size_bytes + size_bytes
        if preallocate_bytes and end > self._allocated_bytes:
            self._reserve(end, size_bytes, preallocate_bytes)
        self.handle.write(self.size_bytes, buffers)

    def append_nowait(self, buffers: Sequence[Bytes], size_bytes: int) -> File | None:
        """As `append`, where that is one write into room that is reserved; the handle to sync, else None.

        Raises BlockingIOError where the write would wait for the disk.
        """
        handle = self._handle
        if handle is None or not self._length_is_set or self.size_bytes + size_bytes > self._allocated_bytes:
            return None
        self.used = self.unsynced = True
        if not handle.write_nowait(self.size_bytes, buffers):
            raise BlockingIOError
        return handle

    def synced(self) -> None:
        """The handle that `append_nowait` gave was synced: all that was written survives a power failure."""
        self.unsynced = False

    def _reserve(self, end: int, size_bytes: int, preallocate_bytes: int) -> None:
        """Make room after `end`, so that the next syncs need not make the file's length durable too.

        As much as the segment is long, so that a thousand quiet partitions take next to nothing. A stream of small
        writes gets room that is zeroed: a sync into it changes nothing of the file but its bytes, which takes half the
        time of one that grows the file. For large writes the zeros would cost more than they save.
        """
        room = min(preallocate_bytes, max(end, _MIN_ROOM_BYTES))
        try:
            if size_bytes <= _SMALL_WRITE_BYTES:
                room = min(room, len(_ZEROS))
                self.handle.write(end, [_ZEROS[:room]])
            else:
                self.handle.allocate(end + room)
        except OSError:
            # Reserving is only an optimisation. If the disk is full, the write itself will say so.
            self.cut()
        else:
            self._allocated_bytes = end + room

    def cut(self) -> None:
        """Make the file end with the last batch."""
        self._set_length(self.size_bytes)
        self._allocated_bytes = 0

    def _set_length(self, length: int) -> None:
        self.handle.truncate(length)
        self._length_is_set = True

    def keep_room(self, file_bytes: int) -> None:
        """The file is so long already, and zero after the last batch: write into that before more is reserved."""
        self._allocated_bytes = file_bytes

    @property
    def has_room(self) -> bool:
        """Whether room is reserved after the last batch."""
        return self._allocated_bytes > self.size_bytes

    def trim(self) -> None:
        """Give back room that was reserved and not used."""
        if self.has_room:
            self.cut()
