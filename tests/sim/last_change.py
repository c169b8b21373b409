"""A disk that is changed so many times and no more: what was under way then stands still, until its process ends."""

import errno

from logboom.sim.disk import SimDisk
from logboom.sim.threads import current, must_wait

_CHANGES = frozenset(
    {
        "allocate",
        "begin_sync",
        "make_dir",
        "make_dirs",
        "make_root",
        "open",
        "remove_tree",
        "rename",
        "sync",
        "sync_dir",
        "truncate",
        "unlink",
        "write",
        "write_nowait",
    }
)


class LastChange:
    """Of one disk, or of several together: the change with which everything ends."""

    def __init__(self, changes_max: int) -> None:
        self.is_there = False
        self._left = changes_max

    def comes(self, operation: str) -> bool:
        """Count an operation of a disk; whether nothing may be changed any more."""
        if operation in _CHANGES:
            self._left -= 1
        self.is_there = self._left < 0
        return self.is_there

    def never_comes(self) -> None:
        """Nothing ends any more."""
        self._left = 1 << 40


def stands_still(disk: SimDisk, last: LastChange) -> None:
    """Threads that use the disk stand still once the last change has come."""
    before = disk.fault

    def fault(operation: str, path: str) -> None:
        if not (last.is_there or last.comes(operation)):
            before(operation, path)
        elif current() is not None:
            must_wait("the end").park()
        else:
            raise BlockingIOError(errno.EAGAIN, "would wait", path)  # a thread does it instead

    disk.fault = fault
