"""The sink `bigquery`: rows of a table of BigQuery, by the Storage Write API.

`AppendRows` to the table's default stream ("Use the default stream for at-least-once semantics" in BigQuery's
documentation; google/cloud/bigquery/storage/v1/storage.proto). A request has the description of its rows as a message
of Protocol Buffers, and the rows in that form. Where rows are refused, none of the request is written, and the answer
names each with its reason (`row_errors`). A request has at most 10 MB.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from pydantic import Field

from logboom.base.settings import Settings
from logboom.pipeline.event.fields import COLUMNS, FieldReader, is_field
from logboom.pipeline.event.record import EventRecord
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.model import secret_of
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.bulk.target import (
    Answer,
    Encoded,
    GiveUpError,
    Item,
    RefusedWholeError,
    TryAgainError,
    UnfitError,
)
from logboom.pipeline.sinks.grpc.opening import grpc_client
from logboom.pipeline.sinks.grpc.status import NAMES, meaning
from logboom.pipeline.sinks.http.google import GoogleModel, GoogleSink, Tokens
from logboom.pipeline.sinks.http.model import GZIP_ALONE, RequestLimits, http_fields
from logboom.pipeline.sinks.http.protobuf import bytes_field, fields_of, fixed64_field, text_field, whole_field
from logboom.pipeline.sinks.http.times import microseconds

if TYPE_CHECKING:
    from logboom.pipeline.sinks.bulk.target import Target
    from logboom.pipeline.sinks.grpc.client import GrpcClient

BigQueryKind = Literal["string", "long", "double", "boolean"]
_Kind = Literal["string", "long", "double", "boolean", "time"]
_SERVICE: Final = "/google.cloud.bigquery.storage.v1.BigQueryWrite"
_SCOPE: Final = "https://www.googleapis.com/auth/bigquery.insertdata"
_LIMITS: Final = RequestLimits(8_000_000, 5_000)
_ROW_MAX_BYTES: Final = 9_000_000
_LONG_MAX: Final = 1 << 63
_OPTIONAL: Final = 1
_PROTO_TYPES: Final[Mapping[str, int]] = {"double": 1, "long": 3, "time": 3, "boolean": 8, "string": 9}
"""FieldDescriptorProto.Type; a TIMESTAMP is a whole number of microseconds since 1970."""
_KINDS: Final[Mapping[str, _Kind]] = {
    "time": "time",
    "observed_time": "time",
    "severity_number": "long",
    "partition": "long",
    "offset": "long",
    "weight": "double",
}
"""Of the event's own fields; the others are texts."""


class BigQueryColumnModel(Settings):
    """A column for a field."""

    field: str
    """A field of the event, or `attributes.NAME`."""

    type: BigQueryKind = "string"
    """Of an attribute; `string` also for columns of JSON, NUMERIC, DATE and TIMESTAMP, which are read from texts."""


class BigQueryModel(GoogleModel):
    """Rows of a table of BigQuery."""

    type: Literal["bigquery"]
    dataset: str
    table: str
    columns: dict[str, str | BigQueryColumnModel] = Field(default_factory=dict)
    """Column: field of the event, or `attributes.NAME`; by default each field has a column of its name."""

    url: str = "https://bigquerystorage.googleapis.com"


class BigQueryColumn(msgspec.Struct, frozen=True):
    """A column of the table."""

    name: str
    field: str
    kind: _Kind


class BigQuerySink(GoogleSink, frozen=True, kw_only=True, tag="bigquery"):
    """Rows of a table of BigQuery."""

    dataset: str
    table: str
    columns: tuple[BigQueryColumn, ...]

    def open_target(self, secrets: Mapping[str, str]) -> Target:
        """The table's default stream, with tokens of the service account."""
        return BigQueryTarget(self, grpc_client(self, secrets, {}), self.tokens(secrets, _SCOPE))


class BigQueryTarget:
    """The default stream of one table."""

    def __init__(self, sink: BigQuerySink, client: GrpcClient, tokens: Tokens) -> None:
        self._client = client
        self._tokens = tokens
        self._columns = sink.columns
        self._reader = FieldReader(tuple(column.field for column in sink.columns))
        table = f"projects/{sink.project}/datasets/{sink.dataset}/tables/{sink.table}"
        self._stream = f"{table}/streams/_default"
        self._head = text_field(1, self._stream)
        self._schema = bytes_field(1, bytes_field(1, _descriptor(sink.columns)))
        self._place = f"the server at {client.place}"

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """A row as a message with a field for each column; what an event lacks is left out."""
        parts: list[bytes] = []
        for number, (column, found) in enumerate(zip(self._columns, self._reader.values(event), strict=True), start=1):
            if found is None:
                continue
            try:
                parts.append(_WRITERS[column.kind](number, found))
            except (TypeError, ValueError, OverflowError):
                raise UnfitError(
                    f"{column.field} is no {column.kind}, as the column {column.name} is to have"
                ) from None
        row = b"".join(parts)
        if len(row) > _ROW_MAX_BYTES:
            raise UnfitError(f"the row takes {len(row)} bytes, more than BigQuery takes in a request")
        return Encoded(bytes_field(1, row))

    def send(self, items: Sequence[Item]) -> Answer:
        """One AppendRowsRequest."""
        rows = bytes_field(2, b"".join([item.payload for item in items]))
        answer = self._call(
            "AppendRows", self._head + bytes_field(4, self._schema + rows), f"write_stream={self._stream}"
        )
        return self._meaning(answer, len(items))

    def probe(self) -> None:
        """Asks for the stream, which finds the table and the right to write it."""
        self._call("GetWriteStream", self._head, f"name={self._stream}")

    def close(self) -> None:
        """Ends the connections."""
        self._client.close()
        self._tokens.close()

    def _call(self, method: str, request: bytes, routing: str) -> bytes:
        token = self._tokens.current()
        metadata = (("authorization", f"Bearer {token}"), ("x-goog-request-params", routing.replace("/", "%2F")))
        call = self._client.exchange if method == "AppendRows" else self._client.call
        try:
            return call(f"{_SERVICE}/{method}", request, metadata)
        except GiveUpError:
            self._tokens.drop()  # it may have been the token
            raise

    def _meaning(self, answer: bytes, count: int) -> Answer:
        """An AppendRowsResponse: taken, or what was wrong with the request or with single rows."""
        error: bytes | None = None
        refused: dict[int, str] = {}
        try:
            for field, value in fields_of(answer):
                if field == 2 and isinstance(value, bytes):
                    error = value
                elif field == 4 and isinstance(value, bytes):
                    index, reason = _row_error(value)
                    refused[index] = reason
            status = dict(fields_of(error or b""))
        except ValueError as error_of_answer:
            raise TryAgainError(f"{self._place} gave an answer that cannot be read") from error_of_answer
        named = {index: reason for index, reason in refused.items() if 0 <= index < count}
        if named:
            others = [index for index in range(count) if index not in named]
            return Answer(
                refused=named, again=dict.fromkeys(others, "stood in a request with a row that is refused"), pause_s=0.0
            )
        if error is not None:
            code, message = status.get(1, 2), status.get(2, b"")
            name = NAMES.get(code, str(code)) if isinstance(code, int) else "UNKNOWN"
            text = message.decode(errors="replace") if isinstance(message, bytes) else ""
            fault = meaning(self._place, name, text, error)
            if isinstance(fault, RefusedWholeError):  # without a row: the table has other columns than the rows
                raise GiveUpError(str(fault))
            raise fault
        return Answer()


def _row_error(message: bytes) -> tuple[int, str]:
    parts = dict(fields_of(message))
    index, text = parts.get(1, 0), parts.get(3, b"")
    reason = text.decode(errors="replace") if isinstance(text, bytes) else ""
    return index if isinstance(index, int) else -1, f"BigQuery: {reason or 'a field cannot be read'}"


def _descriptor(columns: Sequence[BigQueryColumn]) -> bytes:
    """A DescriptorProto; a column whose name is none of a field of Protocol Buffers cannot be there (`_compile`)."""
    fields = [
        text_field(1, column.name)
        + whole_field(3, number)
        + whole_field(4, _OPTIONAL)
        + whole_field(5, _PROTO_TYPES[column.kind])
        for number, column in enumerate(columns, start=1)
    ]
    return text_field(1, "Row") + b"".join(bytes_field(2, field) for field in fields)


def _text(number: int, value: Any) -> bytes:
    if isinstance(value, bytes):
        return bytes_field(number, value)
    return text_field(number, value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _long(number: int, value: Any) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int) or not -_LONG_MAX <= value < _LONG_MAX:
        raise ValueError("no whole number of 64 bits")
    return whole_field(number, value)


def _double(number: int, value: Any) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("no number")
    return fixed64_field(number, struct.pack("<d", float(value)))


def _boolean(number: int, value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return whole_field(number, int(value))


def _time(number: int, value: Any) -> bytes:
    return whole_field(number, microseconds(value))


_WRITERS: Final[Mapping[str, Callable[[int, Any], bytes]]] = {
    "string": _text,
    "long": _long,
    "double": _double,
    "boolean": _boolean,
    "time": _time,
}


def _compile(model: BigQueryModel, common: CommonFields, report: SinkReport) -> BigQuerySink | None:
    for part in ("project", "dataset", "table"):
        text = getattr(model, part)
        if not text or not text.isascii() or not all(char.isalnum() or char in "_-.:" for char in text):
            report.problem(part, f"{text!r} is no name: letters, digits, '_' and '-'")
    columns = []
    for name, given in (model.columns or {name: name for name in COLUMNS}).items():
        column = BigQueryColumnModel(field=given) if isinstance(given, str) else given
        if not is_field(column.field):
            report.unknown("columns", "field", column.field, [*COLUMNS, "attributes.NAME"])
        if not name.isascii() or not name.isidentifier():
            report.problem("columns", f"{name!r} is no name of a column: letters, digits and '_'")
        kind = column.type if column.field not in COLUMNS else _KINDS.get(column.field, "string")
        columns.append(BigQueryColumn(name, column.field, kind))
    key = secret_of(model, "key", report, needed=True)
    fields = http_fields(model, common, report, model.url, _LIMITS, encodings=GZIP_ALONE)
    if key is None:
        return None
    return BigQuerySink(
        **fields,
        project=model.project,
        dataset=model.dataset,
        table=model.table,
        columns=tuple(columns),
        key=key,
    )


def _check_installed(sink: BigQuerySink) -> None:
    from logboom.pipeline.sinks.grpc.client import needs_grpc

    needs_grpc("the sink bigquery")


SINK: Final = bulk_sink_type("bigquery", BigQueryModel, BigQuerySink, _compile, needs=_check_installed)
