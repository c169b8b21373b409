"""What was read for one follower, for the next one that is to be sent the same.

In a steady stream all followers of a partition wait at its end, and are sent the same records one right after the
other. Knows reads by where they begin and end; decides nothing. On the loop.
"""

from typing import Final, NamedTuple

from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Bytes
from logboom.storage import PartitionLog

ON_LOOP_BYTES: Final = 1 << 20
"""What is read of a partition on the loop, where it is in memory; a follower that has more to catch up with asks again.
A thread would cost two changes of thread and the wait for the interpreter, more than this many bytes take to copy."""
_KEPT_BYTES_MAX: Final = 1 << 20
"""Over all partitions: what was not asked for again by then was read by all its followers, or by one that is ahead."""


class ReadOf(NamedTuple):
    """A read that gives the same as long as the log has not been cut, which no leader does."""

    log: PartitionLog
    leader_epoch: Epoch
    offset: Offset
    ceiling: Offset
    max_bytes: int


class SharedReads:
    """See the module. Life: that of the broker."""

    __slots__ = ("_found", "_size_bytes")

    def __init__(self) -> None:
        self._found: dict[ReadOf, tuple[Bytes, Offset]] = {}
        self._size_bytes = 0

    def read(self, wanted: ReadOf) -> tuple[Bytes, Offset] | None:
        """Whole batches and the offset behind them; None where the disk would have to be waited for. Raises as
        `LogReader.read`."""
        found = self._found.get(wanted)
        if found is None:
            log, _, offset, ceiling, max_bytes = wanted
            found = log.reader.read_with_next_offset(offset, max_bytes, ceiling=ceiling, cached_only=True)
            if found is not None:
                self._keep(wanted, found)
        return found

    def _keep(self, wanted: ReadOf, found: tuple[Bytes, Offset]) -> None:
        size_bytes = len(found[0])
        if self._size_bytes + size_bytes > _KEPT_BYTES_MAX:
            self.forget()
        self._found[wanted] = found
        self._size_bytes += size_bytes

    def forget(self) -> None:
        """Drop everything."""
        self._found.clear()
        self._size_bytes = 0
