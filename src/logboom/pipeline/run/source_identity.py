"""Checks that the streams which a batch reads are the same ones that the checkpoint's offsets belong to.

A stream may be deleted and created again while the router runs. Spark would continue in the new one at the old offsets,
and silently skip the records below them.

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
    """The identities of one router's sources."""

    def __init__(self, checkpoint: Path, query: Path, admin: StreamAdmin, sources: Sequence[StreamSource]) -> None:
        """`query`: the router's directory in the checkpoint. `sources`: those of the plan."""
        self._known = checkpoint / "streams.json"
        self._query = query
        self._admin = admin
        self._named = {name for source in sources for name in source.streams}
        patterns = [(source, re.compile(source.pattern)) for source in sources if source.pattern is not None]
        self._patterns = [pattern for _, pattern in patterns]
        self._may_go = [pattern for source, pattern in patterns if source.on_data_loss == "continue"]

    def check(self, ids: dict[str, str]) -> None:
        """Raise PipelineError if one of these streams was created again since it was added to the checkpoint."""
        check_ids(self._known, ids, {name for name in ids if self._may_be_gone(name)})

    def ids(self, batch: int) -> dict[str, str]:
        """The current ids of the streams that a batch reads. A stream that matches a pattern may be missing if its
        source continues after data loss: after a minute Spark continues without it."""
        read = [name for name in offsets_of(self._query, batch) if name in self._named or _fits(name, self._patterns)]
        if any(self._may_be_gone(name) for name in read):
            there = self._admin.partitions()
            read = [name for name in read if name in there or not self._may_be_gone(name)]
        return self._admin.ids(read)

    def _may_be_gone(self, stream: str) -> bool:
        return stream not in self._named and _fits(stream, self._may_go)


def _fits(stream: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    return any(pattern.fullmatch(stream) for pattern in patterns)
