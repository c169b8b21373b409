"""BigQuery's Storage Write API, its default streams alone; tokens are those of `google_cloud_logging`.

google/cloud/bigquery/storage/v1/storage.proto, protobuf.proto and "Storage Write API" in BigQuery's documentation (read
on 2026-11-23): an AppendRowsRequest has the stream, a description of the rows and the rows, and less than 10 MB
(INVALID_ARGUMENT beyond it); an offset is not allowed on `_default`. Fields that the table lacks are refused with the
request. Rows that are refused are named in `row_errors`, and none of their request is written. The routing header
`x-goog-request-params` names the stream.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import grpc
from tests.pipeline_sinks.contracts.google_cloud_logging import GoogleCloudLogging
from tests.pipeline_sinks.grpc_server import RefusedCallError

from logboom.pipeline.sinks.http.protobuf import bytes_field, fields_of, text_field, whole_field

STREAM = "projects/shop-1234/datasets/logs/tables/events/streams/_default"
APPEND = "/google.cloud.bigquery.storage.v1.BigQueryWrite/AppendRows"
GET = "/google.cloud.bigquery.storage.v1.BigQueryWrite/GetWriteStream"
MAX_BYTES = 10_000_000


class BigQuery:
    def __init__(self, columns: Mapping[str, int]) -> None:
        """`columns`: FieldDescriptorProto.Type by name."""
        self.tokens = GoogleCloudLogging()
        self._columns = columns
        self.rows: list[dict[str, Any]] = []

    def append(self, request: bytes, metadata: Mapping[str, str]) -> bytes:
        self._check(metadata, f"write_stream={STREAM}")
        if len(request) >= MAX_BYTES:
            raise RefusedCallError(grpc.StatusCode.INVALID_ARGUMENT, "the request is too large")
        parts = dict(fields_of(request))
        assert set(parts) == {1, 4}, "no offset on a default stream"
        if parts[1] != STREAM.encode():
            raise RefusedCallError(grpc.StatusCode.NOT_FOUND, "no such table")
        data = dict(fields_of(parts[4]))  # type: ignore[arg-type]
        fields = _fields(dict(fields_of(data[1]))[1])  # type: ignore[arg-type]
        for name, kind in fields.values():
            if self._columns.get(name) != kind:
                return _failed(f"no column {name} of the type {kind}")
        rows = [_row(row, fields) for _, row in fields_of(data[2])]  # type: ignore[arg-type]
        bad = [index for index, row in enumerate(rows) if row.get("body") == "poison"]
        if bad:
            errors = (whole_field(1, index) + whole_field(2, 1) + text_field(3, "a row with poison") for index in bad)
            return _failed("rows are refused") + b"".join(bytes_field(4, error) for error in errors)
        self.rows += rows
        return bytes_field(1, b"")

    def get(self, request: bytes, metadata: Mapping[str, str]) -> bytes:
        self._check(metadata, f"name={STREAM}")
        return text_field(1, STREAM)

    def _check(self, metadata: Mapping[str, str], routing: str) -> None:
        if metadata.get("authorization") != f"Bearer {self.tokens.secret}":
            raise RefusedCallError(grpc.StatusCode.UNAUTHENTICATED, f"no such token: {metadata.get('authorization')}")
        assert metadata["x-goog-request-params"] == routing.replace("/", "%2F")


def _failed(message: str) -> bytes:
    return bytes_field(2, whole_field(1, 3) + text_field(2, message))


def _fields(descriptor: Any) -> dict[int, tuple[str, int]]:
    found = {}
    for field, message in fields_of(descriptor):
        if field == 2:
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
