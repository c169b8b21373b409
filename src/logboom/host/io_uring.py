"""Syncs beside the event loop by io_uring(7): an fdatasync that a worker thread of the kernel does.

Linux alone, since 5.5. The worker may run on any core, so a sync begins while the loop goes on; that of Linux AIO is
bound to the loop's core. Containers and hosts may forbid io_uring (Docker's default seccomp profile, the sysctl
`kernel.io_uring_disabled`), which is an OSError at the start.

A ring is memory shared with the kernel: entries of what is to be done, which `io_uring_enter` takes, and of what has
ended. One thread submits and takes, with a system call between the kernel's side and this one each time, so that the
order of plain loads and stores is enough.
"""

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Iterator
from typing import Final

from logboom.host.sync_queue import QUEUE_MAX, SyncQueue
from logboom.host.system_calls import system_call

_SETUP: Final = 425
_ENTER: Final = 426
_REGISTER: Final = 427
"""The numbers are the same on every architecture (io_uring_setup(2), io_uring_enter(2), io_uring_register(2))."""
_REGISTER_EVENTFD: Final = 4
_FSYNC: Final = 3  # IORING_OP_FSYNC
_DATASYNC: Final = 1  # IORING_FSYNC_DATASYNC
_SINGLE_MMAP: Final = 1  # IORING_FEAT_SINGLE_MMAP, 5.4: one mapping for both rings
_NODROP: Final = 2  # IORING_FEAT_NODROP, 5.5: no end is lost where the ring is full
_NEEDED: Final = _SINGLE_MMAP | _NODROP
_OFFSET_SQES: Final = 0x10000000  # IORING_OFF_SQES

_PARAMS: Final = struct.Struct("<10I8IQ8IQ")
"""struct io_uring_params: ten words, of which the first two are the sizes of the rings and the sixth is the features;
then where in the mapping the parts of the submission ring are, and those of the completion ring."""
_ENTRY: Final = struct.Struct("<BBHiQQIIQ24x")  # opcode, flags, ioprio, fd, off, addr, len, fsync_flags, user_data
_ENDED: Final = struct.Struct("<QiI")  # user_data, res, flags
_WORD: Final = struct.Struct("<I")
_WORD_MASK: Final = 0xFFFF_FFFF


class IoUringQueue(SyncQueue):
    """One ring. See `SyncQueue`."""

    def _open(self, eventfd: int) -> None:
        self._descriptors: dict[int, int] = {}
        params = ctypes.create_string_buffer(_PARAMS.size)
        self._ring = system_call(_SETUP, ctypes.c_uint(QUEUE_MAX), params)
        try:
            self._map(_PARAMS.unpack(params))
            descriptor = ctypes.c_int(eventfd)
            self._call(_REGISTER, ctypes.c_uint(_REGISTER_EVENTFD), ctypes.byref(descriptor), ctypes.c_uint(1))
        except OSError:
            os.close(self._ring)
            raise

    def _map(self, params: tuple[int, ...]) -> None:
        """Map the rings, and note where their parts are (io_uring_setup(2))."""
        entries, ended_entries, features = params[0], params[1], params[5]
        if features & _NEEDED != _NEEDED:
            raise OSError(errno.EOPNOTSUPP, "an io_uring of before Linux 5.5")
        _, self._tail, mask, _, _, _, array, *_ = params[10:19]
        self._ended_head, self._ended_tail, ended_mask, _, _, self._ended_at, *_ = params[19:]
        size = max(array + entries * _WORD.size, self._ended_at + ended_entries * _ENDED.size)
        self._rings = self._mapped(size, 0)
        self._entries = self._mapped(entries * _ENTRY.size, _OFFSET_SQES)
        (self._mask,), (self._ended_mask,) = (_WORD.unpack_from(self._rings, at) for at in (mask, ended_mask))
        for at in range(entries):  # the entries are used in their order, round and round
            _WORD.pack_into(self._rings, array + at * _WORD.size, at)

    def _mapped(self, size: int, offset: int) -> mmap.mmap:
        return mmap.mmap(
            self._ring, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset
        )

    def _begin(self, number: int, fd: int) -> None:
        # The worker looks the descriptor up, when its turn has come: by then it could be another file's.
        own = os.dup(fd)
        try:
            self._enter(number, own)
        except OSError:
            os.close(own)
            raise
        self._descriptors[number] = own

    def _enter(self, number: int, fd: int) -> None:
        (tail,) = _WORD.unpack_from(self._rings, self._tail)
        place = (tail & self._mask) * _ENTRY.size
        _ENTRY.pack_into(self._entries, place, _FSYNC, 0, 0, fd, 0, 0, 0, _DATASYNC, number)
        _WORD.pack_into(self._rings, self._tail, (tail + 1) & _WORD_MASK)
        try:
            if not self._call(_ENTER, ctypes.c_uint(1), ctypes.c_uint(0), ctypes.c_uint(0), None, ctypes.c_size_t(0)):
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        except OSError:
            # Not taken: the next one takes its place.
            _WORD.pack_into(self._rings, self._tail, tail)
            raise

    def _ended(self) -> Iterator[tuple[int, int]]:
        (head,) = _WORD.unpack_from(self._rings, self._ended_head)
        (tail,) = _WORD.unpack_from(self._rings, self._ended_tail)
        while head != tail:
            number, result, _ = _ENDED.unpack_from(
                self._rings, self._ended_at + (head & self._ended_mask) * _ENDED.size
            )
            head = (head + 1) & _WORD_MASK
            _WORD.pack_into(self._rings, self._ended_head, head)
            os.close(self._descriptors.pop(number))
            yield number, result

    def _release(self) -> None:
        os.close(self._ring)  # with the mappings it goes when the last reference does

    def _call(self, number: int, *arguments: object) -> int:
        return system_call(number, ctypes.c_uint(self._ring), *arguments)
