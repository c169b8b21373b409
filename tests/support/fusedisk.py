"""A file system of our own below a real process: it forgets what was not synced, and fails when told to.

Speaks the kernel's FUSE protocol (linux/fuse.h, 7.31) over /dev/fuse itself, so it needs no library, only the right to
mount. Files are `Inode`s, names are durable once their directory was synced; `power_cut` mounts again what may
have survived. Served by a thread of the test, which must not touch the mounted directory itself.
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.waiting import WAIT_S

from logboom.sim.disk import Chance, Inode

MAX_WRITE: Final = 1 << 20
_HEAD: Final = struct.Struct("<IIQQIIIHH")
_REPLY: Final = struct.Struct("<IiQ")
_ATTR: Final = struct.Struct("<6Q10I")
_ROOT: Final = 1
_MNT_DETACH: Final = 2
_BLOCK: Final = 4096
_BIG_WRITES_AND_MAX_PAGES: Final = 1 << 5 | 1 << 22
_SIZE_IS_SET: Final = 1 << 3

Fault = Callable[[str, str], int | None]
"""Given the name of an operation and a path, the errno to answer with, or None."""

Hang = Callable[[str, str], bool]
"""Given the name of an operation and a path, whether it is not to be answered before `go_on`."""


class CannotMountError(Exception):
    """There is no /dev/fuse, or no right to mount."""


@dataclass
class Directory:
    """Names and what they stand for, now and for sure."""

    names: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)


class FuseDisk:
    """Mounted at `path` as long as the `with` block lasts."""

    def __init__(self, path: Path, capacity_bytes: int = 1 << 30) -> None:
        self.path = path
        self.capacity_bytes = capacity_bytes
        self.fault: Fault = lambda operation, where: None
        self.hang: Hang = lambda operation, where: False
        self._hanging: list[bytes] = []
        self.counts: dict[str, int] = {}
        """How often each operation was asked for."""
        self._inodes: dict[int, Inode | Directory] = {_ROOT: Directory()}
        self._paths: dict[int, str] = {_ROOT: ""}
        self._next = _ROOT + 1
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> "FuseDisk":
        self.path.mkdir(parents=True, exist_ok=True)
        self._mount()
        return self

    def __exit__(self, *error: object) -> None:
        self._unmount()

    def _mount(self) -> None:
        try:
            self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise CannotMountError(f"/dev/fuse: {error.strerror}") from error
        options = f"fd={self._fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
        if self._libc.mount(b"logboom-test", str(self.path).encode(), b"fuse", 0, options) != 0:
            reason = os.strerror(ctypes.get_errno())
            os.close(self._fd)
            raise CannotMountError(f"mounting a FUSE file system: {reason}")
        self._thread = threading.Thread(target=self._serve, name="fuse", daemon=True)
        self._thread.start()

    def _unmount(self) -> None:
        self.go_on()  # not even SIGKILL ends a process that waits for an answer
        self._libc.umount2(str(self.path).encode(), _MNT_DETACH)
        assert self._thread is not None
        self._thread.join(WAIT_S)
        os.close(self._fd)

    def go_on(self) -> None:
        """Answer what hangs, and let nothing hang any more."""
        with self._lock:
            self.hang = lambda operation, where: False
            waiting, self._hanging = self._hanging, []
        for request in waiting:
            self._answer(request)

    @property
    def hanging(self) -> int:
        """Operations that wait for their answer."""
        return len(self._hanging)

    def power_cut(self, chance: Chance) -> None:
        """The machine went down, and is up again: what was not synced may be lost. Nobody may have a file open."""
        self._unmount()
        self.fault = lambda operation, where: None
        self._survive(_ROOT, chance)
        self._mount()

    def _survive(self, number: int, chance: Chance) -> None:
        inode = self._inodes[number]
        if isinstance(inode, Inode):
            self._inodes[number] = inode.after_power_cut(chance)
            return
        names = dict(inode.durable)
        for name in sorted(set(inode.names) | set(inode.durable)):
            if inode.names.get(name) != inode.durable.get(name) and chance.random() < 0.5:
                names.pop(name, None)
                if name in inode.names:
                    names[name] = inode.names[name]
        inode.names, inode.durable = names, dict(names)
        for below in names.values():
            self._survive(below, chance)

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self._inodes.values() if isinstance(inode, Inode))

    # --- serving ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._fd, MAX_WRITE + 8192)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return  # ENODEV: unmounted
            if not self._hangs(request):
                self._answer(request)

    def _hangs(self, request: bytes) -> bool:
        _, opcode, _, node, *_ = _HEAD.unpack_from(request)
        name, _ = _HANDLERS.get(opcode, ("", None))
        with self._lock:
            if name and self.hang(name, self._paths.get(node, "")):
                self._hanging.append(request)
                return True
        return False

    def _answer(self, request: bytes) -> None:
        _, opcode, unique, node, *_ = _HEAD.unpack_from(request)
        if opcode in _WITHOUT_REPLY:
            return
        handler = _HANDLERS.get(opcode)
        try:
            if handler is None:
                raise OSError(errno.ENOSYS, "not served")
            name, handle = handler
            with self._lock:
                self._look_for_fault(name, node)
                body = handle(self, node, memoryview(request)[_HEAD.size :])
            code = 0
        except OSError as error:
            body, code = b"", -(error.errno or errno.EIO)
        except KeyError:
            body, code = b"", -errno.ENOENT
        with contextlib.suppress(FileNotFoundError):  # whoever asked was killed meanwhile
            os.write(self._fd, _REPLY.pack(_REPLY.size + len(body), code, unique) + body)

    def _look_for_fault(self, name: str, node: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
        code = self.fault(name, self._paths.get(node, ""))
        if code is None:
            return
        inode = self._inodes[node]
        if name == "fsync" and isinstance(inode, Inode):
            inode.sync_failed()
        raise OSError(code, os.strerror(code))

    def _directory(self, number: int) -> Directory:
        inode = self._inodes[number]
        if not isinstance(inode, Directory):
            raise OSError(errno.ENOTDIR, "not a directory")
        return inode

    def _file(self, number: int) -> Inode:
        inode = self._inodes[number]
        if not isinstance(inode, Inode):
            raise OSError(errno.EISDIR, "a directory")
        return inode

    def _attr(self, number: int) -> bytes:
        inode = self._inodes[number]
        size = len(inode.data) if isinstance(inode, Inode) else _BLOCK
        mode = stat.S_IFREG | 0o644 if isinstance(inode, Inode) else stat.S_IFDIR | 0o755
        times = (0,) * 6
        return _ATTR.pack(number, size, -(-size // 512), *times, mode, 1, os.getuid(), os.getgid(), 0, _BLOCK, 0)

    def _entry(self, number: int) -> bytes:
        return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + self._attr(number)

    def _make(self, parent: int, name: str, inode: Inode | Directory) -> int:
        directory = self._directory(parent)
        if name in directory.names:
            raise OSError(errno.EEXIST, "it is there")
        number, self._next = self._next, self._next + 1
        self._inodes[number] = inode
        directory.names[name] = number
        self._paths[number] = f"{self._paths[parent]}/{name}"
        return number

    def _need_room(self, growth: int) -> None:
        if growth > 0 and self.used_bytes + growth > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "full")

    # --- operations ---------------------------------------------------------------------------------------------

    def init(self, node: int, body: memoryview) -> bytes:
        pages = MAX_WRITE // _BLOCK
        return struct.pack(
            "<IIIIHHIIHHI7I", 7, 31, 1 << 17, _BIG_WRITES_AND_MAX_PAGES, 16, 12, MAX_WRITE, 1, pages, 0, 0, *(0,) * 7
        )

    def lookup(self, node: int, body: memoryview) -> bytes:
        number = self._directory(node).names.get(_name(body))
        if number is None:
            raise OSError(errno.ENOENT, "not there")
        return self._entry(number)

    def getattr(self, node: int, body: memoryview) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attr(node)

    def setattr(self, node: int, body: memoryview) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        if valid & _SIZE_IS_SET:
            file = self._file(node)
            self._need_room(size - len(file.data))
            file.truncate(size)
        return self.getattr(node, body)

    def mkdir(self, node: int, body: memoryview) -> bytes:
        return self._entry(self._make(node, _name(body[8:]), Directory()))

    def create(self, node: int, body: memoryview) -> bytes:
        return self._entry(self._make(node, _name(body[16:]), Inode())) + _OPENED

    def unlink(self, node: int, body: memoryview) -> bytes:
        names = self._directory(node).names
        self._file(names[_name(body)])
        del names[_name(body)]
        return b""

    def rmdir(self, node: int, body: memoryview) -> bytes:
        names = self._directory(node).names
        if self._directory(names[_name(body)]).names:
            raise OSError(errno.ENOTEMPTY, "not empty")
        del names[_name(body)]
        return b""

    def rename(self, node: int, body: memoryview) -> bytes:
        return self._renamed(node, struct.unpack_from("<Q", body)[0], body[8:])

    def rename2(self, node: int, body: memoryview) -> bytes:
        target, flags, _ = struct.unpack_from("<QII", body)
        if flags:
            raise OSError(errno.EINVAL, "no flags are known")
        return self._renamed(node, target, body[16:])

    def _renamed(self, node: int, target: int, names: memoryview) -> bytes:
        old, new = (part.decode() for part in bytes(names).split(b"\0")[:2])
        number = self._directory(node).names.pop(old)
        self._directory(target).names[new] = number
        self._paths[number] = f"{self._paths[target]}/{new}"
        return b""

    def open(self, node: int, body: memoryview) -> bytes:
        return _OPENED

    def read(self, node: int, body: memoryview) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes(self._file(node).data[offset : offset + size])

    def write(self, node: int, body: memoryview) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        file = self._file(node)
        room = self.capacity_bytes - self.used_bytes
        growth = offset + size - len(file.data)
        if growth > room:
            size -= growth - max(room, 0)
            if size <= 0:
                raise OSError(errno.ENOSPC, "full")
        file.write(offset, bytes(body[40 : 40 + size]))
        return struct.pack("<II", size, 0)

    def fallocate(self, node: int, body: memoryview) -> bytes:
        _, offset, length, mode = struct.unpack_from("<QQQI", body)
        file = self._file(node)
        if mode:
            raise OSError(errno.EOPNOTSUPP, "no such mode")
        self._need_room(offset + length - len(file.data))
        if offset + length > len(file.data):
            file.truncate(offset + length)
        return b""

    def fsync(self, node: int, body: memoryview) -> bytes:
        self._file(node).sync()
        return b""

    def fsyncdir(self, node: int, body: memoryview) -> bytes:
        directory = self._directory(node)
        directory.durable = dict(directory.names)
        return b""

    def nothing(self, node: int, body: memoryview) -> bytes:
        return b""

    def statfs(self, node: int, body: memoryview) -> bytes:
        free = max(0, self.capacity_bytes - self.used_bytes) // _BLOCK
        return struct.pack("<5Q4I6I", self.capacity_bytes // _BLOCK, free, free, 0, 0, _BLOCK, 255, _BLOCK, *(0,) * 7)

    def readdir(self, node: int, body: memoryview) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        out = bytearray()
        names = self._directory(node).names
        for at, (name, number) in enumerate(list(names.items())[offset:], offset + 1):
            kind = stat.S_IFREG if isinstance(self._inodes[number], Inode) else stat.S_IFDIR
            raw = name.encode()
            entry = struct.pack("<QQII", number, at, len(raw), kind >> 12) + raw
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return bytes(out)


def _name(body: memoryview) -> str:
    return bytes(body).split(b"\0", 1)[0].decode()


_OPENED: Final = struct.pack("<QII", 0, 0, 0)
_WITHOUT_REPLY: Final = (2, 36, 42)  # FORGET, INTERRUPT, BATCH_FORGET
_HANDLERS: Final[dict[int, tuple[str, Callable[[FuseDisk, int, memoryview], bytes]]]] = {
    1: ("lookup", FuseDisk.lookup),
    3: ("getattr", FuseDisk.getattr),
    4: ("setattr", FuseDisk.setattr),
    9: ("mkdir", FuseDisk.mkdir),
    10: ("unlink", FuseDisk.unlink),
    11: ("rmdir", FuseDisk.rmdir),
    12: ("rename", FuseDisk.rename),
    14: ("open", FuseDisk.open),
    15: ("read", FuseDisk.read),
    16: ("write", FuseDisk.write),
    17: ("statfs", FuseDisk.statfs),
    18: ("release", FuseDisk.nothing),
    20: ("fsync", FuseDisk.fsync),
    25: ("flush", FuseDisk.nothing),
    26: ("init", FuseDisk.init),
    27: ("opendir", FuseDisk.open),
    28: ("readdir", FuseDisk.readdir),
    29: ("releasedir", FuseDisk.nothing),
    30: ("fsyncdir", FuseDisk.fsyncdir),
    34: ("access", FuseDisk.nothing),
    35: ("create", FuseDisk.create),
    38: ("destroy", FuseDisk.nothing),
    43: ("fallocate", FuseDisk.fallocate),
    45: ("rename2", FuseDisk.rename2),
}


@contextlib.contextmanager
def mounted(path: Path, capacity_bytes: int = 1 << 30) -> Iterator[FuseDisk]:
    """A FuseDisk; raises CannotMountError where there can be none."""
    with FuseDisk(path, capacity_bytes) as disk:
        yield disk
