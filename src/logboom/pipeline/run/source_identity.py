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
        patterns = [(source, re.compile(source.pattern)) for source in sources if source.pattern is not None]
        self._patterns = [pattern for _, pattern in patterns]
        self._may_go = [pattern for source, pattern in patterns if source.on_data_loss == "continue"]

    def check(self, ids: dict[str, str]) -> None:
        """PipelineError if one of these streams was recreated since the checkpoint knows it."""
        check_ids(self._known, ids, {name for name in ids if self._may_be_gone(name)})

    def ids(self, batch: int) -> dict[str, str]:
        """Of the streams that a batch reads, as the log has them now. Those of a pattern may be gone where their source
        goes on without lost records: Spark does without them after a minute."""
        read = [name for name in offsets_of(self._query, batch) if name in self._named or _fits(name, self._patterns)]
        if any(self._may_be_gone(name) for name in read):
            there = self._admin.partitions()
            read = [name for name in read if name in there or not self._may_be_gone(name)]
        return self._admin.ids(read)

    def _may_be_gone(self, stream: str) -> bool:
        return stream not in self._named and _fits(stream, self._may_go)


def _fits(stream: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    return any(pattern.fullmatch(stream) for pattern in patterns)
