"""The Disk port in memory: it knows what is durable, and can lose, tear, refuse and fail what is not.

A write is seen at once by every reader, as in a page cache. `power_cut` gives the disk as a machine may find it after a
power failure: all that was synced, and any part of what was not, sector by sector and in any combination, so that a
later write may survive an earlier one. The name of a file is durable once its directory was synced, each name for
itself; but a rename of a durable name is lost or survives as one, as in the journals of file systems. A sync that
fails leaves its writes in doubt for ever: no later sync makes them durable, as with the page cache of Linux.
`capacity_bytes` fills the disk (ENOSPC), and `fault` can make any call fail, or wait. Syncs beside the event loop are
offered where `complete_later` says when they end; without it the disk has none, as FUSE has none.

Knows bytes and names; not what a log is.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import product
from typing import Protocol

from logboom.base.ports import Bytes, DiskSpace, File, LockHeldError, SyncFailedError

SECTOR_BYTES = 512

Fault = Callable[[str, str], None]
"""Called with the name of the operation and the path before it happens; may raise OSError. From `write_nowait`,
`read_cached` and `begin_sync`, BlockingIOError says that the operation would have to wait (EAGAIN)."""

CompleteLater = Callable[[str, Callable[[OSError | None], None]], None]
"""Called with the path of a sync that was begun beside the event loop and a function to call, on that loop, when the
sync has ended: with None, or with the error it ended with."""


class Chance(Protocol):
    """What decides whether something unsynced survives: below one half it does. `random.Random` is one."""

    def random(self) -> float: ...


class Always:
    """Decides alike each time: nothing unsynced survives, or everything does."""

    def __init__(self, survives: bool) -> None:
        self._number = 0.0 if survives else 1.0

    def random(self) -> float:
        return self._number


class Decisions:
    """Decides as it is told, and counts how often it was asked; the last word holds for all further questions."""

    def __init__(self, survives: Sequence[bool]) -> None:
        self._survives = survives or (False,)
        self.asked = 0

    def random(self) -> float:
        at = min(self.asked, len(self._survives) - 1)
        self.asked += 1
        return 0.0 if self._survives[at] else 1.0


def every_decision(count: int) -> Iterator[Decisions]:
    """All combinations of so many decisions."""
    return (Decisions(survives) for survives in product((False, True), repeat=count))


class State(Enum):
    """What is known of a change of a file."""

    SYNCED = 0
    WRITTEN = 1
    DOUBTFUL = 2
    """Its sync failed: it may be on the disk or not, and no later sync says anything of it."""


@dataclass
class Change:
    """Bytes at an offset, or a new length (`content` is None)."""

    offset: int
    content: bytes | None
    state: State = State.WRITTEN


@dataclass
class Inode:
    """One file: its bytes now, those that are durable for sure, and what happened since, in order."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    changes: list[Change] = field(default_factory=list)
    has_flipped: bool = False
    """Whether a bit of it was ever another one than was written."""

    def write(self, offset: int, content: bytes) -> None:
        _apply(self.data, offset, content)
        self.changes.append(Change(offset, content))

    def truncate(self, length: int) -> None:
        _apply(self.data, length, None)
        self.changes.append(Change(length, None))

    def unsynced(self) -> list[Change]:
        """What a sync that begins now is about."""
        return [change for change in self.changes if change.state is State.WRITTEN]

    def sync(self, changes: Sequence[Change] | None = None) -> None:
        """These changes are durable, or all that are not in doubt."""
        for change in self.unsynced() if changes is None else changes:
            if change.state is State.WRITTEN:
                change.state = State.SYNCED
        while self.changes and self.changes[0].state is State.SYNCED:
            change = self.changes.pop(0)
            _apply(self.durable, change.offset, change.content)

    def sync_failed(self) -> None:
        for change in self.changes:
            if change.state is State.WRITTEN:
                change.state = State.DOUBTFUL

    def flip(self, bit: int) -> None:
        """One bit is another one, also on the disk."""
        self.has_flipped = True
        for data in (self.data, self.durable):
            data[bit // 8] ^= 1 << bit % 8

    def copy(self) -> "Inode":
        changes = [replace(change) for change in self.changes]
        return Inode(bytearray(self.data), bytearray(self.durable), changes, self.has_flipped)

    def after_power_cut(self, chance: Chance) -> "Inode":
        survived = bytearray(self.durable)
        for change in self.changes:
            for offset, content in _sectors(change):
                if change.state is State.SYNCED or chance.random() < 0.5:
                    _apply(survived, offset, content)
        return replace(settled(survived), has_flipped=self.has_flipped)


def settled(data: bytes | bytearray) -> Inode:
    """A file with nothing left to sync."""
    return Inode(bytearray(data), bytearray(data))


def _sectors(change: Change) -> Iterator[tuple[int, bytes | None]]:
    if change.content is None:
        yield change.offset, None
        return
    start, end = change.offset, change.offset + len(change.content)
    while start < end:
        upto = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield start, change.content[start - change.offset : upto - change.offset]
        start = upto


def _apply(data: bytearray, offset: int, content: bytes | None) -> None:
    if content is None:
        del data[offset:]
        data.extend(bytes(offset - len(data)))
        return
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(content)] = content


class SimFile:
    """The File port on one file of the disk; it may go on after the name was removed, as on POSIX."""

    def __init__(self, disk: "SimDisk", path: str, node: Inode) -> None:
        self._disk, self._path, self._node = disk, path, node

    def read(self, offset: int, length: int) -> bytes:
        self._disk.fault("read", self._path)
        return bytes(self._node.data[offset : offset + length])

    def read_cached(self, offset: int, length: int) -> bytes | None:
        if not self._disk.cached:
            return None
        try:
            self._disk.fault("read_cached", self._path)
        except BlockingIOError:
            return None
        return bytes(self._node.data[offset : offset + length])

    def forget(self, offset: int, length: int) -> None:
        """Nothing: a bit that flips here does so in memory and on the disk at once."""

    def write(self, offset: int, buffers: Sequence[Bytes]) -> None:
        self._write("write", offset, b"".join(buffers))

    def _write(self, operation: str, offset: int, content: bytes) -> None:
        try:
            self._disk.fault(operation, self._path)
        except OSError as error:
            # Written short, as the operating system does, though never within a sector.
            upto = (offset + len(content) // 2) // SECTOR_BYTES * SECTOR_BYTES
            if upto > offset:
                self._disk.grow(self._node, upto)
                self._node.write(offset, content[: upto - offset])
            raise error from None
        if not self._disk.grow(self._node, offset + len(content)):
            growth = offset + len(content) - len(self._node.data)
            self._node.write(offset, content[: len(content) - growth + self._disk.free_bytes])
            self._disk.on_full()
            raise OSError(errno.ENOSPC, "no space left on this disk")
        self._node.write(offset, content)

    def sync(self) -> None:
        changes = self._node.unsynced()  # what is written while the disk is at it waits for the next sync
        try:
            self._disk.fault("sync", self._path)
        except OSError as error:
            self._node.sync_failed()
            raise SyncFailedError(*error.args) from error
        self._node.sync(changes)
        self._disk.syncs += 1

    def write_out(self, offset: int, length: int, *, wait: bool) -> None:
        """Nothing becomes durable by it. Where it fails, what was written is in doubt like after a failed sync."""
        try:
            self._disk.fault("write_out" if wait else "begin_write_out", self._path)
        except OSError as error:
            self._node.sync_failed()
            raise SyncFailedError(*error.args) from error

    def write_nowait(self, offset: int, buffers: Sequence[Bytes]) -> bool:
        try:
            self._write("write_nowait", offset, b"".join(buffers))
        except BlockingIOError:
            return False
        return True

    def descriptor(self) -> int:
        raise OSError(errno.EOPNOTSUPP, "a simulated file has no descriptor")

    def begin_sync(self, done: Callable[[OSError | None], None]) -> bool:
        complete_later = self._disk.started_syncs
        if complete_later is None:
            return False
        try:
            self._disk.fault("begin_sync", self._path)
        except BlockingIOError:
            return False
        changes = self._node.unsynced()

        def ended(error: OSError | None) -> None:
            if self._disk.started_syncs is None:
                return  # stopped: as with the kernel's queues, nothing watches for completions any more
            if error is not None:
                self._node.sync_failed()
                done(SyncFailedError(*error.args))
                return
            self._node.sync(changes)
            self._disk.syncs += 1
            done(None)

        complete_later(self._path, ended)
        return True

    def truncate(self, length: int) -> None:
        self._disk.fault("truncate", self._path)
        self._disk.grow(self._node, length)
        self._node.truncate(length)

    def allocate(self, length: int) -> None:
        self._disk.fault("allocate", self._path)
        if length > len(self._node.data):
            if not self._disk.grow(self._node, length):
                self._disk.on_full()
                raise OSError(errno.ENOSPC, "no space left on this disk")
            self._node.truncate(length)

    def size(self) -> int:
        return len(self._node.data)

    def close(self) -> None:
        pass


class SimLock:
    """The Lock port."""

    def __init__(self, disk: "SimDisk", path: str) -> None:
        self._disk, self._path = disk, path
        disk.locked.add(path)

    def close(self) -> None:
        self._disk.locked.discard(self._path)


class SimDisk:
    """Implements the Disk port."""

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        self.nodes: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.directories: set[str] = {"."}
        self.capacity_bytes = capacity_bytes
        self._room_of, self._room_bytes = capacity_bytes, 0
        """At which capacity at least how much is free."""
        self.cached = True
        self.syncs = 0
        self.locked: set[str] = set()
        """Lock files that are held; a power cut or the end of the process (`copy`) lets go of them."""
        self.fault: Fault = lambda operation, path: None
        self.complete_later: CompleteLater | None = None
        """When syncs beside the event loop end; None where this disk has none."""
        self.on_full: Callable[[], None] = lambda: None
        """Called where something is refused for want of room."""
        self.started_syncs: CompleteLater | None = None
        """The same between `start_async_syncs` and `stop_async_syncs`."""

    @property
    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - sum(len(node.data) for node in self.nodes.values()))

    def has_room(self, size_bytes: int) -> bool:
        """Whether so many bytes more fit. What all files hold is added up only where that may be too much."""
        if size_bytes > self._room_bytes or self.capacity_bytes != self._room_of:
            self._room_of, self._room_bytes = self.capacity_bytes, self.free_bytes
        return size_bytes <= self._room_bytes

    def grow(self, node: Inode, end: int) -> bool:
        """A file is about to end there, if it ends before that now; whether there is room for it."""
        growth = max(0, end - len(node.data))
        if not growth:
            return True
        has_room = self.has_room(growth)
        self._room_bytes -= growth
        return has_room

    @property
    def is_settled(self) -> bool:
        """Whether a power failure would change nothing."""
        return self.nodes == self.durable_names and not any(node.changes for node in self.nodes.values())

    def power_cut(self, chance: Chance) -> "SimDisk":
        """The disk as it may be found after the power went."""
        after = type(self)(self.capacity_bytes)
        after.directories = set(self.directories)
        names = dict(self.durable_names)
        renamed_from = {id(node): name for name, node in self.durable_names.items() if name not in self.nodes}
        renamed = {id(node) for node in self.nodes.values()}
        # What was done to names since their directory was synced may or may not have reached the disk.
        for name in sorted(set(self.nodes) | set(self.durable_names)):
            node, durable = self.nodes.get(name), self.durable_names.get(name)
            if node is durable or (node is None and id(durable) in renamed):
                continue  # unchanged, or decided with its new name
            if chance.random() < 0.5:
                names.pop(name, None)
                if node is not None:
                    names[name] = node
                    names.pop(renamed_from.get(id(node), ""), None)
        # A file whose removal did not reach the disk is found in its directory, whose removal did not either.
        after.directories.update(parent for name in names for parent in _parents(name))
        after.nodes = {name: node.after_power_cut(chance) for name, node in names.items()}
        after.durable_names = dict(after.nodes)
        return after

    def after_kill(self) -> "SimDisk":
        """The disk as the next process finds it after kill -9: all writes are there, and what was not synced is still
        not durable. The disk itself must be used no more."""
        after = type(self)(self.capacity_bytes)
        after.directories = set(self.directories)
        after.nodes = dict(self.nodes)
        after.durable_names = dict(self.durable_names)
        return after

    def restarted(self) -> "SimDisk":
        """As `after_kill`, as a disk of its own. What a failed sync left in doubt is read like anything else, and is in
        doubt still."""
        after = type(self)(self.capacity_bytes)
        after.directories = set(self.directories)
        copies = {id(node): node.copy() for node in (*self.nodes.values(), *self.durable_names.values())}
        after.nodes = {name: copies[id(node)] for name, node in self.nodes.items()}
        after.durable_names = {name: copies[id(node)] for name, node in self.durable_names.items()}
        return after

    def copy(self) -> "SimDisk":
        """Another disk with all that was written here, and all of it durable."""
        after = type(self)(self.capacity_bytes)
        after.directories = set(self.directories)
        after.nodes = {name: settled(node.data) for name, node in self.nodes.items()}
        after.durable_names = dict(after.nodes)
        return after

    def make_root(self) -> None:
        self.fault("make_root", ".")

    def lock(self, path: str) -> SimLock:
        self.open(path, create=True)
        if path in self.locked:
            raise LockHeldError(path, "")
        return SimLock(self, path)

    def start_async_syncs(self) -> bool:
        self.started_syncs = self.complete_later
        return self.started_syncs is not None

    def stop_async_syncs(self) -> None:
        self.started_syncs = None

    def space(self) -> DiskSpace:
        self.fault("space", ".")
        return DiskSpace(self.capacity_bytes, self.free_bytes)

    def open(self, path: str, *, create: bool = False) -> File:
        self.fault("open", path)
        if path in self.directories:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        if path not in self.nodes:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            self.nodes[path] = Inode()
        return SimFile(self, path, self.nodes[path])

    def exists(self, path: str) -> bool:
        return path in self.nodes or path in self.directories

    def size(self, path: str) -> int:
        self.fault("size", path)
        if path in self.directories:
            return 4096
        if path not in self.nodes:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return len(self.nodes[path].data)

    def list(self, path: str) -> list[str]:
        self.fault("list", path)
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        prefix = "" if path == "." else path + "/"
        below = [name[len(prefix) :] for name in (*self.nodes, *self.directories) if name.startswith(prefix)]
        return sorted({name.split("/")[0] for name in below if name and name != "."})

    def make_dir(self, path: str) -> None:
        self.fault("make_dir", path)
        self.directories.update((*_parents(path), path))

    def make_dirs(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.make_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.fault("rename", target)
        if target in self.directories:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", target)
        if source in self.directories:
            self.directories = {_moved(name, source, target) for name in self.directories}
            for names in (self.nodes, self.durable_names):
                moved = {_moved(name, source, target): node for name, node in names.items()}
                names.clear()
                names.update(moved)
            return
        if source not in self.nodes:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)
        self.nodes[target] = self.nodes.pop(source)

    def unlink(self, path: str) -> None:
        self.fault("unlink", path)
        if path in self.directories:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        if path not in self.nodes:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        del self.nodes[path]

    def remove_tree(self, path: str) -> None:
        self.fault("remove_tree", path)
        for name in [name for name in self.nodes if name.startswith(path + "/")]:
            del self.nodes[name]
        self.directories = {name for name in self.directories if name != path and not name.startswith(path + "/")}

    def sync_dir(self, path: str) -> None:
        try:
            self.fault("sync_dir", path)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # it could not even be opened
            raise SyncFailedError(*error.args) from error
        prefix = "" if path == "." else path + "/"
        # Sorted: the order in which names became durable is the order in which a power cut decides on them.
        inside = sorted({name for name in (*self.nodes, *self.durable_names) if name.startswith(prefix)})
        for name in inside:
            if "/" in name[len(prefix) :]:
                continue
            if name in self.nodes:
                self.durable_names[name] = self.nodes[name]
            else:
                self.durable_names.pop(name, None)


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def _moved(name: str, source: str, target: str) -> str:
    return target + name[len(source) :] if name == source or name.startswith(source + "/") else name
