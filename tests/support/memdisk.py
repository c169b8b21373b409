"""A disk in memory that keeps what was synced and loses, tears or keeps what was not.

Writes reach `data` at once; a power failure (`power_cut`) starts from what was durable and applies any part of what
was not, sector by sector. Names of files are durable once their directory was synced. The disk can be full, and any
call can be made to fail.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from logboom.base.ports import Bytes, File

SECTOR_BYTES = 512

Fault = Callable[[str, str], None]
"""Called with the name of the operation and the path before it happens; may raise OSError."""


@dataclass
class Node:
    """One file: its bytes now, those that are durable, and what happened in between."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (offset, bytes) or (length, None)

    def write(self, offset: int, content: bytes) -> None:
        _apply(self.data, offset, content)
        self.pending.append((offset, content))

    def truncate(self, length: int) -> None:
        _apply(self.data, length, None)
        self.pending.append((length, None))

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.pending.clear()

    def after_power_cut(self, random: Random) -> "Node":
        survived = bytearray(self.durable)
        for offset, content in self.pending:
            if content is None:
                if random.random() < 0.5:
                    _apply(survived, offset, None)
                continue
            for start in range(0, len(content), SECTOR_BYTES):
                if random.random() < 0.5:
                    _apply(survived, offset + start, content[start : start + SECTOR_BYTES])
        return Node(survived, bytes(survived))


def _apply(data: bytearray, offset: int, content: bytes | None) -> None:
    if content is None:
        del data[offset:]
        data.extend(bytes(offset - len(data)))
        return
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(content)] = content


class MemFile:
    def __init__(self, disk: "MemDisk", path: str, node: Node) -> None:
        self._disk, self._path, self._node = disk, path, node

    def read(self, offset: int, length: int) -> bytes:
        self._disk.fault("read", self._path)
        return bytes(self._node.data[offset : offset + length])

    def read_cached(self, offset: int, length: int) -> bytes | None:
        return self.read(offset, length) if self._disk.cached else None

    def write(self, offset: int, buffers: Sequence[Bytes]) -> None:
        self._disk.fault("write", self._path)
        content = b"".join(buffers)
        growth = max(0, offset + len(content) - len(self._node.data))
        if growth > self._disk.free_bytes:
            # Written short, as the operating system does.
            self._node.write(offset, content[: len(content) - growth + self._disk.free_bytes])
            raise OSError(errno.ENOSPC, "no space left on this disk")
        self._node.write(offset, content)

    def sync(self) -> None:
        self._disk.fault("sync", self._path)
        self._node.sync()
        self._disk.syncs += 1

    def truncate(self, length: int) -> None:
        self._disk.fault("truncate", self._path)
        self._node.truncate(length)

    def allocate(self, length: int) -> None:
        self._disk.fault("allocate", self._path)
        if length > len(self._node.data):
            if length - len(self._node.data) > self._disk.free_bytes:
                raise OSError(errno.ENOSPC, "no space left on this disk")
            self._node.truncate(length)

    def size(self) -> int:
        return len(self._node.data)

    def close(self) -> None:
        pass


class MemDisk:
    """Implements the Disk port."""

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        self.nodes: dict[str, Node] = {}
        self.durable_names: dict[str, Node] = {}
        self.directories: set[str] = {"."}
        self.capacity_bytes = capacity_bytes
        self.cached = True
        self.syncs = 0
        self.fault: Fault = lambda operation, path: None

    @property
    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - sum(len(node.data) for node in self.nodes.values()))

    def power_cut(self, random: Random) -> "MemDisk":
        """The disk as it may be found after the power went."""
        after = MemDisk(self.capacity_bytes)
        after.directories = set(self.directories)
        names = dict(self.durable_names)
        # What was done to names since their directory was synced may or may not have reached the disk.
        for name in sorted(set(self.nodes) | set(self.durable_names)):
            if self.nodes.get(name) is not self.durable_names.get(name) and random.random() < 0.5:
                names.pop(name, None)
                if name in self.nodes:
                    names[name] = self.nodes[name]
        after.nodes = {name: node.after_power_cut(random) for name, node in names.items()}
        after.durable_names = dict(after.nodes)
        return after

    def copy(self) -> "MemDisk":
        """The disk as the next process finds it after kill -9: all writes are there."""
        after = MemDisk(self.capacity_bytes)
        after.directories = set(self.directories)
        after.nodes = {name: Node(bytearray(node.data), bytes(node.data)) for name, node in self.nodes.items()}
        after.durable_names = dict(after.nodes)
        return after

    def open(self, path: str, *, create: bool = False) -> File:
        self.fault("open", path)
        if path not in self.nodes:
            if not create:
                raise FileNotFoundError(errno.ENOENT, path)
            self.nodes[path] = Node()
        return MemFile(self, path, self.nodes[path])

    def exists(self, path: str) -> bool:
        return path in self.nodes or path in self.directories

    def size(self, path: str) -> int:
        if path not in self.nodes:
            raise FileNotFoundError(errno.ENOENT, path)
        return len(self.nodes[path].data)

    def list(self, path: str) -> list[str]:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, path)
        prefix = "" if path == "." else path + "/"
        below = [name[len(prefix) :] for name in (*self.nodes, *self.directories) if name.startswith(prefix)]
        return sorted({name.split("/")[0] for name in below if name and name != "."})

    def make_dir(self, path: str) -> None:
        parts = path.split("/")
        self.directories.update("/".join(parts[: n + 1]) for n in range(len(parts)))

    def rename(self, source: str, target: str) -> None:
        self.fault("rename", target)
        self.nodes[target] = self.nodes.pop(source)

    def unlink(self, path: str) -> None:
        self.fault("unlink", path)
        if path not in self.nodes:
            raise FileNotFoundError(errno.ENOENT, path)
        del self.nodes[path]

    def remove_tree(self, path: str) -> None:
        for name in [name for name in self.nodes if name.startswith(path + "/")]:
            del self.nodes[name]
        self.directories = {name for name in self.directories if name != path and not name.startswith(path + "/")}

    def sync_dir(self, path: str) -> None:
        self.fault("sync_dir", path)
        prefix = "" if path == "." else path + "/"
        for name in list(self.durable_names):
            if name.startswith(prefix):
                del self.durable_names[name]
        self.durable_names.update({name: node for name, node in self.nodes.items() if name.startswith(prefix)})
