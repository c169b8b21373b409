"""What the cleaner and the process that runs its passes exchange: typed messages as MessagePack.

cleaner   Begin, then Read and Write, one at a time
process   while it works on one: PassProgress, NeedSource or NeedTarget, each answered by the cleaner with Continue;
          at its end ReadDone, WriteDone, or one of the failures
"""

from array import array
from typing import Final, TypeAlias

import msgspec

from logboom.base.ids import Offset
from logboom.storage.compaction import CompactionPlan, FilterCounts, Source, Written
from logboom.storage.segment import SparseIndex


class Begin(msgspec.Struct, frozen=True, tag=True):
    """The passes of a plan; those before are forgotten. Not answered."""

    plan: CompactionPlan


class Read(msgspec.Struct, frozen=True, tag=True):
    """The first pass over one segment."""

    source: Source


class Write(msgspec.Struct, frozen=True, tag=True):
    """The second pass over segments that become one."""

    sources: tuple[Source, ...]


class Continue(msgspec.Struct, frozen=True, tag=True):
    """Go on; with the file that was asked for, if one was."""


class PassProgress(msgspec.Struct, frozen=True, tag=True):
    """Bytes read and written since the last such message."""

    read_bytes: int
    written_bytes: int


class NeedSource(msgspec.Struct, frozen=True, tag=True):
    """The file of this source is needed."""

    number: int


class NeedTarget(msgspec.Struct, frozen=True, tag=True):
    """The file to write is needed."""


class ReadDone(msgspec.Struct, frozen=True, tag=True):
    """The segment was read; see `Passes.read`."""

    dirty_end: Offset
    has_room: bool


class WriteDone(msgspec.Struct, frozen=True, tag=True):
    """The segments were written; see `passes.Written`."""

    size_bytes: int
    written_bytes: int
    counts: FilterCounts
    index: "IndexColumns"


class Damaged(msgspec.Struct, frozen=True, tag=True):
    """BadBatchError."""

    path: str
    position: int
    offset: Offset
    reason: str


class CannotOpen(msgspec.Struct, frozen=True, tag=True):
    """StorageError: the records of a batch cannot be read."""

    message: str


class DiskFailed(msgspec.Struct, frozen=True, tag=True):
    """OSError of a file; whether it is a SyncFailedError."""

    errno: int
    text: str
    is_sync: bool


class InternalError(msgspec.Struct, frozen=True, tag=True):
    """A bug of ours."""

    traceback: str


class IndexColumns(msgspec.Struct, frozen=True):
    """A sparse index, its columns as they are in memory."""

    interval_bytes: int
    offsets: bytes
    positions: bytes
    times: bytes
    upto: int
    max_timestamp: int

    @classmethod
    def of(cls, index: SparseIndex) -> "IndexColumns":
        """Those of an index that was made in memory."""
        return cls(
            interval_bytes=index.interval_bytes,
            offsets=index.offsets.tobytes(),
            positions=index.positions.tobytes(),
            times=index.times.tobytes(),
            upto=index.upto,
            max_timestamp=index.max_timestamp,
        )

    def index(self) -> SparseIndex:
        """The index."""
        found = SparseIndex(self.interval_bytes)
        found.offsets, found.positions, found.times = (
            array("q", column) for column in (self.offsets, self.positions, self.times)
        )
        found.upto, found.max_timestamp = self.upto, self.max_timestamp
        return found


def write_done(written: Written) -> WriteDone:
    """The message of a result."""
    return WriteDone(written.size_bytes, written.written_bytes, written.counts, IndexColumns.of(written.index))


ToProcess: TypeAlias = Begin | Read | Write | Continue
ToCleaner: TypeAlias = (
    PassProgress | NeedSource | NeedTarget | ReadDone | WriteDone | Damaged | CannotOpen | DiskFailed | InternalError
)

_encoder: Final = msgspec.msgpack.Encoder()
_to_process: Final[msgspec.msgpack.Decoder[ToProcess]] = msgspec.msgpack.Decoder(ToProcess)
_to_cleaner: Final[msgspec.msgpack.Decoder[ToCleaner]] = msgspec.msgpack.Decoder(ToCleaner)

encode = _encoder.encode


def decode_for_process(message: bytes) -> ToProcess:
    """A message of the cleaner's."""
    return _to_process.decode(message)


def decode_for_cleaner(message: bytes) -> ToCleaner:
    """A message of the process."""
    return _to_cleaner.decode(message)
