"""Syncs beside the event loop, by Linux AIO: `io_submit` of an fdatasync, an eventfd that the loop watches.

Linux alone, since 4.18 (fs/aio.c, `aio_fsync`): the kernel puts the sync on a work queue of its own, so submitting one
never waits for the disk, whatever the file system does then. AIO is chosen over io_uring because containers often
forbid that (Docker's default seccomp profile does) and allow this. The calls have no wrapper in libc or Python, so they
are made by number, through `ctypes.PyDLL`: that keeps the interpreter lock, which is right for calls of a microsecond.

Knows system calls and descriptors; not what is synced, nor when it is better to use a thread.
"""

import asyncio
import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable
from typing import Final

from logboom.base.ports import SyncFailedError

SyncDone = Callable[[OSError | None], None]

_QUEUE_MAX: Final = 64
_CALLS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""Numbers of io_setup, io_destroy, io_getevents and io_submit."""
_FDSYNC: Final = 3  # IOCB_CMD_FDSYNC
_RESFD: Final = 1  # IOCB_FLAG_RESFD
_IOCB: Final = struct.Struct("<QIiHhIQQqQII")  # data, key, rw_flags, opcode, reqprio, fd, buf, nbytes, offset, -, flags
_EVENT: Final = struct.Struct("<QQqq")  # data, obj, res, res2
_BUSY: Final = (errno.EAGAIN, errno.ENOMEM)

_FILE_SYSTEMS: Final = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0xF2F52010: "f2fs",
    0x01021994: "tmpfs",
    0x794C7630: "overlay",
}
"""Magic numbers of statfs(2). A write to one of these ends in the page cache; one to FUSE, NFS or 9p waits for another
machine or process, and must not be on the loop however fast it was the last time."""


class AsyncSyncs:
    """One context of the kernel's AIO. Life: made on the loop that its callbacks run on, `close`d there."""

    def __init__(self) -> None:
        """Raises OSError where the kernel, or what it is confined by, refuses; NotImplementedError where the event loop
        watches no descriptors."""
        self._setup, self._destroy, self._getevents, self._submit = _CALLS[platform.machine()]
        self._syscall = ctypes.PyDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self._call(self._setup, ctypes.c_long(_QUEUE_MAX), ctypes.byref(self._context))
        except OSError:
            os.close(self._eventfd)
            raise
        self._iocb = ctypes.create_string_buffer(_IOCB.size)
        self._iocbs = (ctypes.c_void_p * 1)(ctypes.addressof(self._iocb))
        self._events = ctypes.create_string_buffer(_EVENT.size * _QUEUE_MAX)
        self._no_wait = ctypes.create_string_buffer(16)  # a timespec of zero
        self._done: dict[int, SyncDone] = {}
        self._last = 0
        self._refused = False
        self._loop = asyncio.get_running_loop()
        try:
            self._loop.add_reader(self._eventfd, self._on_ready)
        except NotImplementedError:
            self._call(self._destroy, self._context)
            os.close(self._eventfd)
            raise

    def submit(self, fd: int, done: SyncDone) -> bool:
        """Begin an fdatasync; `done` is called on the loop. False: nothing was begun, and a thread must do it."""
        if self._refused or len(self._done) >= _QUEUE_MAX:
            return False
        self._last = number = self._last + 1
        _IOCB.pack_into(self._iocb, 0, number, 0, 0, _FDSYNC, 0, fd, 0, 0, 0, 0, _RESFD, self._eventfd)
        try:
            # The kernel copies the control block and takes a reference to the file before this returns.
            self._call(self._submit, self._context, ctypes.c_long(1), self._iocbs)
        except OSError as error:
            # EINVAL: a kernel before 4.18, or a file system without fsync. It would say so every time.
            self._refused = error.errno not in _BUSY
            return False
        self._done[number] = done
        return True

    def _on_ready(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return
        count = self._call(
            self._getevents, self._context, ctypes.c_long(0), ctypes.c_long(_QUEUE_MAX), self._events, self._no_wait
        )
        for at in range(count):
            number, _, result, _ = _EVENT.unpack_from(self._events, at * _EVENT.size)
            done = self._done.pop(number)
            done(None if result >= 0 else SyncFailedError(-result, os.strerror(-result)))

    def _call(self, number: int, *arguments: object) -> int:
        result: int = self._syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    def close(self) -> None:
        """Watch no more. Where a sync has not ended the context stays, since destroying it would wait for that sync."""
        self._loop.remove_reader(self._eventfd)
        if not self._done:
            self._call(self._destroy, self._context)
            os.close(self._eventfd)


def async_syncs_for(root: os.PathLike[str]) -> AsyncSyncs | None:
    """Syncs beside the loop for files below `root`; None where system, kernel or file system has no use for them."""
    if sys.platform != "linux" or platform.machine() not in _CALLS or _file_system(root) not in _FILE_SYSTEMS:
        return None
    try:
        return AsyncSyncs()
    except (OSError, NotImplementedError):
        # ENOSYS, EPERM: not in this kernel or container; EAGAIN: fs.aio-max-nr is reached.
        return None


def _file_system(root: os.PathLike[str]) -> int:
    """`f_type` of statfs(2), which os.statvfs leaves out."""
    found = ctypes.create_string_buffer(256)
    statfs = ctypes.CDLL(None, use_errno=True).statfs
    if statfs(os.fsencode(root), found) != 0:
        return -1
    kind: int = struct.unpack_from("<q", found)[0]
    return kind
