"""Detects source records that the log deleted before the router read them; the router skips and reports them.

Knows Spark's offsets and the log. Must not know how a batch is run.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from logboom.pipeline.checkpoint.spark_log import first_offsets, offsets_of
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.plan.nodes import StreamSource


class DeletedRecords:
    """Reports each gap of a partition once, and counts the records batch by batch. Records that are deleted while a
    batch reads are neither reported nor counted."""

    def __init__(
        self, query: Path, admin: StreamAdmin, sources: Sequence[StreamSource], notify: Callable[[str], None]
    ) -> None:
        """`sources`: those of the plan. Only sources that continue after data loss are checked."""
        self._query = query
        self._admin = admin
        self._sources = [source for source in sources if source.on_data_loss == "continue"]
        self._notify = notify
        self._told: dict[tuple[str, int], int] = {}
        """The offset up to which gaps were reported, by stream and partition."""
        self._told_of_streams: set[str] = set()

    def before(self, batch: int) -> Counter[str]:
        """Compare the log's start offsets with those that Spark has planned for a batch; returns the number of deleted
        records by source."""
        gone = Counter[str]()
        if not self._sources:
            return gone
        first, behind = offsets_of(self._query, batch - 1) or first_offsets(self._query), offsets_of(self._query, batch)
        there = self._admin.partitions()
        asked = {name: there[name] for name in first if name in there and self._source(name) is not None}
        for stream in sorted(first.keys() - behind.keys() - there.keys() - self._told_of_streams):
            if self._source(stream) is not None:
                self._tell_of_stream(stream, first[stream])
        starts = self._admin.starts(asked)
        for stream in asked:
            for partition, begin in first[stream].items():
                start = starts[stream].get(str(partition), begin)
                end = behind.get(stream, {}).get(partition, begin)
                gone[str(self._source(stream))] += max(0, min(start, end) - begin)
                self._tell(stream, partition, begin, start)
        return +gone

    def _tell(self, stream: str, partition: int, begin: int, start: int) -> None:
        at = max(begin, self._told.get((stream, partition), 0))
        if start > at:
            self._told[stream, partition] = start
            self._notify(
                f"{stream}/{partition}: the log has deleted {start - at:,} records, from offset {at} to {start - 1}, "
                "before they were read: they are skipped"
            )

    def _tell_of_stream(self, stream: str, ends: Mapping[int, int]) -> None:
        self._told_of_streams.add(stream)
        read = ", ".join(f"{end} of partition {partition}" for partition, end in sorted(ends.items()))
        self._notify(f"the stream {stream} was deleted: it was read up to offset {read}, and later records are lost")

    def _source(self, stream: str) -> str | None:
        """The name of the source that reads a stream; None if that source stops after data loss."""
        for source in self._sources:
            if stream in source.streams or (source.pattern is not None and re.fullmatch(source.pattern, stream)):
                return source.name
        return None
