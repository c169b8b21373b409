"""Which way syncs beside the event loop go here: by io_uring, else by Linux AIO, else not at all."""

import ctypes
import os
import platform
import struct
import sys
from typing import Final

from logboom.host.io_uring import IoUringQueue
from logboom.host.linux_aio import LinuxAioQueue
from logboom.host.sync_queue import SyncQueue

_WAYS: Final[tuple[type[SyncQueue], ...]] = (IoUringQueue, LinuxAioQueue)
_MACHINES: Final = ("x86_64", "aarch64")
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


def async_syncs_for(root: os.PathLike[str]) -> SyncQueue | None:
    """Syncs beside the loop for files below `root`; None where system, kernel or file system has no use for them."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES or _file_system(root) not in _FILE_SYSTEMS:
        return None
    for way in _WAYS:
        try:
            return way()
        except OSError:
            continue  # ENOSYS, EPERM: not in this kernel or container; EAGAIN, ENOMEM: a limit of it is reached
        except NotImplementedError:
            return None
    return None


def _file_system(root: os.PathLike[str]) -> int:
    """`f_type` of statfs(2), which os.statvfs leaves out."""
    found = ctypes.create_string_buffer(256)
    statfs = ctypes.CDLL(None, use_errno=True).statfs
    if statfs(os.fsencode(root), found) != 0:
        return -1
    kind: int = struct.unpack_from("<q", found)[0]
    return kind
