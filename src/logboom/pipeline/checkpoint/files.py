"""Small files that must be complete after a crash: written under a temporary name, synced and renamed; then the
directory is synced.

Knows the disk. Must not know what the files mean.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from logboom.pipeline.errors import PipelineError

_PROBE_BYTES: Final = 64 * 1024
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk or an exhausted quota."""


def write_durably(path: Path, data: bytes) -> None:
    """Writes a file; after a crash it has either the old or the complete new content."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_dir(path.parent)


def make_dir(path: Path) -> None:
    """Creates a directory and its parents so that they survive a crash."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for directory in missing:
        sync_dir(directory.parent)


def sync_dir(path: Path) -> None:
    """Makes the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_full(directory: Path) -> bool:
    """Whether the disk of a directory has no room for a small file; False if that cannot be determined."""
    probe = directory / ".room"
    try:
        probe.write_bytes(bytes(_PROBE_BYTES))
    except OSError as error:
        return error.errno in NO_ROOM
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    return False


def numbered(directory: Path) -> list[tuple[int, Path]]:
    """Files `NUMBER.json` of a directory, lowest number first."""
    found = ((path.stem, path) for path in directory.glob("*.json"))
    return sorted((int(stem), path) for stem, path in found if stem.isdigit())


def keep_last(directory: Path, count: int) -> None:
    """Removes all numbered files but the last `count`."""
    for _, path in numbered(directory)[:-count]:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive_lock(path: Path, what: str) -> Iterator[None]:
    """Holds a lock file while the body runs; PipelineError if another process holds it."""
    make_dir(path.parent)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _in_use(what) from error
        yield


def check_unlocked(path: Path, what: str) -> None:
    """PipelineError if another process currently holds a lock file."""
    if is_locked(path):
        raise _in_use(what)


def _in_use(what: str) -> PipelineError:
    return PipelineError(f"{what} is in use by another process; stop that process first")


def is_locked(path: Path) -> bool:
    """Whether a process holds a lock file."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
