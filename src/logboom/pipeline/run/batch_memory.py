"""Limits the memory of a router batch, with lower limits after a failure.

Arrow batches are limited by number of rows, because a limit in bytes is computed after every row, which costs as much
as the rest of a batch. But 16,384 lines of some 100 KiB exceed the memory of a JVM: it ends, and the next one would end
at the same batch. So a batch that was started and not finished is processed in smaller pieces at the next start, and if
that did not help, in one task at a time. The following batches are also processed in smaller pieces as long as their
lines are large.

Knows Spark's settings and ledgers. Must not know what a batch does.
"""

from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from logboom.base.units import MIB
from logboom.pipeline.checkpoint.ledger import Ledger
from logboom.pipeline.checkpoint.unfinished_starts import count_start
from logboom.pipeline.spark.arrow_batches import lift_limit, limit_bytes
from logboom.pipeline.spark.kafka import POLL_RECORDS
from logboom.pipeline.spark.settings import ARROW_BYTES_MAX, ARROW_ROWS

_STARTS_FOR_ONE_TASK: Final = 2
_STARTS_FOR_FEWEST: Final = 4
"""During this time after a start, the process may have been killed for other reasons: the query is as slow as at a
start, until it is restarted."""
_POLL_BYTES: Final = 16 * MIB
_POLL_RECORDS_SOME, _POLL_RECORDS_MIN = 64, 4
_LARGE_BYTES: Final = ARROW_BYTES_MAX // ARROW_ROWS
"""With records of this average size, Arrow batches reach the limit in bytes."""


def poll_records(record_bytes: float, starts: int) -> int:
    """How many records a query polls from the log at a time. `record_bytes`: their average size, 0 if unknown.
    `starts`: number of starts that found the same batch unfinished; the second and later ones are attributed to a lack
    of memory.

    >>> poll_records(500, 0), poll_records(1_000_000, 0), poll_records(500, 2), poll_records(500, 4)
    (100000, 16, 64, 4)
    """
    if starts >= _STARTS_FOR_FEWEST:
        return _POLL_RECORDS_MIN
    most = _POLL_RECORDS_SOME if starts >= _STARTS_FOR_ONE_TASK else POLL_RECORDS
    if record_bytes < _LARGE_BYTES:
        return most
    return min(most, max(_POLL_RECORDS_MIN, int(_POLL_BYTES / record_bytes)))


def bytes_of_record(ledger: Ledger | None) -> float:
    """Average size of an input record; 0 if there was none."""
    records = 0 if ledger is None else sum(ledger.records_in.values())
    return 0.0 if ledger is None or not records else ledger.bytes_in / records


def bytes_of_event(ledger: Ledger | None) -> float:
    """Average size of an output record."""
    events = 0 if ledger is None else sum(ledger.out.values())
    return 0.0 if ledger is None or not events else ledger.bytes_out / events


class BatchMemory:
    """Memory limits for the batches of one router. Used by its query's thread, except `started`, which is called
    before."""

    def __init__(self, path: Path) -> None:
        """`path`: the checkpoint's file that counts starts."""
        self._path = path
        self._unfinished: int | None = None
        self._starts = 0
        self._is_large = False

    def started(self, unfinished: int | None, last: Ledger | None) -> int:
        """Called when the query starts, with the batch that an earlier attempt has started, if any. `last`: the
        previous batch. Returns how many records the query may poll from the log at a time."""
        self._unfinished = unfinished
        self._starts = count_start(self._path, unfinished)
        if last is not None:
            self.ended(last)
        return poll_records(bytes_of_record(last), self._starts)

    def bounded(self, records: DataFrame, batch: int) -> DataFrame:
        """The records of a batch, limited as needed."""
        is_repeated = batch == self._unfinished
        if is_repeated or self._is_large:
            limit_bytes(records.sparkSession)
        else:
            lift_limit(records.sparkSession)
        if is_repeated and self._starts >= _STARTS_FOR_ONE_TASK:
            return records.coalesce(1)
        return records

    def ended(self, ledger: Ledger) -> None:
        """Record the counts of a batch."""
        if any(ledger.records_in.values()):
            self._is_large = bytes_of_record(ledger) >= _LARGE_BYTES
