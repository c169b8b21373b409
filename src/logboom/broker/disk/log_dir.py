"""What is told of the one log dir: whether it takes writes, and how much room its file system has."""

import os
from dataclasses import dataclass
from pathlib import Path

from logboom.base.errors import StorageError


@dataclass(frozen=True, slots=True)
class LogDirState:
    """One log dir as DescribeLogDirs tells of it; -1 where its file system does not say."""

    path: str
    failure: StorageError | None
    total_bytes: int
    usable_bytes: int


def log_dir_state(where: Path, failure: StorageError | None) -> LogDirState:
    """Ask the file system, which may take its time."""
    path = str(where.absolute())
    try:
        space = os.statvfs(path)
    except OSError as error:
        return LogDirState(path, failure or StorageError(f"{path}: {error}"), -1, -1)
    return LogDirState(path, failure, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize)
