"""A simulated disk that has no room for some files."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from logboom.sim.disk import SimDisk


@contextmanager
def full(disk: SimDisk, where: str = "") -> Iterator[list[str]]:
    """Until the block ends there is no room for writes to files whose path holds `where`. Gives the paths of those
    that were refused."""
    refused: list[str] = []

    def fault(operation: str, path: str) -> None:
        if operation in ("write", "write_nowait") and where in path:
            refused.append(path)
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk.fault = fault
    yield refused
    disk.fault = lambda operation, path: None
