"""Write-back of a part of a file now, by Linux's sync_file_range(2), which Python does not have.

Knows the system call and its errors; not what is written, nor when that pays.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from typing import Final

_WRITE: Final = 2
_WRITE_AND_WAIT: Final = 1 | 2 | 4
"""SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER: all of the range that is dirty, also what is on its way."""
_REFUSED: Final = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE, errno.EPERM)
"""The kernel, the file system, or a filter of system calls (seccomp) does not have it; nothing was begun."""


def _system_call() -> Callable[[int, int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)  # gives up the interpreter lock
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        call.restype = ctypes.c_int
    return call


_SYNC_FILE_RANGE: Final = _system_call()


def write_out(fd: int, offset: int, length: int, *, wait: bool) -> None:
    """Begin to give what was written to this range to the device; with `wait`, return once it has it. Does nothing
    where there is no such call.

    OSError where write-back failed, now or since the last sync: as after a failed sync, the bytes may be lost.
    """
    if _SYNC_FILE_RANGE is None or not length:  # a length of 0 would mean up to the end of the file
        return
    if _SYNC_FILE_RANGE(fd, offset, length, _WRITE_AND_WAIT if wait else _WRITE):
        code = ctypes.get_errno()
        if code not in _REFUSED:
            raise OSError(code, os.strerror(code))
