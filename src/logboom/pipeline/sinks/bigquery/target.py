"""Executor side: writes to a table of BigQuery, through its default stream or a stream of the task.

Knows rows and the calls. Must not know Spark, batches, or commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from logboom.pipeline.sinks.bulk.backoff import tried_again
from logboom.pipeline.sinks.bulk.target import (
    BulkResponse,
    Encoded,
    GiveUpError,
    Item,
    RefusedWholeError,
    StagingTarget,
    TryAgainError,
)
from logboom.pipeline.sinks.grpc.status import AlreadyExistsError, TooLargeError

if TYPE_CHECKING:
    from logboom.pipeline.event.record import EventRecord
    from logboom.pipeline.sinks.bigquery.calls import Appended, WriteApi
    from logboom.pipeline.sinks.bigquery.rows import RowEncoder

_REQUEST_BYTES: Final = 9_500_000
"""BigQuery refuses requests above 10 MB ("Quotas and limits"); this leaves a margin."""


class DefaultStreamTarget:
    """The table's default stream: rows are visible at once, and a repeated row is not recognised."""

    def __init__(self, api: WriteApi, rows: RowEncoder) -> None:
        self._api = api
        self._rows = rows

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode one event."""
        return self._rows.encode(event)

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one AppendRowsRequest."""
        data = self._rows.data([item.payload for item in items])
        return self._said(self._api.append(self._api.default_stream, data), len(items))

    def probe(self) -> None:
        """Look up the default stream, which checks the table and the right to write to it."""
        self._api.look(self._api.default_stream)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    @staticmethod
    def _said(appended: Appended, count: int) -> BulkResponse:
        """Return normally if all rows were written, report refused rows, or raise the error of the request."""
        named = {index: reason for index, reason in appended.refused.items() if 0 <= index < count}
        if named:
            others = [index for index in range(count) if index not in named]
            return BulkResponse(
                refused=named, again=dict.fromkeys(others, "was in a request with a refused row"), pause_s=0.0
            )
        error = appended.error
        if isinstance(error, RefusedWholeError) and not isinstance(error, AlreadyExistsError):
            raise GiveUpError(str(error))  # an error without rows: the table has other columns than the rows
        if error is not None:
            raise error
        return BulkResponse()


class PendingStreamTarget(DefaultStreamTarget, StagingTarget):
    """A stream of the task, whose rows are invisible until it is committed.

    Each request contains the offset of its rows, so that a repeated request is written once: BigQuery answers it with
    ALREADY_EXISTS. That answer is accepted only for rows that were sent to this offset before.
    """

    def __init__(self, api: WriteApi, rows: RowEncoder, retry_for_s: float) -> None:
        super().__init__(api, rows)
        self._retry_for_s = retry_for_s
        self._stream: str | None = None
        self._offset = 0
        self._unanswered: set[tuple[tuple[str, int], ...]] = set()
        """The records of each request that was sent to `_offset` without an answer."""

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one AppendRowsRequest at the end of the stream."""
        if self._stream is None:
            self._stream = self._api.create()
        records = tuple((item.place, item.offset) for item in items)
        data = self._rows.data([item.payload for item in items])
        try:
            answer = self._said(self._api.append(self._stream, data, self._offset), len(items))
        except AlreadyExistsError as error:
            if self._unanswered != {records}:
                raise GiveUpError(f"{error}: the stream has other rows than were confirmed") from None
            answer = BulkResponse()
        except TryAgainError:
            self._unanswered.add(records)
            raise
        except RefusedWholeError as error:
            if len(data) > _REQUEST_BYTES or isinstance(error, TooLargeError):
                raise
            # the error belongs to the stream: its rows are written to another one
            raise GiveUpError(str(error)) from None
        if not answer.refused:
            self._offset += len(items)
            self._unanswered.clear()
        return answer

    def finish(self, taken: int) -> str | None:
        """Finalize the stream, so that requests without an answer have either been written or never will be."""
        stream = self._stream
        if stream is None or taken == 0:
            return None
        count = tried_again(lambda: self._api.finalize(stream), self._retry_for_s)
        if count != taken:
            raise TryAgainError(
                f"BigQuery has {count} rows in a stream of which {taken} were confirmed; they are written to another"
            )
        return stream
