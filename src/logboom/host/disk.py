"""The Disk port on a POSIX file system: positioned, vectored reads and writes, and syncs that mean it.

It knows descriptors and errno; it must not know what the bytes are.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from logboom.base.ports import Bytes, DiskSpace, File, Lock, LockHeldError, SyncFailedError
from logboom.host.allocator import raw_buffer
from logboom.host.async_syncs import async_syncs_for
from logboom.host.reclaim import Reclaimer
from logboom.host.sync_queue import SyncDone, SyncQueue
from logboom.host.write_out import write_out

_OWNER_ALONE: Final = 0o700
_IOV_MAX: Final = min(os.sysconf("SC_IOV_MAX"), 1024)
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_DONTNEED: Final[int | None] = getattr(os, "POSIX_FADV_DONTNEED", None)
_NOWAIT_REFUSED: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_NO_PREALLOCATION: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class OsFile:
    """One open descriptor, given back by `close` or when the last reference goes.

    A reader in another thread may still hold the file when its segment is deleted; closing on the last reference
    keeps the descriptor's number from being reused under it.
    """

    __slots__ = ("_fd", "_nowait", "_syncs", "_write_nowait")

    def __init__(
        self, path: str, *, create: bool, writable: bool = True, syncs: Callable[[], SyncQueue | None] | None = None
    ) -> None:
        self._fd = -1
        self._syncs = syncs
        self._write_nowait = _NOWAIT
        mode = os.O_RDWR if writable else os.O_RDONLY
        self._fd = os.open(path, mode | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        self._nowait = _NOWAIT

    def __del__(self) -> None:
        self.close()

    def descriptor(self) -> int:
        return self._fd

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        # A read may come back short in the middle of a file; only an empty one is the end.
        parts, got = [data], len(data)
        while got < length and (data := os.pread(self._fd, length - got, offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_cached(self, offset: int, length: int) -> bytes | memoryview | None:
        if not self._nowait:
            return None
        buffer = raw_buffer(length)
        try:
            got = os.preadv(self._fd, (buffer,), offset, self._nowait)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _NOWAIT_REFUSED:
                raise
            # This file system knows no RWF_NOWAIT (FUSE, NFS): any read may wait for it, so threads do them all.
            self._nowait = 0
            return None
        if got == length:
            return memoryview(buffer).toreadonly()
        # Short: either the end of the file or the rest is not in memory.
        if offset + got >= os.fstat(self._fd).st_size:
            return memoryview(buffer)[:got].toreadonly()
        return None

    def forget(self, offset: int, length: int) -> None:
        if _DONTNEED is not None:
            os.posix_fadvise(self._fd, offset, length, _DONTNEED)

    def write(self, offset: int, buffers: Sequence[Bytes]) -> None:
        for start in range(0, len(buffers), _IOV_MAX):
            offset = self._write_some(offset, buffers[start : start + _IOV_MAX])

    def _write_some(self, offset: int, buffers: Sequence[Bytes]) -> int:
        total = sum(map(len, buffers))
        written = os.pwritev(self._fd, buffers, offset)
        if written == total:
            return offset + total
        left = memoryview(b"".join(buffers))
        while written < total:
            count = os.pwrite(self._fd, left[written:], offset + written)
            if count == 0:
                raise OSError(errno.EIO, "a write made no progress")
            written += count
        return offset + total

    def write_out(self, offset: int, length: int, *, wait: bool) -> None:
        try:
            write_out(self._fd, offset, length, wait=wait)
        except OSError as error:
            # The kernel tells each error of write-back once for an open file (errseq_t): the sync may not hear of it.
            raise SyncFailedError(*error.args) from error

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise SyncFailedError(*error.args) from error

    def write_nowait(self, offset: int, buffers: Sequence[Bytes]) -> bool:
        total = sum(map(len, buffers))
        if len(buffers) > _IOV_MAX:
            return False
        if self._write_nowait:
            try:
                return os.pwritev(self._fd, buffers, offset, self._write_nowait) == total
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno not in _NOWAIT_REFUSED:
                    raise
                # ext4 knows it for direct writes alone. It is then for the caller to watch how long a write takes.
                self._write_nowait = 0
        return os.pwritev(self._fd, buffers, offset) == total

    def begin_sync(self, done: SyncDone) -> bool:
        syncs = self._syncs() if self._syncs is not None else None
        return syncs is not None and syncs.submit(self._fd, done)

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def allocate(self, length: int) -> None:
        try:
            os.posix_fallocate(self._fd, 0, length)
        except OSError as error:
            if error.errno not in _NO_PREALLOCATION:
                raise

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class GivenFile(OsFile):
    """A file that another process opened; its descriptor is this object's from now on."""

    __slots__ = ()

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._syncs = None
        self._nowait = self._write_nowait = _NOWAIT


class OsLock:
    """An flock(2), which the kernel gives back when the descriptor is closed or the process ends."""

    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        self._fd = -1
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise LockHeldError(path, holder) from None
        with contextlib.suppress(OSError):  # only people read it, and the disk may be full
            os.pwrite(fd, f"{os.getpid():<20}\n".encode(), 0)
        self._fd = fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsDisk:
    """A directory tree below `root`."""

    __slots__ = ("_async_syncs", "_prefix", "_reclaimer", "root")

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._prefix = f"{self.root}/"
        self._async_syncs: SyncQueue | None = None
        self._reclaimer = Reclaimer()

    def start_async_syncs(self) -> bool:
        self._async_syncs = self._async_syncs or async_syncs_for(self.root)
        return self._async_syncs is not None

    def stop_async_syncs(self) -> None:
        syncs, self._async_syncs = self._async_syncs, None
        if syncs is not None:
            syncs.close()

    def _syncs(self) -> SyncQueue | None:
        return self._async_syncs

    def _path(self, path: str) -> str:
        # Plain text: a start opens ten thousand files, and Path takes longer to join than the system to open.
        return self._prefix + path

    def make_root(self) -> None:
        make_directory(self.root)

    def lock(self, path: str) -> Lock:
        return OsLock(self._path(path))

    def space(self) -> DiskSpace:
        found = os.statvfs(self.root)
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def open(self, path: str, *, create: bool = False) -> File:
        return OsFile(self._path(path), create=create, syncs=self._syncs)

    def exists(self, path: str) -> bool:
        return os.path.exists(self._path(path))

    def size(self, path: str) -> int:
        return os.stat(self._path(path)).st_size

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(self._path(path)))

    def make_dir(self, path: str) -> None:
        if not os.path.isdir(self._path(path)):
            self.make_dirs((path,))

    def make_dirs(self, paths: Sequence[str]) -> None:
        parents: dict[str, None] = {}  # each once, the outermost first
        for path in paths:
            self._make(path, parents)
        for parent in parents:
            _sync_dir(parent)

    def _make(self, path: str, parents: dict[str, None]) -> None:
        """Make one; what is to be synced is added to `parents`, also for one that a killed process may have made."""
        target = self._path(path)
        try:
            os.mkdir(target)
        except FileExistsError:
            if not os.path.isdir(target):
                raise
        except FileNotFoundError:
            parents.update((str(parent), None) for parent in _made(Path(target)))
            return
        parents[target.rpartition("/")[0]] = None

    def rename(self, source: str, target: str) -> None:
        with self._reclaimer.removal(self._path(target)):
            os.replace(self._path(source), self._path(target))

    def unlink(self, path: str) -> None:
        with self._reclaimer.removal(self._path(path)):
            os.unlink(self._path(path))

    def remove_tree(self, path: str) -> None:
        for directory, _, names in os.walk(self._path(path)):
            for name in names:
                with self._reclaimer.removal(f"{directory}/{name}"):
                    os.unlink(f"{directory}/{name}")
        shutil.rmtree(self._path(path))

    def sync_dir(self, path: str) -> None:
        _sync_dir(self._path(path))


class ReadOnlyDisk(OsDisk):
    """A directory tree that is only looked at: whatever would change it raises OSError (EROFS)."""

    __slots__ = ()

    def make_root(self) -> None:
        self._refuse(".")

    def start_async_syncs(self) -> bool:
        return False  # there is nothing to sync

    def lock(self, path: str) -> Lock:
        self._refuse(path)

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self._refuse(path)
        return OsFile(self._path(path), create=False, writable=False)

    def make_dir(self, path: str) -> None:
        self._refuse(path)

    def make_dirs(self, paths: Sequence[str]) -> None:
        self._refuse(paths[0])

    def rename(self, source: str, target: str) -> None:
        self._refuse(source)

    def unlink(self, path: str) -> None:
        self._refuse(path)

    def remove_tree(self, path: str) -> None:
        self._refuse(path)

    def sync_dir(self, path: str) -> None:
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise OSError(errno.EROFS, "this tree is only read", self._path(path))


def make_directory(path: Path) -> None:
    """Make a directory and its parents so that a power failure does not take their names, and all that is in them.

    It is the owner's alone where it is made here, since it is to hold what was said in confidence; one that is there
    stays as it is. A process that was killed may have made it without syncing its name, so that is done each time.
    """
    path = path.absolute()
    for parent in _made(path) or [path.parent]:
        with contextlib.suppress(PermissionError):  # made by an administrator, where this process may not sync
            _sync_dir(parent)


def _made(path: Path) -> list[Path]:
    """Make it where it is missing; the directories that have a new name in them, the outermost first."""
    parents = []
    at = path
    while not at.is_dir():
        at = at.parent
        parents.append(at)
    path.mkdir(_OWNER_ALONE, parents=True, exist_ok=True)
    return parents[::-1]


def _sync_dir(path: str | Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        raise SyncFailedError(*error.args, str(path)) from error
    finally:
        os.close(fd)
