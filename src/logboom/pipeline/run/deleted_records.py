"""What the log deletes of a replay's records before the replay comes to them: it goes on behind them, and says so.

Knows Spark's offsets and the log. Must not know how a batch is run.
"""

from collections.abc import Callable
from pathlib import Path

from logboom.pipeline.checkpoint.spark_log import first_offsets, offsets_of
from logboom.pipeline.edge.streams import StreamAdmin


class DeletedRecords:
    """Tells of each such gap of a partition once. What is deleted while a batch reads it is not told."""

    def __init__(self, query: Path, admin: StreamAdmin, notify: Callable[[str], None]) -> None:
        self._query = query
        self._admin = admin
        self._notify = notify
        self._told: dict[tuple[str, int], int] = {}
        """By stream and partition: up to there."""

    def before(self, batch: int) -> None:
        """Looks at where the log begins, against where a batch does that Spark has planned."""
        first = offsets_of(self._query, batch - 1) or first_offsets(self._query)
        starts = self._admin.starts({stream: max(begins, default=-1) + 1 for stream, begins in first.items()})
        for stream, begins in first.items():
            for partition, begin in begins.items():
                at, start = max(begin, self._told.get((stream, partition), 0)), starts[stream][str(partition)]
                if start > at:
                    self._told[stream, partition] = start
                    self._notify(
                        f"{stream}/{partition}: the log has deleted {start - at:,} records, from offset {at} to "
                        f"{start - 1}, before they were read: they are left out"
                    )
