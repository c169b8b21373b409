"""Commits the pending streams of a table, and finds out the outcome of a commit that had no answer.

A commit is requested with the same streams until its outcome is known. A commit is atomic and BigQuery commits each
stream once (STREAM_ALREADY_COMMITTED), so that even a delayed request duplicates nothing.

Knows the calls. Must not know batches or the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from logboom.base.errors import LogboomError
from logboom.pipeline.sinks.bulk.backoff import tried_again
from logboom.pipeline.sinks.bulk.target import GiveUpError, TryAgainError
from logboom.pipeline.sinks.grpc.status import NotFoundError

if TYPE_CHECKING:
    from logboom.pipeline.sinks.bigquery.calls import StreamError, WriteApi

STREAMS_MAX: Final = 100
"""Streams of one commit."""
_ALREADY_COMMITTED: Final = 2
"""StorageError.StorageErrorCode."""


class NotCommittedError(LogboomError):
    """The streams are not committed and never will be."""


class StreamsGoneError(GiveUpError):
    """BigQuery has forgotten the streams of a commit that had no answer, so that its outcome cannot be found out."""


class Committer:
    """Commits the streams of one sink."""

    def __init__(self, api: WriteApi, retry_for_s: float) -> None:
        self._api = api
        self._retry_for_s = retry_for_s
        self._is_in_doubt = False

    def commit(self, streams: Sequence[str], *, is_in_doubt: bool) -> None:
        """Commit the streams. `is_in_doubt`: an earlier request to commit them had no answer.

        :raises NotCommittedError: the streams will never be committed.
        :raises StreamsGoneError: the outcome cannot be found out.
        :raises LogboomError: the outcome is not known; call this again.
        """
        self._is_in_doubt = is_in_doubt
        errors = tried_again(lambda: self._ask(streams), self._retry_for_s)
        if not errors or any(error.code == _ALREADY_COMMITTED for error in errors):
            return
        reason = f"BigQuery does not commit the batch: {errors[0].message or f'error {errors[0].code}'}"
        if not self._is_in_doubt or not tried_again(lambda: self._look(streams[0], reason), self._retry_for_s):
            raise NotCommittedError(reason)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _ask(self, streams: Sequence[str]) -> Sequence[StreamError]:
        try:
            return self._api.commit(streams)
        except TryAgainError:
            self._is_in_doubt = True
            raise

    def _look(self, stream: str, reason: str) -> bool:
        try:
            return self._api.is_committed(stream)
        except NotFoundError:
            raise StreamsGoneError(
                f"{reason}; BigQuery no longer knows whether an earlier commit of it succeeded"
            ) from None
