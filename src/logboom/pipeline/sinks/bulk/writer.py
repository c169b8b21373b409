"""Driver side: hands a batch to tasks, remembers what they did until all is done, and writes that down.

Knows Spark's mapInArrow and the tasks. Must not know any particular server, queries, or how often a batch is tried.
"""

from __future__ import annotations

import msgspec
from pyspark.sql import DataFrame

from logboom.pipeline.sinks.base import BaseWriter, Delivered, PartlyDeliveredError, SinkContext
from logboom.pipeline.sinks.bulk.model import BulkSink
from logboom.pipeline.sinks.bulk.progress import Progress, read_progress, write_progress
from logboom.pipeline.sinks.bulk.requests import Limits
from logboom.pipeline.sinks.bulk.task import REPORT_COLUMN, BulkTask, Report
from logboom.pipeline.sinks.repeats.left import RECORD_SCHEMA, WithoutDone
from logboom.pipeline.sinks.repeats.origins import marks_after
from logboom.pipeline.sinks.repeats.ranges import Done


class BulkWriter(BaseWriter):
    """Delivers the batches of one sink."""

    def __init__(self, sink: BulkSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._progress = read_progress(context.checkpoint)
        self._batch = -1
        self._done = Done()
        """Of the batch that is being tried."""

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        if batch <= self._progress.batch:  # delivered before the query could note it
            return Delivered(self._sink.name, batch)
        if batch != self._batch:
            self._batch, self._done = batch, Done()
        reports = self._reports(rows)
        for report in reports:
            self._done = self._done.plus(report.done)
        count = sum(report.rows for report in reports)
        repeats = sum(report.repeats for report in reports)
        dead = sum(report.dead for report in reports)
        error = next((report.error for report in reports if report.error is not None), None)
        if error is not None:
            raise PartlyDeliveredError(error, rows=count, repeats=repeats, dead=dead)
        progress = self._after(batch, reports)
        try:
            write_progress(self._context.checkpoint, progress)
        except OSError as failure:
            reason = f"what was delivered cannot be noted in the checkpoint: {failure}"
            raise PartlyDeliveredError(reason, rows=count, repeats=repeats, dead=dead) from failure
        self._progress = progress
        return Delivered(self._sink.name, batch, rows=count, repeats=repeats, dead=dead)

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        if batch != self._batch or not self._done.ranges:
            return rows
        return rows.mapInArrow(WithoutDone(self._done), RECORD_SCHEMA)

    def _reports(self, rows: DataFrame) -> list[Report]:
        sending = self._sink.sending
        tasks = 1 if sending.requests_per_second is None else max(rows.rdd.getNumPartitions(), 1)
        task = BulkTask(
            spec=self._sink,
            secrets=secrets_of(self._sink, self._context),
            limits=Limits(sending.max_events, sending.max_bytes),
            settings=sending.settings(tasks),
            letters=self._context.letters,
            done=self._done,
            high_water=self._progress.high_water,
            retried=self._progress.retried,
        )
        found = rows.mapInArrow(task, f"{REPORT_COLUMN} binary").collect()
        return [msgspec.json.decode(bytes(row[0]), type=Report) for row in found]

    def _after(self, batch: int, reports: list[Report]) -> Progress:
        before = self._progress
        high_water = marks_after(before.high_water, (report.high_water for report in reports))
        retried = before.retried.union(*(report.retried for report in reports))
        return Progress(batch, high_water, retried)


def secrets_of(sink: BulkSink, context: SinkContext) -> dict[str, str]:
    """The texts of a sink's credentials as they are now, by `KeyRef.id`."""
    return {ref.id: context.secret(ref) for _, ref in sink.secret_refs}
