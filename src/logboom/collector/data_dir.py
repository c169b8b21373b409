"""A collector's data directory: held by one collector at a time, with its positions in one file.

    lock              flock of the running collector; its text is the process id, for people
    positions.json    how far each file and each buffer was acknowledged
    buffers/<input>/  the disk buffer of an input

The positions are written to a file beside, synced, renamed over the old ones, and the directory is synced: after a
crash at any moment there are the old or the new ones. Knows these files; not what moves a position.
"""

import fcntl
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType

import msgspec

from logboom.base.errors import FormatVersionError, LogboomError
from logboom.collector.fingerprint import Fingerprint
from logboom.collector.tail import Generation, Identity, new_content_id
from logboom.host import make_directory

FORMAT_VERSION = 1
_POSITIONS = "positions.json"
_DIGEST_BYTES = 16


class DataDirError(LogboomError):
    """The data directory cannot be used as it is."""


class DataDirInUseError(DataDirError):
    """Another collector has the data directory."""


class SavedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The read position of one file's content."""

    path: str
    device: int
    inode: int
    position: int
    head_bytes: int
    head: str
    tail_bytes: int
    tail: str
    id: str = ""
    """Absent in files of versions that sent none."""

    @classmethod
    def of(cls, generation: Generation) -> "SavedFile":
        """What is kept of a generation."""
        mark, identity = generation.acked, generation.identity
        return cls(
            path=os.fsencode(generation.path).decode("latin-1"),
            device=identity.device,
            inode=identity.inode,
            position=mark.position,
            head_bytes=mark.head_bytes,
            head=mark.head,
            tail_bytes=mark.tail_bytes,
            tail=mark.tail,
            id=generation.id,
        )

    def generation(self) -> Generation:
        """The generation as a new run takes it up."""
        mark = Fingerprint(self.position, self.head_bytes, self.head, self.tail_bytes, self.tail)
        path, identity = os.fsdecode(self.path.encode("latin-1")), Identity(self.device, self.inode)
        durable = self.head_bytes if self.id else -1
        return Generation(path, identity, mark, id=self.id or new_content_id(), durable_head_bytes=durable)


class Positions(msgspec.Struct, kw_only=True):
    """How far everything was acknowledged: files by input, and the next offset and the id of each buffer."""

    files: dict[str, list[SavedFile]] = {}
    buffers: dict[str, int] = {}
    buffer_ids: dict[str, str] = {}


class _Document(msgspec.Struct, kw_only=True):
    version: int
    digest: str
    positions: msgspec.Raw


class DataDir:
    """An open, locked directory. Life: `open`, then `close`, which gives the lock back as the process's end does."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> "DataDir":
        """Make the directory or take the one that is there. DataDirError where another collector has it."""
        try:
            make_directory(path)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataDirError(f"The data directory {path} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip() or "another process"
            os.close(lock)
            raise DataDirInUseError(
                f"The data directory {path} is in use by another collector (process {holder}); stop it or set "
                "another data_dir."
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        return cls(path, lock)

    def close(self) -> None:
        """Let another collector have it."""
        os.close(self._lock)

    def load(self) -> Positions | None:
        """What was saved last; None before the first time. Raises DataDirError, FormatVersionError."""
        path = self.path / _POSITIONS
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            document = msgspec.json.decode(content, type=_Document)
            if document.version > FORMAT_VERSION:
                raise FormatVersionError(
                    f"{path} has format {document.version}, newer than {FORMAT_VERSION}: use a newer logboom."
                )
            if document.digest != _digest(bytes(document.positions)):
                raise DataDirError(f"{path} is damaged; remove it to read every file from its start again.")
            return msgspec.json.decode(document.positions, type=Positions)
        except msgspec.MsgspecError:
            raise DataDirError(f"{path} is damaged; remove it to read every file from its start again.") from None

    def saved_ns(self) -> int:
        """When the positions were saved last, in nanoseconds as of `st_mtime_ns`; 0 if never."""
        try:
            return os.stat(self.path / _POSITIONS).st_mtime_ns
        except OSError:
            return 0

    def save(
        self,
        files: Mapping[str, list[Generation]],
        buffers: Mapping[str, int],
        buffer_ids: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Replace what was saved, for good once this returns. After an OSError the old one stands."""
        saved = {name: [SavedFile.of(generation) for generation in many] for name, many in files.items()}
        positions = msgspec.json.encode(Positions(files=saved, buffers=dict(buffers), buffer_ids=dict(buffer_ids)))
        document = _Document(version=FORMAT_VERSION, digest=_digest(positions), positions=msgspec.Raw(positions))
        fresh = self.path / f"{_POSITIONS}.new"
        with open(fresh, "wb") as file:
            file.write(msgspec.json.encode(document))
            file.flush()
            os.fsync(file.fileno())
        os.rename(fresh, self.path / _POSITIONS)
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
