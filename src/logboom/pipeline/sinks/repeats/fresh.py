"""A task's part of a batch read without repeats, as columns, and what a delivery has delivered by then.

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
    """What one task did with its part of a batch."""

    rows: int = 0
    """Events that were fresh."""
    repeats: int = 0
    high_water: dict[str, int] = {}
    """Highest offset of origin delivered, by `origin_key`."""
    retried: tuple[str, ...] = ()
    """Dead letters whose events were delivered now."""
    unreadable: tuple[Refused, ...] = ()


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What had been delivered when a batch was committed."""

    batch: int = -1
    high_water: dict[str, int] = {}
    retried: frozenset[str] = frozenset()

    def after(self, batch: int, reports: Iterable[PartReport]) -> "Seen":
        """What has been delivered with this batch too."""
        done = list(reports)
        retried = self.retried.union(*(report.retried for report in done))
        marks = marks_after(self.high_water, (report.high_water for report in done))
        return Seen(batch=batch, high_water=marks, retried=retried)


class FreshRows(NamedTuple):
    """Events of a piece of a batch that were not delivered before, in the order of its rows."""

    events: pa.Table
    """Of `LIVE_SCHEMA`."""
    rows: Index
    """Which row of the batch each was."""


class FreshEvents:
    """Reads one task's part of a batch: events that are there for the first time, counts of all others."""

    def __init__(self, seen: Seen) -> None:
        self._filter = RepeatFilter(seen.high_water, seen.retried)
        self._unreadable: list[Refused] = []
        self._rows = 0
        self._repeats = 0

    def read(self, batch: pa.RecordBatch) -> Iterator[FreshRows]:
        """Piece by piece, from a batch of an edge's records (topic, partition, offset, key, value)."""
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
        """What was read so far."""
        return PartReport(
            rows=self._rows,
            repeats=self._repeats,
            high_water=self._filter.high_water,
            retried=tuple(self._filter.retried),
            unreadable=tuple(self._unreadable),
        )


def refused(batch: pa.RecordBatch, row: int, reason: str) -> Refused:
    """A row of a batch of an edge's records, with the reason why the sink does not take it."""
    stream, partition, offset, value = (
        batch.column(name)[row].as_py() for name in ("topic", "partition", "offset", "value")
    )
    return Refused(stream, partition, offset, value or b"", reason)
