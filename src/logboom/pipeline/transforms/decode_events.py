"""Reads events that an archive held back from their JSON: where a replay of an archive begins, in place of a parse.

No pipeline's file names it; a replay makes it (`logboom.pipeline.run.replay`). It has the name of the output as whose
events they go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from logboom.pipeline.plan.nodes import KernelTransform

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class ArchivedTransform(KernelTransform, frozen=True, kw_only=True, tag="archived"):
    """Events as they were archived, with their ids, times, weights and origins."""

    reads_records: ClassVar[bool] = True

    def run(self, batch: RecordBatch, keys: Mapping[str, bytes]) -> RecordBatch:
        from logboom.pipeline.event.decoding import events_of_records

        return events_of_records(batch, self.name)
