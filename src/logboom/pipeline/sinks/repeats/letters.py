"""Dead letters of sinks that deliver a batch as a whole: each once, however often the batch is tried.

Knows records that are refused and what a failed attempt comes to. Must not know any sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from logboom.pipeline.sinks.base import PartlyDeliveredError, Refused, RefusedLetters
from logboom.pipeline.sinks.repeats.ranges import Done, done_of
from logboom.pipeline.spark.causes import cause_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class BatchLetters:
    """What attempts at a batch have written.

    A letter is written before the batch is committed, since a process that ends in between would lose it; so an attempt
    that fails behind it has done that part.
    """

    def __init__(self, write: RefusedLetters) -> None:
        """`write` returns when they are in the log."""
        self._write = write
        self._batch = -1
        self._done = Done()
        self._count = 0

    def begin(self, batch: int) -> None:
        """An attempt at this batch begins."""
        if batch != self._batch:
            self._batch, self._done = batch, Done()
        self._count = 0

    @contextmanager
    def attempt(self, batch: int) -> Iterator[None]:
        """An attempt at this batch, whose letters count though it fails behind them."""
        self.begin(batch)
        try:
            yield
        except Exception as error:  # BLE001 allows what is raised again: here with the letters that count
            failure = self.failed(error)
            if failure is error:
                raise
            raise failure from error

    def write(self, refused: Sequence[Refused]) -> int:
        """Writes those that no attempt at the batch has; how many this attempt has written now."""
        new = [one for one in refused if not self._done.has(f"{one.stream}/{one.partition}", one.offset)]
        if new:
            self._write(new)
            self._count += len(new)
            offsets: dict[str, list[int]] = {}
            for one in new:
                offsets.setdefault(f"{one.stream}/{one.partition}", []).append(one.offset)
            self._done = self._done.plus(done_of(offsets))
        return self._count

    def failed(self, error: Exception) -> Exception:
        """What an attempt raises that failed with this error."""
        return error if self._count == 0 else PartlyDeliveredError(cause_of(error), dead=self._count)

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        """The records of a batch without those that have a letter."""
        from logboom.pipeline.sinks.repeats.left import RECORD_SCHEMA, WithoutDone

        if batch != self._batch or not self._done.ranges:
            return rows
        return rows.mapInArrow(WithoutDone(self._done), RECORD_SCHEMA)
