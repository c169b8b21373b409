"""Which partitions have ever been created in this data directory: a file that distinguishes a new replica from a lost
one.

The metadata assigns a partition to its replicas before they have created it, and counts on them from then on: they are
its ISR. So if a directory is missing at a start, either the previous process had no time to create it, or it is lost
with its records. The file says how far the metadata was followed when partitions were created last; partitions assigned
after that, and those that could not be created then, are new. It is durable before a partition takes a role, and so
before the partition holds a record.

Kafka distinguishes the two by what brokers report to the controller (KIP-858, AssignReplicasToDirs).
"""

import asyncio
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from structlog.typing import FilteringBoundLogger

from logboom.base.ids import PartitionIndex, StreamId
from logboom.base.ports import Disk, SyncFailedError
from logboom.broker.disk.data_dir import METADATA_DIR
from logboom.broker.disk.flusher import Flusher
from logboom.broker.partition.replication_port import ReplicaKey
from logboom.storage import frame, read_whole, replace_whole, unframe

_FILE: Final = "made-replicas"
_TAG: Final = b"LBMR"
_VERSION: Final = 1
_HEAD: Final = Struct(">q")
_ENTRY: Final = Struct(">16si")


class Made(NamedTuple):
    """What the file says."""

    up_to: int
    """The last change of the metadata by which partitions were made here."""
    unmade: AbstractSet[ReplicaKey]
    """What that one and those before it gave to this broker, and could not be made yet."""


class MadeReplicas:
    """What was made, and its file. Life: that of the replicas, on the loop."""

    def __init__(self, disk: Disk, flusher: Flusher, log: FilteringBoundLogger) -> None:
        """`flusher` is told of a disk that fails."""
        self._disk = disk
        self._flusher = flusher
        self._log = log
        self._up_to = 0
        self.unmade: set[ReplicaKey] = set()
        """Those that are given to this broker, and could not be made yet: they never had a record."""
        self.is_noted = True
        """Whether all that was made is noted."""

    async def new_ones(self, grown_after: Callable[[int], Collection[ReplicaKey]]) -> AbstractSet[ReplicaKey]:
        """At the start: which partitions are new if they are missing. `grown_after`: what the changes of the metadata
        behind an index made. Raises OSError."""
        made = await asyncio.to_thread(load, self._disk)
        if made is None:
            self.is_noted = False
            return frozenset()
        self._up_to = made.up_to
        new = made.unmade | {*grown_after(made.up_to)}
        self.is_noted = not new
        return new

    async def note(self, up_to: int | None = None) -> None:
        """Partitions were created, up to that change of the metadata: to be called before they take a role. None for
        one of those that could not be created before.

        A full disk is no reason to go without them: until the next change notes it, one of them whose directory gets
        lost is treated as new at a start.
        """
        if up_to is not None:
            self._up_to = up_to
        try:
            await asyncio.to_thread(save, self._disk, Made(self._up_to, frozenset(self.unmade)))
        except OSError as error:
            self.is_noted = False
            if isinstance(error, SyncFailedError):
                self._flusher.disk_failed(error)
            self._log.warning("the list of created partitions is not saved; the next change retries", reason=str(error))
        else:
            self.is_noted = True


def load(disk: Disk) -> Made | None:
    """What the file says; None where there is none, as in a directory from before there was such a file, or where it is
    garbled. Then nothing may be taken for new that the metadata counts on. Raises OSError."""
    payload = unframe(_TAG, _VERSION, read_whole(disk, f"{METADATA_DIR}/{_FILE}") or b"")
    if payload is None or len(payload) < _HEAD.size or (len(payload) - _HEAD.size) % _ENTRY.size:
        return None
    (up_to,) = _HEAD.unpack_from(payload)
    entries = _ENTRY.iter_unpack(payload[_HEAD.size :])
    return Made(up_to, frozenset((StreamId(UUID(bytes=stream)), PartitionIndex(number)) for stream, number in entries))


def save(disk: Disk, made: Made) -> None:
    """Replace the file. Durable on return. Raises OSError."""
    entries = b"".join([_ENTRY.pack(stream.bytes, number) for stream, number in sorted(made.unmade)])
    replace_whole(disk, METADATA_DIR, _FILE, frame(_TAG, _VERSION, _HEAD.pack(made.up_to) + entries), sync=True)
