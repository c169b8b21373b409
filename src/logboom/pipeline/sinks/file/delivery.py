"""Delivers batches to files: tasks write pieces, the driver appends them. Must not know queries or attempts."""

import time
from contextlib import suppress

import msgspec
from pyspark.sql import DataFrame

from logboom.pipeline.sinks.base import Delivered, SinkContext
from logboom.pipeline.sinks.file import FileSink
from logboom.pipeline.sinks.file.appending import LineFiles
from logboom.pipeline.sinks.file.lines import REPORT_COLUMN, LinesReport, LineWriter
from logboom.pipeline.sinks.repeats.batch_dead_letters import BatchLetters


def open_files(sink: FileSink, context: SinkContext) -> "FileDelivery":
    """Open the files of a sink, and undo what an interrupted batch left in them."""
    directory = context.checkpoint / "file"
    files = LineFiles(sink, directory, resolve=context.resolve, now=time.time, notify=context.notify, save=context.save)
    return FileDelivery(sink, files, context)


class FileDelivery:
    """Writes lines."""

    def __init__(self, sink: FileSink, files: LineFiles, context: SinkContext) -> None:
        self._sink = sink
        self._files = files
        self._letters = BatchLetters(context.write_dead_letters)

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        with self._letters.attempt(batch):
            return self._delivered(rows, batch)

    def _delivered(self, rows: DataFrame, batch: int) -> Delivered:
        if batch <= self._files.seen.batch:  # committed, but the query had not recorded it
            return Delivered(self._sink.name, batch)
        writer = LineWriter(sink=self._sink, staging=self._files.staging(), seen=self._files.seen)
        answers = rows.mapInArrow(writer, f"{REPORT_COLUMN} binary").collect()
        reports = [msgspec.json.decode(bytes(row[0]), type=LinesReport) for row in answers]
        dead = self._letters.write([record for report in reports for record in report.unreadable])
        self._files.commit(batch, reports)
        return Delivered(
            self._sink.name,
            batch,
            rows=sum(report.rows for report in reports),
            repeats=sum(report.repeats for report in reports),
            dead=dead,
        )

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        """All records of a batch that is given up, except those with a dead letter: its lines are removed."""
        with suppress(OSError):  # then the next attempt begins with the undo
            self._files.undo()
        return self._letters.left(rows, batch)

    def idle(self) -> None:
        """Nothing to tidy."""

    def finish(self) -> None:
        """Nothing to finish."""
