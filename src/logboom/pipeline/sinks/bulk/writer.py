"""Driver side: gives a batch to tasks, collects their reports until all is done, and records that durably.

Knows Spark's mapInArrow and the tasks. Must not know any particular server, queries, or how often a batch is tried.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame

from logboom.pipeline.errors import PipelineError
from logboom.pipeline.sinks.base import BaseWriter, Delivered, PartlyDeliveredError, SinkContext
from logboom.pipeline.sinks.bulk.model import BulkSink
from logboom.pipeline.sinks.bulk.partial_batch import PartialBatches
from logboom.pipeline.sinks.bulk.progress import DeliveredOrigins, read_progress, write_progress
from logboom.pipeline.sinks.bulk.requests import RequestSizeLimits
from logboom.pipeline.sinks.bulk.task import REPORT_COLUMN, BulkTask, Report
from logboom.pipeline.sinks.repeats.origins import marks_after
from logboom.pipeline.sinks.repeats.ranges import Done
from logboom.pipeline.sinks.repeats.undelivered import RECORD_SCHEMA, WithoutDone


class Attempt(NamedTuple):
    """The combined reports of the tasks of one attempt at a batch."""

    reports: tuple[Report, ...]

    @property
    def rows(self) -> int:
        """Events that were delivered."""
        return sum(report.rows for report in self.reports)

    @property
    def repeats(self) -> int:
        """Events that had been delivered before."""
        return sum(report.repeats for report in self.reports)

    @property
    def dead(self) -> int:
        """Dead letters that were written."""
        return sum(report.dead for report in self.reports)

    @property
    def error(self) -> str | None:
        """Why a part of the batch was not sent."""
        return next((report.error for report in self.reports if report.error is not None), None)


class BulkWriter(BaseWriter):
    """Delivers the batches of one sink."""

    def __init__(self, sink: BulkSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._progress = read_progress(context.checkpoint)
        self._partial = PartialBatches(context.checkpoint, sink, context.streams, context.notify)
        self._batch = -1
        self._done = Done()
        """State of the current batch."""

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        if batch <= self._progress.batch:  # delivered earlier, but the query had not recorded it
            return Delivered(self._sink.name, batch)
        self._begin(batch)
        attempt = self._attempt(rows)
        error = attempt.error
        if error is None:
            try:
                self._note(self._after(batch, attempt))
            except OSError as failure:
                error = unnoted(failure)
        if error is not None:
            error = self._with_part_noted(error)
            raise PartlyDeliveredError(error, rows=attempt.rows, repeats=attempt.repeats, dead=attempt.dead)
        return Delivered(self._sink.name, batch, rows=attempt.rows, repeats=attempt.repeats, dead=attempt.dead)

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        if batch != self._batch or not self._done.ranges:
            return rows
        return rows.mapInArrow(WithoutDone(self._done), RECORD_SCHEMA)

    def _begin(self, batch: int) -> None:
        """Begin an attempt at this batch."""
        if batch != self._batch:
            self._batch, self._done = batch, self._partial.done(batch)

    def _attempt(self, rows: DataFrame) -> Attempt:
        """Let the tasks send what is not done."""
        sending = self._sink.sending
        tasks = 1 if sending.requests_per_second is None else max(rows.rdd.getNumPartitions(), 1)
        task = BulkTask(
            spec=self._sink,
            secrets=secrets_of(self._sink, self._context),
            limits=RequestSizeLimits(sending.max_events, sending.max_bytes),
            settings=sending.settings(tasks),
            letters=self._context.letters,
            done=self._done,
            high_water=self._progress.high_water,
            retried=self._progress.retried,
        )
        found = rows.mapInArrow(task, f"{REPORT_COLUMN} binary").collect()
        attempt = Attempt(tuple(msgspec.json.decode(bytes(row[0]), type=Report) for row in found))
        for report in attempt.reports:
            self._done = self._done.plus(report.done)
        return attempt

    def _after(self, batch: int, attempt: Attempt) -> DeliveredOrigins:
        """Progress once the whole batch is delivered; this attempt has read it to its end."""
        before, reports = self._progress, attempt.reports
        high_water = marks_after(before.high_water, (report.high_water for report in reports))
        retried = before.retried.union(*(report.retried for report in reports))
        return DeliveredOrigins(batch, high_water, retried)

    def _note(self, progress: DeliveredOrigins) -> None:
        """Record progress durably."""
        write_progress(self._context.checkpoint, progress)
        self._progress = progress
        self._partial.remove()

    def _with_part_noted(self, error: str) -> str:
        """Record durably which part of a failed batch is done. Returns the reason, with that of a failure here."""
        try:
            if self._partial.note(self._batch, self._done):
                self._context.save()
        except (OSError, PipelineError) as failure:
            return f"{error}; and the delivered events cannot be recorded in the checkpoint: {failure}"
        return error


def unnoted(failure: OSError) -> str:
    """The reason why a delivered batch is tried again."""
    return f"the delivered events cannot be recorded in the checkpoint: {failure}"


def secrets_of(sink: BulkSink, context: SinkContext) -> dict[str, str]:
    """The current texts of a sink's credentials, by `KeyRef.id`."""
    return {ref.id: context.secret(ref) for _, ref in sink.secret_refs}
