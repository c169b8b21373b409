"""Dead letters of sinks that deliver a batch as a whole: each is written once, however often the batch is tried.

Knows refused records and the reports of failed attempts. Must not know any sink.
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
    """The dead letters that the attempts at a batch have written.

    A dead letter is written before the batch is committed, since a crash in between would lose it otherwise. If the
    attempt fails after that, this part of the batch is done.
    """

    def __init__(self, write: RefusedLetters) -> None:
        """`write` returns when the dead letters are in the log."""
        self._write = write
        self._batch = -1
        self._done = Done()
        self._count = 0

    def begin(self, batch: int) -> None:
        """Begin an attempt at this batch."""
        if batch != self._batch:
            self._batch, self._done = batch, Done()
        self._count = 0

    @contextmanager
    def attempt(self, batch: int) -> Iterator[None]:
        """Run an attempt at this batch. Its dead letters count even if it fails later."""
        self.begin(batch)
        try:
            yield
        except Exception as error:  # raised again, with the number of dead letters written so far
            failure = self.failed(error)
            if failure is error:
                raise
            raise failure from error

    def write(self, refused: Sequence[Refused]) -> int:
        """Write the dead letters that no attempt has written; returns how many."""
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
        """The exception to raise for an attempt that failed with this error."""
        return error if self._count == 0 else PartlyDeliveredError(cause_of(error), dead=self._count)

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        """The records of the batch that have no dead letter."""
        from logboom.pipeline.sinks.repeats.undelivered import RECORD_SCHEMA, WithoutDone

        if batch != self._batch or not self._done.ranges:
            return rows
        return rows.mapInArrow(WithoutDone(self._done), RECORD_SCHEMA)
