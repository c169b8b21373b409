"""The calls of BigQuery's Storage Write API, and the meaning of their answers.

Source: google/cloud/bigquery/storage/v1/storage.proto and stream.proto. The header `x-goog-request-params` of a call
names its resource ("Routing headers" of Google's API client guidelines). Knows the gRPC client and tokens. Must not
know events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from logboom.pipeline.sinks.bulk.target import GiveUpError, TryAgainError
from logboom.pipeline.sinks.grpc.status import NAMES, meaning
from logboom.pipeline.sinks.http.protobuf import bytes_field, fields_of, text_field, whole_field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from logboom.base.errors import LogboomError
    from logboom.pipeline.sinks.grpc.client import GrpcClient
    from logboom.pipeline.sinks.http.google import Tokens

_SERVICE: Final = "/google.cloud.bigquery.storage.v1.BigQueryWrite"
_PENDING: Final = 2
"""WriteStream.Type: rows become visible when the stream is committed."""


class Appended(NamedTuple):
    """An AppendRowsResponse. If it has row errors or an error, no row of the request was written."""

    refused: Mapping[int, str]
    """BigQuery's reason, by the index of the row."""
    error: LogboomError | None
    """The error that an answer has instead of row errors."""


class StreamError(NamedTuple):
    """Why a stream was not committed."""

    code: int
    """StorageError.StorageErrorCode."""
    message: str


class WriteApi:
    """Calls for one table. Thread-safe, like its client."""

    def __init__(self, table: str, client: GrpcClient, tokens: Tokens) -> None:
        """`table`: `projects/P/datasets/D/tables/T`."""
        self._table = table
        self._client = client
        self._tokens = tokens
        self._place = f"the server at {client.place}"

    @property
    def default_stream(self) -> str:
        """The table's default stream, which always exists and whose rows are visible at once."""
        return f"{self._table}/streams/_default"

    def append(self, stream: str, data: bytes, offset: int | None = None) -> Appended:
        """Append rows to a stream. `offset`: their position in it; the default stream has no offsets."""
        at = b"" if offset is None else bytes_field(2, whole_field(1, offset))
        request = text_field(1, stream) + at + bytes_field(4, data)
        answer = self._call("AppendRows", request, f"write_stream={stream}")
        refused: dict[int, str] = {}
        error: bytes | None = None
        for field, value in self._fields(answer):
            if field == 2 and isinstance(value, bytes):
                error = value
            elif field == 4 and isinstance(value, bytes):
                index, reason = self._row_error(value)
                refused[index] = reason
        return Appended(refused, None if error is None else self._error(error))

    def create(self) -> str:
        """Create a stream whose rows wait for a commit; returns its name."""
        stream = bytes_field(2, whole_field(2, _PENDING))
        answer = self._call("CreateWriteStream", text_field(1, self._table) + stream, f"parent={self._table}")
        name = dict(self._fields(answer)).get(1)
        if not isinstance(name, bytes) or not name:
            raise TryAgainError(f"{self._place} made a stream without a name")
        return name.decode(errors="replace")

    def finalize(self, stream: str) -> int:
        """Finalize a stream, so that it accepts no more rows; returns how many it has."""
        answer = self._call("FinalizeWriteStream", text_field(1, stream), f"name={stream}")
        count = dict(self._fields(answer)).get(1, 0)
        return count if isinstance(count, int) else -1

    def commit(self, streams: Sequence[str]) -> Sequence[StreamError]:
        """Commit finalized streams, all or none. Returns the reasons if they were not committed, else nothing."""
        names = b"".join(text_field(2, name) for name in streams)
        answer = self._call("BatchCommitWriteStreams", text_field(1, self._table) + names, f"parent={self._table}")
        errors = []
        is_committed = False
        for field, value in self._fields(answer):
            is_committed = is_committed or field == 1
            if field == 2 and isinstance(value, bytes):
                parts = dict(self._fields(value))
                code, message = parts.get(1, 0), parts.get(3, b"")
                errors.append(StreamError(code if isinstance(code, int) else 0, _text(message)))
        if not errors and not is_committed:  # a commit_time alone means success
            raise TryAgainError(f"{self._place} did not say whether it has committed")
        return errors

    def is_committed(self, stream: str) -> bool:
        """Whether a stream has a commit time; NotFoundError if BigQuery does not know the stream."""
        return any(field == 4 for field, _ in self._fields(self.look(stream)))

    def look(self, stream: str) -> bytes:
        """Get BigQuery's description of a stream."""
        return self._call("GetWriteStream", text_field(1, stream), f"name={stream}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._tokens.close()

    def _call(self, method: str, request: bytes, routing: str) -> bytes:
        token = self._tokens.current()
        metadata = (("authorization", f"Bearer {token}"), ("x-goog-request-params", routing.replace("/", "%2F")))
        call = self._client.exchange if method == "AppendRows" else self._client.call
        try:
            return call(f"{_SERVICE}/{method}", request, metadata)
        except GiveUpError:
            self._tokens.drop()  # the token may have been the cause
            raise

    def _fields(self, message: bytes) -> list[tuple[int, int | bytes]]:
        try:
            return list(fields_of(message))
        except ValueError as error:
            raise TryAgainError(f"{self._place} gave an answer that cannot be read") from error

    def _row_error(self, message: bytes) -> tuple[int, str]:
        parts = dict(self._fields(message))
        index, reason = parts.get(1, 0), _text(parts.get(3, b""))
        return index if isinstance(index, int) else -1, f"BigQuery: {reason or 'a field cannot be read'}"

    def _error(self, status: bytes) -> LogboomError:
        """The error for a google.rpc.Status in an answer."""
        parts = dict(self._fields(status))
        code = parts.get(1, 2)
        name = NAMES.get(code, str(code)) if isinstance(code, int) else "UNKNOWN"
        return meaning(self._place, name, _text(parts.get(2, b"")), status)


def _text(value: int | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""
