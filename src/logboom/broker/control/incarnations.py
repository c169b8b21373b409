"""Which processes of this broker have asked to be registered with this data directory: a file, written before a process
asks.

A data directory may come back in an earlier state: a copy that somebody made of it, or a restored snapshot of its
machine. Broker id and directory id are the same then, and its logs lack what was acknowledged since. The metadata knows
which process was registered last; a directory that has not noted that process is such a copy, and is refused
(`metadata.membership.register`).

A voter on such a copy must not even send a message: it would vote a second time, and it has forgotten entries that it
acknowledged. So with each new connection brokers tell each other which process they know, before anything else
(`Peers.know_processes`), and a broker on an older copy sends nothing more (`KnownProcesses`).

All of the last processes are named, and not only the very last: if a process died soon, it is not known whether it was
registered. If the directory may lack some, `UNKNOWN` is among them, and nothing is concluded.
"""

import json
from collections.abc import Callable, Iterable
from typing import Final

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId
from logboom.base.ports import Disk
from logboom.broker.disk.data_dir import METADATA_DIR
from logboom.broker.metadata_view import MetadataView
from logboom.broker.peers import PeerIdentity
from logboom.metadata.membership import older_copy_error
from logboom.storage import frame, read_whole, replace_whole, unframe

UNKNOWN: Final = ""
"""Stands for processes that were not noted."""

_FILE: Final = "incarnations"
_PATH: Final = f"{METADATA_DIR}/{_FILE}"
_TAG: Final = b"LBIN"
_VERSION: Final = 1
_MAX: Final = 100


class KnownProcesses:
    """What this broker compares with others in handshakes. Life: that of the broker; on the loop."""

    def __init__(self, own: BrokerId, noted: Iterable[str]) -> None:
        """`noted`: of `noted_processes`."""
        self.own = own
        self._noted = set(noted)
        self.older: LogboomError | None = None
        """Why this data directory is known to be an older copy, if so."""
        self._metadata: MetadataView | None = None
        self._found_older: Callable[[LogboomError], None] = _nobody_asks

    def follow(self, metadata: MetadataView, found_older: Callable[[LogboomError], None]) -> None:
        """`metadata`: what this broker knows of the others from now on. `found_older` is called when the data directory
        turns out to be an older copy."""
        self._metadata, self._found_older = metadata, found_older

    def note(self, process: str) -> None:
        """The directory has noted one more process."""
        self._noted.add(process)

    def registered(self, peer: PeerIdentity) -> str:
        """The process of a broker that was registered last with its directory, as far as this broker knows."""
        known = None if self._metadata is None else self._metadata.image.brokers.get(peer.broker_id)
        return known.incarnation if known is not None and known.directory_id == peer.directory_id else ""

    def check_noted(self, process: str) -> None:
        """Raises DuplicateBrokerError where this broker's directory does not know a process that was registered."""
        if process in self._noted or UNKNOWN in self._noted:
            return
        if self.older is None:
            self.older = older_copy_error(self.own)
            self._found_older(self.older)
        raise self.older.with_traceback(None)


def _nobody_asks(_error: LogboomError) -> None:
    """It is raised, too."""


def noted_processes(disk: Disk) -> tuple[str, ...]:
    """The processes that the directory has noted; `UNKNOWN` among them where it may lack some. Raises OSError."""
    return tuple(_read(disk, is_new=False))


def note_process(disk: Disk, own: str, *, registered: str | None, is_new: bool) -> tuple[str, ...]:
    """A process is about to ask: note its incarnation, durably, and return those that were noted before.

    `registered`: the process that was registered last, as far as this directory knows. `is_new`: none ever was, which
    distinguishes a directory without the file from one that an older program has used. Raises OSError, but not on a
    full disk that has been used: then the next process knows less.
    """
    earlier = _read(disk, is_new=is_new)
    if registered in earlier:  # so each one since was noted
        earlier = [one for one in earlier if one != UNKNOWN]
    kept = [*earlier, own]
    if len(kept) > _MAX and registered in kept:
        kept = kept[kept.index(registered) :]
    if len(kept) > _MAX:
        kept = [UNKNOWN, *kept[-_MAX // 2 :]]
    try:
        replace_whole(disk, METADATA_DIR, _FILE, frame(_TAG, _VERSION, json.dumps(kept).encode()), sync=True)
    except OSError:
        if is_new:
            raise
        _forget(disk)
    return tuple(earlier)


def _read(disk: Disk, *, is_new: bool) -> list[str]:
    data = read_whole(disk, _PATH)
    if data is None:
        return [] if is_new else [UNKNOWN]
    payload = unframe(_TAG, _VERSION, data)
    return [UNKNOWN] if payload is None else json.loads(payload)


def _forget(disk: Disk) -> None:
    """There is no room for the name of a process: what is noted without it would say too much."""
    if disk.exists(_PATH):
        file = disk.open(_PATH)
        try:
            file.truncate(0)
            file.sync()
        finally:
            file.close()
