"""A broker's data directory: whose it is, which format it has, and that nobody else is using it.

    format.json   version of the layout and of everything in it; a newer one is refused by name
    node.json     cluster id, broker id, directory id: made once, kept for life
    lock          flock of the running broker; its text is the process id, for people
    metadata/     the metadata log
    streams/      one directory per partition, `<stream>-<partition>`; `*.deleted` ones wait for removal

Knows these files and the operating system; not what is in the two directories, nor what a format holds (`storage`).
"""

import base64
import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from logboom.base.errors import StorageError
from logboom.base.ids import BrokerId
from logboom.base.ports import Disk
from logboom.host import make_directory
from logboom.storage import claim_format

METADATA_DIR: Final = "metadata"
STREAMS_DIR: Final = "streams"
_FORMAT_FILE: Final = "format.json"
_NODE_FILE: Final = "node.json"
_LOCK_FILE: Final = "lock"


class DataDirError(StorageError):
    """The data directory cannot be used as it is: in use, another node's, or no data directory at all."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this broker is, for as long as its data lives."""

    cluster_id: str
    broker_id: BrokerId
    directory_id: str
    """Tells two disks of one broker apart, also after one was swapped for an empty one."""


class DataDir:
    """An open, locked directory. Life: `open`, then `close`, which gives the lock back, as the process's end does."""

    def __init__(self, path: Path, identity: Identity, lock_fd: int) -> None:
        self.path = path
        self.identity = identity
        self._lock_fd: int | None = lock_fd

    @classmethod
    def open(cls, path: Path, disk: Disk, *, broker_id: BrokerId, cluster_id: str | None) -> "DataDir":
        """Make the directory or check the one that is there. Raises DataDirError, FormatVersionError or OSError."""
        make_directory(path)
        lock_fd = _lock(path)
        try:
            _check_unknown_entries(path)
            claim_format(disk, f"Logboom {version('logboom')}")
            identity = _identity(path, broker_id, cluster_id)
            for name in (METADATA_DIR, STREAMS_DIR):
                (path / name).mkdir(exist_ok=True)
            _sync_dir(path)
        except BaseException:
            os.close(lock_fd)
            raise
        return cls(path, identity, lock_fd)

    @property
    def unknown_entries(self) -> list[str]:
        """Names in it that are not Logboom's; whoever put them there may have meant another directory."""
        ours = {METADATA_DIR, STREAMS_DIR, _FORMAT_FILE, _NODE_FILE, _LOCK_FILE, "lost+found"}
        names = sorted(entry.name for entry in self.path.iterdir())
        return [
            name for name in names if name not in ours and name.removesuffix(".new").removesuffix(".tmp") not in ours
        ]

    def close(self) -> None:
        """Let another broker have it. Idempotent."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None


def _lock(path: Path) -> int:
    fd = os.open(path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        by = f" (process {holder})" if holder else ""
        raise DataDirError(
            f"the data directory {path} is in use by another broker{by}; stop it or name another directory"
        ) from None
    with contextlib.suppress(OSError):  # it is for people, and there may be no room
        os.pwrite(fd, f"{os.getpid():<20}\n".encode(), 0)
    return fd


def _check_unknown_entries(path: Path) -> None:
    """A directory without our mark must be empty but for what a start that was cut off left."""
    ours = {_LOCK_FILE, "lost+found"}
    found = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith(_FORMAT_FILE))
    unknown = [name for name in found if name not in ours]
    if unknown and not (path / _FORMAT_FILE).exists():
        raise DataDirError(
            f"{path} holds other things ({', '.join(unknown[:3])}) and no {_FORMAT_FILE}: "
            "it is no data directory of Logboom; name an empty or a new one"
        )


def _identity(path: Path, broker_id: BrokerId, cluster_id: str | None) -> Identity:
    file = path / _NODE_FILE
    if not file.exists():
        if (path / METADATA_DIR).exists():
            raise DataDirError(f"{file} is missing from a data directory that has been used; bring it back")
        made = Identity(cluster_id or _random_id(), broker_id, _random_id())
        _write(
            file,
            {"cluster_id": made.cluster_id, "broker_id": made.broker_id, "directory_id": made.directory_id},
        )
        return made
    node = _read(file)
    try:
        identity = Identity(str(node["cluster_id"]), BrokerId(int(node["broker_id"])), str(node["directory_id"]))
    except (KeyError, ValueError, TypeError):
        raise DataDirError(f"{file} does not name cluster_id, broker_id and directory_id") from None
    if identity.broker_id != broker_id:
        raise DataDirError(f"the data directory {path} belongs to broker {identity.broker_id}, not {broker_id}")
    if cluster_id is not None and identity.cluster_id != cluster_id:
        raise DataDirError(f"the data directory {path} belongs to cluster {identity.cluster_id}, not {cluster_id}")
    return identity


def _random_id() -> str:
    """A UUID as Kafka writes cluster ids: 22 characters of URL-safe base 64."""
    return base64.urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise DataDirError(f"{file} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise DataDirError(f"{file} is no JSON object")
    return content


def _write(file: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all, also when the power goes."""
    temporary = file.with_name(f"{file.name}.new")
    with temporary.open("wb") as handle:
        handle.write(json.dumps(content, indent=2).encode() + b"\n")
        handle.flush()
        os.fsync(handle.fileno())
    temporary.replace(file)
    _sync_dir(file.parent)


def _sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
