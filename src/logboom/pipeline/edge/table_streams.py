"""Streams as tables: the newest record of each key, read on the driver; each update continues at the last offset.

Knows the log and rows by key. Must not know how a table is used.
"""

from collections.abc import Iterator

import msgspec

from logboom.pipeline.edge.reading import read_ranges
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.enrich.sources import ROWS_MAX, Rows, TableError, fields_of
from logboom.pipeline.plan.tables import TableRef

Place = tuple[str, int]


class TableStreams:
    """Reads streams of one log; remembers the next offset of each."""

    def __init__(self, admin: StreamAdmin) -> None:
        self._admin = admin
        self._read_to: dict[str, dict[Place, int]] = {}

    def newest(self, ref: TableRef, rows: Rows) -> Rows:
        """The rows of a stream up to its current end; `rows`: the previous result. A record without a value removes its
        row, one that is not JSON is the field `value` of its row, as text. TableError if the stream does not
        exist."""
        stream = ref.location
        partitions = self._admin.partitions().get(stream)
        if partitions is None:
            raise TableError(f"the table of {ref.name} cannot be read: the stream {stream} does not exist")
        counts = {stream: partitions}
        starts, ends = self._admin.starts(counts)[stream], self._admin.ends(counts)[stream]
        read_to = self._read_to.get(ref.id, {}) if rows else {}
        ranges: dict[Place, tuple[int, int]] = {}
        for partition, end in ends.items():
            place = (stream, int(partition))
            begin = read_to.get(place, 0)
            if begin > end:  # the stream was recreated
                rows, begin = {}, 0
            ranges[place] = (max(begin, starts[partition]), end)
        for key, value in self._records(ranges):
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = _fields(value)
                if len(rows) > ROWS_MAX:
                    raise TableError(f"the stream {stream} has more than {ROWS_MAX:,} keys, too many for {ref.name}")
        self._read_to[ref.id] = {place: end for place, (_, end) in ranges.items()}
        return rows

    def _records(self, ranges: dict[Place, tuple[int, int]]) -> Iterator[tuple[str, bytes | None]]:
        for message in read_ranges(self._admin.bootstrap, ranges):
            key, value = message.key(), message.value()
            if isinstance(key, bytes):
                yield key.decode(errors="replace"), value if isinstance(value, bytes) else None


def _fields(value: bytes) -> dict[str, object]:
    try:
        return fields_of(msgspec.json.decode(value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"value": value.decode(errors="replace")}
