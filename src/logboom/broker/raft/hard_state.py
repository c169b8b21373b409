"""Term, vote and commit index of a member, in a file that is written over in place.

That needs no room, so a member votes and leads on a full disk, too. There are two copies, each in a block of its own,
written and synced one after the other: whatever a power failure tears, or one bad sector takes, the other copy has the
last state that was reported as durable, or a newer one. The numbers of the copies tell which is newer.
"""

from struct import Struct
from typing import Final

from logboom.base.ports import Disk
from logboom.raft import HardState, Index, NodeId, Term
from logboom.storage import frame, read_whole, replace_whole, unframe

NAME: Final = "hard-state"
_TAG: Final = b"LBRH"
_VERSION: Final = 1
_FORM: Final = Struct(">QQQQ")  # number, term, vote, commit
_BLOCK_BYTES: Final = 4096
"""As large as what disks write at once."""


class HardStateFile:
    """See the module. Not on the loop, one call at a time."""

    def __init__(self, disk: Disk, path: str, number: int, state: HardState) -> None:
        self._disk = disk
        self._path = path
        self._number = number
        self.state = state
        """The last one that was written or read."""

    @classmethod
    def create(cls, disk: Disk, directory: str, state: HardState) -> None:
        """A new file, durable on return; a crash before that leaves none. Raises OSError."""
        copy = _copy(1, state)
        replace_whole(disk, directory, NAME, copy.ljust(_BLOCK_BYTES, b"\0") + copy, sync=True)

    @classmethod
    def open(cls, disk: Disk, directory: str) -> "HardStateFile | None":
        """The file with its newer copy, which is durable on return; None where neither can be read.

        Raises FileNotFoundError, OSError.
        """
        newest = _newest(disk, directory)
        if newest is None:
            return None
        file = cls(disk, _path(directory), *newest)
        # A sync of the life before may have failed, and what was read may be in memory alone; or one copy is older.
        file._write()
        return file

    @staticmethod
    def read(disk: Disk, directory: str) -> HardState | None:
        """What the newer copy holds, durable or not; None where neither can be read. Nothing is written.

        Raises FileNotFoundError, OSError.
        """
        newest = _newest(disk, directory)
        return None if newest is None else newest[1]

    def write(self, state: HardState) -> None:
        """Durable on return. It may be repeated after an OSError that was no failed sync."""
        if state != self.state:
            self.state = state
            self._number += 1
        self._write()

    def _write(self) -> None:
        copy = _copy(self._number, self.state)
        file = self._disk.open(self._path)
        try:
            for start in (0, _BLOCK_BYTES):
                file.write(start, [copy])
                file.sync()
        finally:
            file.close()


def _path(directory: str) -> str:
    return NAME if directory == "." else f"{directory}/{NAME}"


def _newest(disk: Disk, directory: str) -> tuple[int, HardState] | None:
    data = read_whole(disk, _path(directory))
    if data is None:
        raise FileNotFoundError(_path(directory))
    copies = [_parse(data[start : start + _BLOCK_BYTES]) for start in (0, _BLOCK_BYTES)]
    return max((copy for copy in copies if copy is not None), key=lambda copy: copy[0], default=None)


def _copy(number: int, state: HardState) -> bytes:
    return frame(_TAG, _VERSION, _FORM.pack(number, state.term, state.vote, state.commit))


def _parse(data: bytes) -> tuple[int, HardState] | None:
    payload = unframe(_TAG, _VERSION, data)
    if payload is None or len(payload) != _FORM.size:
        return None
    number, term, vote, commit = _FORM.unpack(payload)
    return number, HardState(Term(term), NodeId(vote), Index(commit))
