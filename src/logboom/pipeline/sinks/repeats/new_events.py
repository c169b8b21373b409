"""Reads a task's part of a batch into columns, without repeats, and reports what was delivered.

Knows the JSON form of events and Arrow. Must not know Spark, any sink or files.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import pyarrow as pa

from logboom.pipeline.event.reading import read_events
from logboom.pipeline.event.spans import Index
from logboom.pipeline.sinks.base import Refused
from logboom.pipeline.sinks.repeats.origins import RecordKeys, RepeatFilter, marks_after


class PartReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one task about its part of a batch."""

    rows: int = 0
    """Events that were fresh."""
    repeats: int = 0
    high_water: dict[str, int] = {}
    """Highest delivered offset of origin, by `origin_key`."""
    retried: tuple[str, ...] = ()
    """Dead letters whose events are delivered with this batch."""
    unreadable: tuple[Refused, ...] = ()


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a delivery when a batch was committed."""

    batch: int = -1
    high_water: dict[str, int] = {}
    retried: frozenset[str] = frozenset()

    def after(self, batch: int, reports: Iterable[PartReport]) -> "Seen":
        """The state after this batch."""
        done = list(reports)
        retried = self.retried.union(*(report.retried for report in done))
        marks = marks_after(self.high_water, (report.high_water for report in done))
        return Seen(batch=batch, high_water=marks, retried=retried)


class FreshRows(NamedTuple):
    """Events of one chunk of a batch that were not delivered before, in the order of the rows."""

    events: pa.Table
    """A table with `LIVE_SCHEMA`."""
    rows: Index
    """The row number in the batch of each event."""


class FreshEvents:
    """Reads one task's part of a batch: returns new events, counts the others."""

    def __init__(self, seen: Seen) -> None:
        self._filter = RepeatFilter(seen.high_water, seen.retried)
        self._unreadable: list[Refused] = []
        self._rows = 0
        self._repeats = 0

    def read(self, batch: pa.RecordBatch) -> Iterator[FreshRows]:
        """Read chunk by chunk from a batch of an edge's records (topic, partition, offset, key, value)."""
        keys = RecordKeys(batch.column("key"))
        for found in read_events(batch.column("value")):
            for row, reason in found.unreadable:
                self._unreadable.append(refused(batch, row, reason))
            if not len(found.rows):
                continue
            kept = self._filter.fresh(found.events, found.rows, batch.column("topic"), keys)
            fresh = found.events if kept.all() else found.events.filter(pa.array(kept))
            self._repeats += len(found.rows) - fresh.num_rows
            self._rows += fresh.num_rows
            if fresh.num_rows:
                yield FreshRows(fresh, found.rows[kept])

    def report(self) -> PartReport:
        """The report of what was read so far."""
        return PartReport(
            rows=self._rows,
            repeats=self._repeats,
            high_water=self._filter.high_water,
            retried=tuple(self._filter.retried),
            unreadable=tuple(self._unreadable),
        )


def refused(batch: pa.RecordBatch, row: int, reason: str) -> Refused:
    """A record from a row of the batch, with the reason why the sink refuses it."""
    stream, partition, offset, value = (
        batch.column(name)[row].as_py() for name in ("topic", "partition", "offset", "value")
    )
    return Refused(stream, partition, offset, value or b"", reason)
