"""Bookkeeping for each append once it is staged: counters, and the windows that know the newest records.

The windows of conditions and of message ids are correct only as long as nothing is staged without their knowledge. So
there is one place for it, however an append came.
"""

from collections.abc import Sequence

from logboom.base.ids import Offset
from logboom.broker.metrics import Counters
from logboom.broker.partition.condition_check import ConditionCheck
from logboom.broker.partition.conditions import ConditionalBatch
from logboom.broker.partition.message_ids import MessageIds
from logboom.storage import Batch


class AppendNotes:
    """See the module. Life: that of the append queue."""

    __slots__ = ("_conditions", "_counters", "_ids", "staged_bytes")

    def __init__(self, conditions: ConditionCheck, ids: MessageIds, counters: Counters) -> None:
        self.staged_bytes = 0
        """Staged since the queue set it to 0."""
        self._conditions = conditions
        self._ids = ids
        self._counters = counters

    def batches(self, batches: Sequence[Batch], base_offset: Offset, end: Offset) -> None:
        """Client batches without conditions were staged one after the other."""
        self._count(len(batches), end - base_offset, sum([len(records) for records, _ in batches]))
        if self._conditions.follows:
            self._conditions.appended(batches, base_offset)
        if self._ids.follows:
            self._ids.appended(batches, base_offset)

    def conditional(self, one: ConditionalBatch, base_offset: Offset, end: Offset) -> None:
        """A client's batch with conditions was staged."""
        self._count(1, end - base_offset, len(one.batch[0]))
        self._conditions.noted(one.keys, base_offset, end)
        if self._ids.follows:
            self._ids.appended((one.batch,), base_offset)

    def messages(self, batch: Batch, base_offset: Offset, ids: Sequence[tuple[int, bytes]]) -> None:
        """Published messages were staged as this batch, some with ids, by offset."""
        records, header = batch
        end = Offset(base_offset + header.last_offset_delta + 1)
        self._count(1, end - base_offset, len(records))
        if self._conditions.follows:
            self._conditions.appended((batch,), base_offset)
        if self._ids.follows:
            self._ids.noted(ids, base_offset, end)

    def _count(self, batches: int, records: int, size_bytes: int) -> None:
        counters = self._counters
        counters.appended_batches += batches
        counters.appended_records += records
        counters.appended_bytes += size_bytes
        self.staged_bytes += size_bytes
