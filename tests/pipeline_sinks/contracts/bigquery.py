"""BigQuery's Storage Write API; tokens are those of `google_cloud_logging`.

google/cloud/bigquery/storage/v1/storage.proto, stream.proto, protobuf.proto and "Storage Write API" in BigQuery's
documentation (read on 2026-11-23):

- An AppendRowsRequest has the stream, a description of the rows and the rows, and less than 10 MB (INVALID_ARGUMENT
  beyond it). Fields that the table lacks are refused with the request. Rows that are refused are named in `row_errors`,
  and none of their request is written.
- Rows of the default stream are visible at once, and it takes no offset. Those of a stream of type PENDING become
  visible when it is committed. An offset that the stream has is answered with ALREADY_EXISTS, one beyond its end with
  OUT_OF_RANGE, both as an error in the answer; clients of Google's look for them in the status of the call too.
- A stream takes no rows once it is finalized (STREAM_FINALIZED); that answers with its number of rows.
- BatchCommitWriteStreams is atomic. Streams have to be finalized (INVALID_STREAM_STATE), known (STREAM_NOT_FOUND), and
  not committed before (STREAM_ALREADY_COMMITTED). `commit_time` is there where, and only where, it was done.
- GetWriteStream of a stream of type PENDING has a `commit_time` once it is committed.
- The routing header `x-goog-request-params` names what a call is for.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from tests.pipeline_sinks.contracts.google_cloud_logging import GoogleCloudLogging
from tests.pipeline_sinks.grpc_server import RefusedCallError

from logboom.pipeline.sinks.http.protobuf import bytes_field, fields_of, text_field, whole_field

TABLE: Final = "projects/shop-1234/datasets/logs/tables/events"
STREAM: Final = f"{TABLE}/streams/_default"
_SERVICE: Final = "/google.cloud.bigquery.storage.v1.BigQueryWrite"
APPEND: Final = f"{_SERVICE}/AppendRows"
GET: Final = f"{_SERVICE}/GetWriteStream"
CREATE: Final = f"{_SERVICE}/CreateWriteStream"
FINALIZE: Final = f"{_SERVICE}/FinalizeWriteStream"
COMMIT: Final = f"{_SERVICE}/BatchCommitWriteStreams"
MAX_BYTES: Final = 10_000_000
COMMIT_STREAMS_MAX: Final = 100
_PENDING: Final = 2
_ALREADY_EXISTS, _OUT_OF_RANGE = 6, 11
_STREAM_ALREADY_COMMITTED, _STREAM_NOT_FOUND, _INVALID_STREAM_STATE = 2, 3, 5


@dataclass
class Stream:
    """One of type PENDING."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    is_finalized: bool = False
    is_committed: bool = False


class BigQuery:
    def __init__(self, columns: Mapping[str, int]) -> None:
        """`columns`: FieldDescriptorProto.Type by name."""
        self.tokens = GoogleCloudLogging()
        self._columns = columns
        self.rows: list[dict[str, Any]] = []
        """Those that a query finds."""
        self.streams: dict[str, Stream] = {}
        self.streams_max = 10_000
        """Of an hour."""
        self.requests: list[int] = []
        """The sizes of appends."""
        self.commits: list[int] = []
        """How many streams each commit had that was made."""
        self._lock = threading.Lock()

    @property
    def methods(self) -> dict[str, Any]:
        """The calls that have one request and one answer."""
        return {CREATE: self.create, FINALIZE: self.finalize, COMMIT: self.commit, GET: self.get}

    def append(self, request: bytes, metadata: Mapping[str, str]) -> bytes:
        parts: dict[int, Any] = dict(fields_of(request))
        name = parts[1].decode()
        self._check(metadata, f"write_stream={name}")
        self.requests.append(len(request))
        if len(request) >= MAX_BYTES:
            raise RefusedCallError(grpc.StatusCode.INVALID_ARGUMENT, "the request is too large")
        with self._lock:
            if name == STREAM:
                assert set(parts) == {1, 4}, "no offset on a default stream"
                return self._take(parts[4], self.rows)
            return self._append(name, parts)

    def _append(self, name: str, parts: Mapping[int, Any]) -> bytes:
        stream = self._known(name)
        if stream.is_finalized:
            raise RefusedCallError(grpc.StatusCode.FAILED_PRECONDITION, "the stream is finalized")
        assert set(parts) == {1, 2, 4}, "a request to a stream of type PENDING says its offset"
        offset = dict(fields_of(parts[2])).get(1, 0)
        assert isinstance(offset, int)
        if offset < len(stream.rows):
            return _failed(f"the stream has {len(stream.rows)} rows", _ALREADY_EXISTS)
        if offset > len(stream.rows):
            return _failed(f"the stream has {len(stream.rows)} rows", _OUT_OF_RANGE)
        return self._take(parts[4], stream.rows)

    def _take(self, data: bytes, into: list[dict[str, Any]]) -> bytes:
        parts: dict[int, Any] = dict(fields_of(data))
        fields = _fields(dict(fields_of(parts[1]))[1])
        for name, kind in fields.values():
            if self._columns.get(name) != kind:
                return _failed(f"no column {name} of the type {kind}")
        rows = [_row(row, fields) for _, row in fields_of(parts[2])]
        bad = [index for index, row in enumerate(rows) if row.get("body") == "poison"]
        if bad:
            errors = (whole_field(1, index) + whole_field(2, 1) + text_field(3, "a row with poison") for index in bad)
            return _failed("rows are refused") + b"".join(bytes_field(4, error) for error in errors)
        into += rows
        return bytes_field(1, b"")

    def create(self, request: bytes, metadata: Mapping[str, str]) -> bytes:
        self._check(metadata, f"parent={TABLE}")
        parts: dict[int, Any] = dict(fields_of(request))
        if parts[1] != TABLE.encode():
            raise RefusedCallError(grpc.StatusCode.NOT_FOUND, "no such table")
        assert dict(fields_of(parts[2])) == {2: _PENDING}
        with self._lock:
            if len(self.streams) >= self.streams_max:
                raise RefusedCallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded: CreateWriteStream")
            name = f"{TABLE}/streams/s{len(self.streams)}"
            self.streams[name] = Stream()
        return text_field(1, name) + whole_field(2, _PENDING)

    def finalize(self, request: bytes, metadata: Mapping[str, str]) -> bytes:
        name = _name(request)
        self._check(metadata, f"name={name}")
        with self._lock:
            stream = self._known(name)
            stream.is_finalized = True
            return whole_field(1, len(stream.rows))

    def commit(self, request: bytes, metadata: Mapping[str, str]) -> bytes:
        self._check(metadata, f"parent={TABLE}")
        names = [value.decode() for number, value in fields_of(request) if number == 2 and isinstance(value, bytes)]
        if not 0 < len(names) <= COMMIT_STREAMS_MAX:
            raise RefusedCallError(grpc.StatusCode.INVALID_ARGUMENT, f"{len(names)} streams")
        with self._lock:
            errors = [(name, code) for name in names if (code := self._fault(name)) is not None]
            if errors:
                return b"".join(
                    bytes_field(2, whole_field(1, code) + text_field(2, name) + text_field(3, f"stream error {code}"))
                    for name, code in errors
                )
            for name in names:
                self.streams[name].is_committed = True
                self.rows += self.streams[name].rows
            self.commits.append(len(names))
        return bytes_field(1, whole_field(1, 1_795_417_200))

    def get(self, request: bytes, metadata: Mapping[str, str]) -> bytes:
        name = _name(request)
        self._check(metadata, f"name={name}")
        if name == STREAM:
            return text_field(1, STREAM)
        with self._lock:
            is_committed = self._known(name).is_committed
        return text_field(1, name) + (bytes_field(4, whole_field(1, 1_795_417_200)) if is_committed else b"")

    def _fault(self, name: str) -> int | None:
        """Why a stream cannot be committed."""
        stream = self.streams.get(name)
        if stream is None:
            return _STREAM_NOT_FOUND
        if stream.is_committed:
            return _STREAM_ALREADY_COMMITTED
        return None if stream.is_finalized else _INVALID_STREAM_STATE

    def _known(self, name: str) -> Stream:
        if name not in self.streams:
            raise RefusedCallError(grpc.StatusCode.NOT_FOUND, f"no such stream: {name}")
        return self.streams[name]

    def _check(self, metadata: Mapping[str, str], routing: str) -> None:
        if metadata.get("authorization") != f"Bearer {self.tokens.secret}":
            raise RefusedCallError(grpc.StatusCode.UNAUTHENTICATED, f"no such token: {metadata.get('authorization')}")
        assert metadata["x-goog-request-params"] == routing.replace("/", "%2F")


def _name(request: bytes) -> str:
    """The one text of a request."""
    ((_, name),) = fields_of(request)
    assert isinstance(name, bytes)
    return name.decode()


def _failed(message: str, code: int = 3) -> bytes:
    return bytes_field(2, whole_field(1, code) + text_field(2, message))


def _fields(descriptor: Any) -> dict[int, tuple[str, int]]:
    found = {}
    for number, message in fields_of(descriptor):
        if number == 2:
            parts: dict[int, Any] = dict(fields_of(message))  # type: ignore[arg-type]
            assert parts[4] == 1, "a field that may be left out"
            found[parts[3]] = (parts[1].decode(), parts[5])
    return found


def _row(message: Any, fields: Mapping[int, tuple[str, int]]) -> dict[str, Any]:
    row = {}
    for number, value in fields_of(message):
        name, kind = fields[number]
        if kind == 1:
            row[name] = struct.unpack("<d", value)[0]  # type: ignore[arg-type]
        elif kind == 9:
            row[name] = value.decode()  # type: ignore[union-attr]
        else:
            row[name] = value
    return row
