"""How much of a batch of the router is in memory at once, and when less of it.

A number of rows makes an Arrow batch, since a limit in bytes is worked out after every row, which costs as much as all
the rest of a batch. Without one, 16,384 lines of some 100 KiB are more than a JVM can hold: it ends, and so would the
next one at the same batch. So a batch that was begun and not finished is taken in smaller pieces at the next start, and
where that has not helped, by one task after the other; and the batches behind it in smaller pieces too, as long as
their lines are large.

Knows Spark's settings and ledgers. Must not know what a batch does.
"""

from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from logboom.pipeline.checkpoint.ledger import Ledger
from logboom.pipeline.checkpoint.starts import count_start
from logboom.pipeline.spark.arrow_batches import lift_limit, limit_bytes
from logboom.pipeline.spark.settings import ARROW_BYTES_MAX, ARROW_ROWS

_STARTS_FOR_ONE_TASK: Final = 2
_LARGE_BYTES: Final = ARROW_BYTES_MAX // ARROW_ROWS
"""Records of this size on the average make Arrow batches that reach the limit in bytes."""


class BatchMemory:
    """What the batches of one router take. Used by the thread of its query, but for `started`, which precedes it."""

    def __init__(self, path: Path) -> None:
        """`path`: the file of the checkpoint that counts starts."""
        self._path = path
        self._unfinished: int | None = None
        self._starts = 0
        self._is_large = False

    def started(self, unfinished: int | None, last: Ledger | None) -> None:
        """The query starts, with a batch that an earlier attempt has begun, or none. `last`: of the batch before."""
        self._unfinished = unfinished
        self._starts = count_start(self._path, unfinished)
        if last is not None:
            self.ended(last)

    def bounded(self, records: DataFrame, batch: int) -> DataFrame:
        """The records of a batch as they are to be worked on."""
        is_repeated = batch == self._unfinished
        if is_repeated or self._is_large:
            limit_bytes(records.sparkSession)
        else:
            lift_limit(records.sparkSession)
        if is_repeated and self._starts >= _STARTS_FOR_ONE_TASK:
            return records.coalesce(1)
        return records

    def ended(self, ledger: Ledger) -> None:
        """What a batch had in it."""
        records = sum(ledger.records_in.values())
        if records:
            self._is_large = ledger.bytes_in >= records * _LARGE_BYTES
