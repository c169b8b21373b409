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

from logboom.base.units import MIB
from logboom.pipeline.checkpoint.ledger import Ledger
from logboom.pipeline.checkpoint.unfinished_starts import count_start
from logboom.pipeline.spark.arrow_batches import lift_limit, limit_bytes
from logboom.pipeline.spark.kafka import POLL_RECORDS
from logboom.pipeline.spark.settings import ARROW_BYTES_MAX, ARROW_ROWS

_STARTS_FOR_ONE_TASK: Final = 2
_STARTS_FOR_FEWEST: Final = 4
"""Before that it may have been killed for other reasons: the query is as slow as it starts, until it starts anew."""
_POLL_BYTES: Final = 16 * MIB
_POLL_RECORDS_SOME, _POLL_RECORDS_MIN = 64, 4
_LARGE_BYTES: Final = ARROW_BYTES_MAX // ARROW_ROWS
"""Records of this size on the average make Arrow batches that reach the limit in bytes."""


def poll_records(record_bytes: float, starts: int) -> int:
    """How many records a query takes of the log at once. `record_bytes`: of one on the average, 0 if that is not
    known. `starts`: that found the same batch unfinished; from the second on they are taken for a want of memory.

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
    """Of a record that came in, on the average; 0 if there was none."""
    records = 0 if ledger is None else sum(ledger.records_in.values())
    return 0.0 if ledger is None or not records else ledger.bytes_in / records


def bytes_of_event(ledger: Ledger | None) -> float:
    """The same of an event that went out."""
    events = 0 if ledger is None else sum(ledger.out.values())
    return 0.0 if ledger is None or not events else ledger.bytes_out / events


class BatchMemory:
    """What the batches of one router take. Used by the thread of its query, but for `started`, which precedes it."""

    def __init__(self, path: Path) -> None:
        """`path`: the file of the checkpoint that counts starts."""
        self._path = path
        self._unfinished: int | None = None
        self._starts = 0
        self._is_large = False

    def started(self, unfinished: int | None, last: Ledger | None) -> int:
        """The query starts, with a batch that an earlier attempt has begun, or none. `last`: of the batch before. Gives
        how many records it is to take of the log at once."""
        self._unfinished = unfinished
        self._starts = count_start(self._path, unfinished)
        if last is not None:
            self.ended(last)
        return poll_records(bytes_of_record(last), self._starts)

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
        if any(ledger.records_in.values()):
            self._is_large = bytes_of_record(ledger) >= _LARGE_BYTES
