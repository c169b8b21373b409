"""Syncs beside the event loop by Linux AIO: `io_submit` of an fdatasync.

Linux alone, since 4.18 (fs/aio.c, `aio_fsync`): the kernel puts the sync on a work queue of its own, so submitting one
never waits for the disk, whatever the file system does then. Its worker is bound to the core of the submitter, so a
sync begins once the loop sleeps or has had its slice of that core.
"""

import ctypes
import platform
import struct
from collections.abc import Iterator
from typing import Final

from logboom.host.sync_queue import QUEUE_MAX, SyncQueue
from logboom.host.system_calls import system_call

_CALLS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""Numbers of io_setup, io_destroy, io_getevents and io_submit."""
_FDSYNC: Final = 3  # IOCB_CMD_FDSYNC
_RESFD: Final = 1  # IOCB_FLAG_RESFD
_IOCB: Final = struct.Struct("<QIiHhIQQqQII")  # data, key, rw_flags, opcode, reqprio, fd, buf, nbytes, offset, -, flags
_EVENT: Final = struct.Struct("<QQqq")  # data, obj, res, res2


class LinuxAioQueue(SyncQueue):
    """One context of the kernel's AIO. See `SyncQueue`."""

    def _open(self, eventfd: int) -> None:
        self._setup, self._destroy, self._getevents, self._submit = _CALLS[platform.machine()]
        self._context = ctypes.c_ulong(0)
        system_call(self._setup, ctypes.c_long(QUEUE_MAX), ctypes.byref(self._context))
        self._resfd = eventfd
        self._iocb = ctypes.create_string_buffer(_IOCB.size)
        self._iocbs = (ctypes.c_void_p * 1)(ctypes.addressof(self._iocb))
        self._events = ctypes.create_string_buffer(_EVENT.size * QUEUE_MAX)
        self._no_wait = ctypes.create_string_buffer(16)  # a timespec of zero

    def _begin(self, number: int, fd: int) -> None:
        # EINVAL: a kernel before 4.18, or a file system without fsync.
        _IOCB.pack_into(self._iocb, 0, number, 0, 0, _FDSYNC, 0, fd, 0, 0, 0, 0, _RESFD, self._resfd)
        system_call(self._submit, self._context, ctypes.c_long(1), self._iocbs)

    def _ended(self) -> Iterator[tuple[int, int]]:
        count = system_call(
            self._getevents, self._context, ctypes.c_long(0), ctypes.c_long(QUEUE_MAX), self._events, self._no_wait
        )
        for at in range(count):
            number, _, result, _ = _EVENT.unpack_from(self._events, at * _EVENT.size)
            yield number, result

    def _release(self) -> None:
        system_call(self._destroy, self._context)
