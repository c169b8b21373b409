"""Reading a part of a log for the latest records of its keys, in slices that are short enough for a reader thread.

Knows the log and keys; not the conditions that ask for them, nor what comes of the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.broker.partition.conditions import Latest
from logboom.broker.partition.key_window import KeyTable
from logboom.broker.partition.slices import SliceReader, read_slice_at
from logboom.records import iter_batches, keyed_records, records_body

_SEARCHED_KEYS_MAX: Final = 16
"""Above this many keys, searching the bytes of records for each takes longer than looking at the records."""


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """What one scan may cost at most."""

    scan_bytes: int
    """Bytes that are read, and bytes of plain records."""
    table_bytes: int
    """Memory for keys that were not asked for."""
    max_decompressed_bytes: int


class ConditionScan:
    """The records below `end`, which are all written. `read_slice` is called until it says that it is done, in threads,
    one at a time; then the loop looks at what was found."""

    def __init__(
        self,
        reader: SliceReader,
        starts: Sequence[Offset],
        end: Offset,
        written_end: Offset,
        wanted: frozenset[bytes],
        limits: ScanLimits,
    ) -> None:
        """From the first of `starts`, which rise, from which on there is no more to read than is allowed."""
        self.start = end
        """From where on all records are known, once it is done: `end` where there was too much to read."""
        self.end = end
        self.failure: LogboomError | None = None
        """Why it was not done, if so: the log could not be read."""
        self.read_bytes = 0
        self.keys: KeyTable | None = KeyTable()
        """The latest records of all keys; None where they are too many, and `latest` knows those wanted alone."""
        self._wanted = wanted
        self._found = KeyTable()
        self._reader = reader
        # Compaction covers removed offsets with one batch, which may reach from below `end` to above it.
        self._ceiling = written_end
        self._starts = starts
        self._limits = limits
        self._at: Offset | None = None
        self._plain_bytes = 0

    def latest(self, key: bytes) -> Latest | None:
        """The latest record of a key that was wanted."""
        return self._found.latest(key)

    def read_slice(self) -> bool:
        """Read on; whether there is no more to read. Raises LogboomError where the log cannot be read."""
        if self._at is None:
            self._at = self._first()
            self.start = self._at
        if self._at >= self.end:
            return True
        data, self._at = read_slice_at(self._reader, self._at, self._ceiling)
        self.read_bytes += len(data)
        self._take(data)
        if self._plain_bytes > self._limits.scan_bytes:
            self.start = self._at = self.end
        return self._at >= self.end

    def _first(self) -> Offset:
        for start in self._starts:
            if self._reader.bytes_between(start, self.end) <= self._limits.scan_bytes:
                return start
        return self.end

    def _take(self, data: bytes | memoryview) -> None:
        wanted, found = self._wanted, self._found
        for position, header in iter_batches(data):
            if header.is_control:  # its keys are the broker's own
                continue
            body = records_body(data, position, header, self._limits.max_decompressed_bytes)
            self._plain_bytes += len(body)
            if self.keys is None and self._has_none_of_wanted(body):
                continue
            keys, base = self.keys, header.base_offset
            for delta, key, has_value, _, _ in keyed_records(body, header.records_count):
                if key is None or not self.start <= base + delta < self.end:
                    continue
                if key in wanted:
                    found.note(key, base + delta, has_value)
                if keys is not None:
                    keys.note(key, base + delta, has_value)
            if keys is not None and keys.size_bytes > self._limits.table_bytes:
                self.keys = None

    def _has_none_of_wanted(self, body: bytes) -> bool:
        """Whether the bytes of these records show that no key is wanted, without a look at each record."""
        wanted = self._wanted
        return len(wanted) <= _SEARCHED_KEYS_MAX and not any(key in body for key in wanted)
