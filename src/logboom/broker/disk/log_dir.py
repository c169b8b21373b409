"""What DescribeLogDirs reports of the log dir: whether it accepts writes, and how much space its file system has."""

from dataclasses import dataclass
from pathlib import Path

from logboom.base.errors import StorageError
from logboom.base.ports import Disk


@dataclass(frozen=True, slots=True)
class LogDirState:
    """State of one log dir; sizes are -1 where the file system does not tell."""

    path: str
    failure: StorageError | None
    total_bytes: int
    usable_bytes: int


def log_dir_state(disk: Disk, where: Path, failure: StorageError | None) -> LogDirState:
    """Ask the file system, which may wait for the disk. `failure` is why the log dir takes no writes, if so."""
    path = str(where.absolute())
    try:
        space = disk.space()
    except OSError as error:
        return LogDirState(path, failure or StorageError(f"{path}: {error}"), -1, -1)
    return LogDirState(path, failure, space.total_bytes, space.usable_bytes)
