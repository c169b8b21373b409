"""The checkpoint of high-water marks of one log dir: what a leader or a copy shows at once after a restart.

A mark in it was true once and is true for ever, so an old file only means that less is shown until the leader says
more. So it is replaced without a sync, and one that is missing or garbled counts as empty. Kafka's file of the same
purpose is `replication-offset-checkpoint`.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final
from uuid import UUID

from logboom.base.ids import Offset, PartitionIndex, StreamId
from logboom.base.ports import Disk
from logboom.broker.disk.data_dir import HIGH_WATERMARKS_FILE
from logboom.broker.partition.replication_port import ReplicaKey
from logboom.storage import frame, read_whole, replace_whole, unframe

_TAG: Final = b"LBHW"
_VERSION: Final = 1
_ENTRY: Final = Struct(">16siq")


def load(disk: Disk) -> dict[ReplicaKey, Offset]:
    """The marks that were saved last. Raises OSError."""
    payload = unframe(_TAG, _VERSION, read_whole(disk, HIGH_WATERMARKS_FILE) or b"")
    if payload is None or len(payload) % _ENTRY.size:
        return {}
    return {
        (StreamId(UUID(bytes=stream)), PartitionIndex(index)): Offset(mark)
        for stream, index, mark in _ENTRY.iter_unpack(payload)
    }


def save(disk: Disk, marks: Mapping[ReplicaKey, Offset]) -> None:
    """Replace the file. Raises OSError."""
    payload = b"".join([_ENTRY.pack(stream.bytes, index, mark) for (stream, index), mark in marks.items()])
    replace_whole(disk, ".", HIGH_WATERMARKS_FILE, frame(_TAG, _VERSION, payload), sync=False)
