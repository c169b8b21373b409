"""Driver side of the sink with `delivery: exactly_once`: commits the streams that tasks have written.

Each attempt at a batch commits what its tasks have finished, so that the next attempt sends only the rest. Before a
commit is requested, a file of the checkpoint lists its streams and the part of the batch that it completes. An attempt
first resolves a commit that this file describes: it is requested again, and nothing is written before its outcome is
known. So neither a lost answer nor killing the router at any step duplicates rows.

Knows the writer of sinks that send requests, and the checkpoint. Must not know queries, or how often a batch is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from logboom.base.errors import LogboomError
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.sinks.base import Delivered, PartlyDeliveredError, SinkContext
from logboom.pipeline.sinks.bigquery.commits import Commit, Commits
from logboom.pipeline.sinks.bigquery.committing import STREAMS_MAX, NotCommittedError, StreamsGoneError
from logboom.pipeline.sinks.bulk.progress import DeliveredOrigins
from logboom.pipeline.sinks.bulk.secrets import without_secrets
from logboom.pipeline.sinks.bulk.task import Staged
from logboom.pipeline.sinks.bulk.writer import Attempt, BulkWriter, secrets_of, unnoted
from logboom.pipeline.spark.causes import cause_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from logboom.pipeline.sinks.bigquery import BigQuerySink


class CommittingWriter(BulkWriter):
    """Delivers the batches of one sink."""

    def __init__(self, sink: BigQuerySink, context: SinkContext) -> None:
        super().__init__(sink, context)
        self._table = sink
        self._commits = Commits(context.checkpoint)
        self._rows = self._repeats = self._dead = 0
        """Results of attempts that were not reported yet."""

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        try:
            self._begin(batch)
            self._settle()
            if batch > self._progress.batch:
                self._deliver(rows, batch)
        except Exception as error:  # raised again, with what was delivered so far
            reason = self._with_part_noted(self._said(error))
            rows_in, repeats, dead = self._told()
            raise PartlyDeliveredError(reason, rows=rows_in, repeats=repeats, dead=dead) from error
        return Delivered(self._sink.name, batch, *self._told())

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        """Resolve a commit without an answer a last time: what it has committed does not become dead letters."""
        with suppress(LogboomError, OSError):
            self._settle()
        return super().left(rows, batch)

    def _begin(self, batch: int) -> None:
        if batch != self._batch:
            committed = self._commits.done(batch)
            super()._begin(batch)
            self._done = self._done.plus(committed)

    def _deliver(self, rows: DataFrame, batch: int) -> None:
        attempt = self._attempt(rows)
        self._repeats += attempt.repeats
        self._dead += attempt.dead
        progress = None if attempt.error is not None else self._after(batch, attempt)
        self._commit_all(attempt, progress)
        if attempt.error is not None:
            raise PipelineError(attempt.error)
        if progress is not None and batch > self._progress.batch:  # there was nothing left to commit
            self._note_delivered(progress)

    def _commit_all(self, attempt: Attempt, progress: DeliveredOrigins | None) -> None:
        """Commit what the tasks have staged: all at once, unless BigQuery accepts fewer streams in one commit."""
        staged = [report.staged for report in attempt.reports if report.staged is not None]
        groups = [staged[at : at + STREAMS_MAX] for at in range(0, len(staged), STREAMS_MAX)]
        for number, group in enumerate(groups, start=1):
            commit = self._commit_of(group, progress if number == len(groups) else None)
            self._commits.begin(commit)
            self._context.save()
            self._ask(commit, is_in_doubt=False)

    def _commit_of(self, staged: Sequence[Staged], progress: DeliveredOrigins | None) -> Commit:
        done = self._done
        for part in staged:
            done = done.plus(part.done)
        names = tuple(part.name for part in staged)
        return Commit(
            batch=self._batch, streams=names, rows=sum(part.rows for part in staged), done=done, progress=progress
        )

    def _settle(self) -> None:
        """Resolve a commit without an answer. One of a batch that was given up is left as it is."""
        commit = self._commits.open
        if commit is None:
            return
        if commit.batch == self._batch and commit.batch > self._progress.batch:
            self._ask(commit, is_in_doubt=True)
        else:
            self._commits.forget()

    def _ask(self, commit: Commit, *, is_in_doubt: bool) -> None:
        committer = self._table.open_committer(secrets_of(self._sink, self._context))
        try:
            committer.commit(commit.streams, is_in_doubt=is_in_doubt)
        except NotCommittedError:
            self._commits.forget()
            raise
        except StreamsGoneError as error:
            raise PipelineError(
                f"{error}. Look in the table for an event of the batch: remove {self._commits.path} to have its "
                f"{commit.rows} rows written again, which duplicates them if they are already there"
            ) from None
        finally:
            committer.close()
        self._commits.open = None  # counted here, once, even if the following steps fail
        self._done = self._done.plus(commit.done)
        self._rows += commit.rows
        if commit.progress is not None:
            self._note_delivered(commit.progress)
        self._commits.made(commit)

    def _note_delivered(self, progress: DeliveredOrigins) -> None:
        try:
            self._note(progress)
        except OSError as failure:
            raise PipelineError(unnoted(failure)) from failure

    def _said(self, error: Exception) -> str:
        """The message of an error, without credentials."""
        try:
            secrets = secrets_of(self._sink, self._context).values()
        except LogboomError:  # the credentials cannot be read, so the error cannot contain them
            return cause_of(error)
        return without_secrets(cause_of(error), secrets)

    def _told(self) -> tuple[int, int, int]:
        """The rows, repeats and dead letters of attempts, each reported once."""
        told = self._rows, self._repeats, self._dead
        self._rows = self._repeats = self._dead = 0
        return told
