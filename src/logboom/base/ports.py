"""The ports through which a broker touches the machine: time, chance, threads and the disk.

Code below the front ends is handed these and never looks past them, so that a simulation can stand in for the machine:
the same seed then gives the same run. Timers need no port, because the event loop itself can be replaced.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

Item = TypeVar("Item")

Bytes = bytes | bytearray | memoryview
"""What may be written: any contiguous run of bytes, never copied on the way."""


class SyncFailedError(OSError):
    """A sync failed: writes since the last one may be lost, even if a second sync were to succeed."""


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
        """Seconds since some fixed moment; never goes back, and goes on while the machine sleeps."""

    def monotonic_ns(self) -> int:
        """The same moment in nanoseconds, for measuring how long something took."""


class Ids(Protocol):
    """Random values: they cannot be guessed, and do not repeat."""

    def uuid(self) -> UUID:
        """A random UUID (version 4)."""

    def below(self, bound: int) -> int:
        """A random integer from 0 to `bound` - 1."""


class Mailbox(Protocol[Item]):
    """An unbounded queue between threads, first in, first out. `queue.SimpleQueue` is one."""

    def put(self, item: Item) -> None:
        """Append an item. Never waits."""

    def get(self) -> Item:
        """Wait for the oldest item and take it. Not on the event loop."""

    def get_nowait(self) -> Item:
        """Take the oldest item; `queue.Empty` where there is none."""


class Thread(Protocol):
    """A running thread. `threading.Thread` is one."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most `timeout` seconds. Not on the event loop."""


class Helper(Protocol):
    """Another process of this program, which works for this one: for what would keep the interpreter busy for long.

    For one thread at a time. It ends with this process, whatever ends that.
    """

    def send(self, message: bytes, file: "File | None" = None) -> None:
        """Send a message, with an open file that the other process gets too. OSError where that has ended."""

    def receive(self) -> bytes:
        """Wait for the next message. OSError where the process has ended; TimeoutError where it says nothing for
        minutes, as one does that was stopped by a signal.
        """

    def kill(self) -> None:
        """Kill it, from any thread: who waits for it gets an OSError. `end` follows."""

    def end(self) -> None:
        """Kill it, and return once it is gone. Idempotent."""


class HelperSide(Protocol):
    """What a helper process has of the one that it works for."""

    def send(self, message: bytes) -> None:
        """Send a message. EOFError where the other process has ended."""

    def receive(self) -> "tuple[bytes, File | None]":
        """Wait for the next message, and the file that came with it. EOFError where the other process has ended."""


class Workers(Protocol):
    """Threads for calls that wait for the disk, which the event loop must never do.

    A thread meets others through mailboxes, through futures of a pool, and through `call_soon_threadsafe` of the loop.
    A lock may guard a few statements, but must not be held where the loop could wait for it meanwhile.
    """

    def pool(self, name: str, threads: int) -> Executor:
        """Up to `threads` threads that run what is submitted, in the order of submission."""

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        """One thread of its own that runs `run`; started, and no reason for the process to stay alive."""

    def mailbox(self) -> Mailbox[Any]:
        """An empty mailbox for threads of these workers."""

    def waits(self) -> int:
        """How often the calling thread has been put to sleep until something happened: the disk was ready, or a lock
        was free. If it is the same before and after a call that took long, the thread had no processor meanwhile.
        Where the system does not tell, it differs each time.
        """

    def helper(self, work: str) -> Helper | None:
        """Start a process that runs the function `work`, `module:name`, which gets a `HelperSide`. Waits until it has
        begun to start. None where there are no other processes, as in a simulation. Raises OSError.
        """


class File(Protocol):
    """One open file. Every method raises OSError as the operating system does."""

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes at `offset`; fewer only at the end of the file. May wait for the disk."""

    def read_cached(self, offset: int, length: int) -> bytes | memoryview | None:
        """As `read`, but None instead of a wait where the bytes are not in memory (RWF_NOWAIT).

        What it gives is read-only.
        """

    def forget(self, offset: int, length: int) -> None:
        """Drop these bytes from memory where they are synced, so that the next read asks the disk. A hint that may do
        nothing."""

    def write(self, offset: int, buffers: Sequence[Bytes]) -> None:
        """Write all buffers one after the other at `offset`; a short write is carried on until done or an error."""

    def write_out(self, offset: int, length: int, *, wait: bool) -> None:
        """Begin to give these bytes, which are written, to the device; with `wait`, return once it has them.

        Whoever writes much does so as it goes: a sync of megabytes at once holds up the syncs of all other files.
        Nothing is promised of a power failure, and where the system has no such call nothing is done. SyncFailedError
        is a sync that failed: a `sync` afterwards may succeed although the bytes are lost.
        """

    def sync(self) -> None:
        """Return once all written bytes and the length of the file survive a power failure (fdatasync). Raises
        SyncFailedError."""

    def write_nowait(self, offset: int, buffers: Sequence[Bytes]) -> bool:
        """As `write`, but False where that would wait for the disk, as far as the file system can tell; a part of the
        bytes may be written then. Only where `Disk.start_async_syncs` gave True."""

    def begin_sync(self, done: "Callable[[OSError | None], None]") -> bool:
        """On the loop: begin what `sync` does; `done` is called on the loop, with SyncFailedError where it failed.

        False: nothing was begun, and `sync` has to do it. Only where `Disk.start_async_syncs` gave True.
        """

    def descriptor(self) -> int:
        """Its number in the operating system; OSError (EOPNOTSUPP) where it is a file of something else."""

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

    def start_async_syncs(self) -> bool:
        """On the loop: whether `begin_sync` and `write_nowait` of this disk's files may be used from now on."""

    def stop_async_syncs(self) -> None:
        """On the loop: no sync is begun any more. Idempotent."""

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
        """Create a directory and its parents; nothing happens where it is there. The names of new ones survive a power
        failure on return. Raises SyncFailedError, and any other OSError."""

    def make_dirs(self, paths: Sequence[str]) -> None:
        """As `make_dir` for each of them, with one wait for the disk where they are in one directory. Where it raises,
        some of them may be there."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing a file that stands there, which goes as by `unlink`."""

    def unlink(self, path: str) -> None:
        """Remove a file. Who has it open reads on; the room of a large one may come back a little later."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it, each file as `unlink` does."""

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in a directory survive a power failure. Raises SyncFailedError, and
        any other OSError where it could not even begin."""
