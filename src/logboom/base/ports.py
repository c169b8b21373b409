"""The ports through which the house touches the world: time and disk.

A core is handed these and never looks past them, so that a simulation can stand in for the machine.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Bytes = bytes | bytearray | memoryview
"""What may be written: any contiguous run of bytes, never copied on the way."""


class SyncFailedError(OSError):
    """A sync did not succeed: what was written since the last one may be gone, whatever a second try would say."""


class LockHeldError(OSError):
    """A lock file is held by another process, or by another opener in this one."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(f"{path} is locked by another process")
        self.holder = holder
        """What the holder wrote into the file, its process id; empty where that cannot be read."""


class DiskSpace(NamedTuple):
    """Room on a file system."""

    total_bytes: int
    usable_bytes: int
    """What a process without privileges can still write."""


class Clock(Protocol):
    """Time as this process sees it."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""


class File(Protocol):
    """One open file. Every method raises OSError as the operating system does."""

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes at `offset`; fewer only at the end of the file. May wait for the disk."""

    def read_cached(self, offset: int, length: int) -> bytes | memoryview | None:
        """As `read`, but None instead of a wait where the bytes are not in memory (RWF_NOWAIT).

        What it gives is read-only.
        """

    def write(self, offset: int, buffers: Sequence[Bytes]) -> None:
        """Write all buffers one behind the other at `offset`; a short write is carried on until done or an error."""

    def sync(self) -> None:
        """Return once all written bytes and the length of the file survive a power failure (fdatasync). Raises
        SyncFailedError."""

    def truncate(self, length: int) -> None:
        """Cut or extend (with zeros) to `length` bytes."""

    def allocate(self, length: int) -> None:
        """Reserve room so that the first `length` bytes can be written without asking for more; reads there give
        zeros and `size` may grow to `length`."""

    def size(self) -> int:
        """Length in bytes."""

    def close(self) -> None:
        """Give the handle back. Idempotent; does not sync."""


class Lock(Protocol):
    """A lock that is held. The end of the process gives it back too."""

    def close(self) -> None:
        """Give it back. Idempotent."""


class Disk(Protocol):
    """One directory tree. Paths are relative to its root, with `/` between the names; the root itself is `.`."""

    def make_root(self) -> None:
        """Create the root and its parents where they are missing; on return their names survive a power failure."""

    def lock(self, path: str) -> Lock:
        """Lock a file against all other openers, creating it where it is missing. Raises LockHeldError."""

    def space(self) -> DiskSpace:
        """How much room the file system has. May wait for the disk."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless it is there or `create` is given."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    def size(self, path: str) -> int:
        """Length of a file in bytes; FileNotFoundError where there is none."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; FileNotFoundError where there is none."""

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents; nothing happens where it is there."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing a file that stands there."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it."""

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in a directory survive a power failure. Raises SyncFailedError, and
        any other OSError where it could not even begin."""
