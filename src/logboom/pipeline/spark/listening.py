"""Spark's own progress of the queries, for what only Spark knows: how far each is behind.

Knows Spark's listener interface. Must not know what is done with the figures.
"""

import json
from collections.abc import Callable
from typing import Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

_BEHIND: Final = "avgOffsetsBehindLatest"

OnLag = Callable[[str, int], None]


class LagListener(StreamingQueryListener):
    """Reports, for each query by name, how many records of its sources it has not read yet."""

    def __init__(self, on_lag: OnLag) -> None:
        self._on_lag = on_lag

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch was committed."""
        behind = 0
        for source in event.progress.sources:
            partitions = _partitions(source.endOffset)
            average = float(source.metrics.get(_BEHIND, "0") or 0)
            behind += round(average * partitions)
        self._on_lag(event.progress.name or "", behind)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing new came."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """The runner sees this by itself."""


def _partitions(offsets: str | None) -> int:
    """How many partitions stand in Spark's JSON of offsets."""
    if not offsets:
        return 0
    return sum(len(partitions) for partitions in json.loads(offsets).values())
