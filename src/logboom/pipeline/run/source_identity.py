"""Whether the streams that a batch reads are still the ones that its offsets are of.

A stream may be deleted and made again while the router runs. Spark goes on in the new one at the old offsets, and what
that holds below them would be skipped, unseen.

Knows Spark's offsets and the log. Must not know how a batch is run.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from logboom.pipeline.checkpoint.spark_log import offsets_of
from logboom.pipeline.checkpoint.stream_identity import check_ids
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.plan.nodes import StreamSource


class SourceIdentity:
    """Of the sources of one router."""

    def __init__(self, checkpoint: Path, query: Path, admin: StreamAdmin, sources: Sequence[StreamSource]) -> None:
        """`query`: the router's, below the checkpoint. `sources`: of the plan."""
        self._known = checkpoint / "streams.json"
        self._query = query
        self._admin = admin
        self._named = {name for source in sources for name in source.streams}
        self._patterns = [
            re.compile(source.pattern)
            for source in sources
            if source.pattern is not None and source.on_data_loss == "fail"
        ]

    def check(self, ids: dict[str, str]) -> None:
        """PipelineError where one of these streams was made again since the checkpoint knows it."""
        check_ids(self._known, ids)

    def ids(self, batch: int) -> dict[str, str]:
        """Of the streams that a batch reads, as the log has them now. Streams of a pattern may come and go where their
        source goes on without lost records."""
        return self._admin.ids(name for name in offsets_of(self._query, batch) if self._is_checked(name))

    def _is_checked(self, stream: str) -> bool:
        return stream in self._named or any(pattern.fullmatch(stream) for pattern in self._patterns)
