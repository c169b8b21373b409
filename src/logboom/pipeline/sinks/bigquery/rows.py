"""Encodes events as rows of a table, each a Protocol Buffers message with a field for each column.

Source: `DescriptorProto` and `FieldDescriptorProto` of google/protobuf/descriptor.proto. The types that a column
accepts are in "Data type conversions" of the Storage Write API. Pure. Must not know servers or requests.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from logboom.pipeline.event.fields import FieldReader
from logboom.pipeline.sinks.bulk.target import Encoded, UnfitError
from logboom.pipeline.sinks.http.protobuf import bytes_field, fixed64_field, text_field, whole_field
from logboom.pipeline.sinks.http.times import microseconds

if TYPE_CHECKING:
    from logboom.pipeline.event.record import EventRecord
    from logboom.pipeline.sinks.bigquery import BigQueryColumn

_ROW_MAX_BYTES: Final = 9_000_000
_LONG_MAX: Final = 1 << 63
_OPTIONAL: Final = 1
_PROTO_TYPES: Final[Mapping[str, int]] = {"double": 1, "long": 3, "time": 3, "boolean": 8, "string": 9}
"""FieldDescriptorProto.Type. A TIMESTAMP is the whole number of microseconds since 1970."""


class RowEncoder:
    """Encodes rows of one table."""

    def __init__(self, columns: Sequence[BigQueryColumn]) -> None:
        self._columns = columns
        self._reader = FieldReader(tuple(column.field for column in columns))
        self._schema = bytes_field(1, bytes_field(1, _descriptor(columns)))

    def encode(self, event: EventRecord) -> Encoded:
        """Encode one event; fields that the event lacks are left out.

        :raises UnfitError: a field does not fit its column.
        """
        parts: list[bytes] = []
        for number, (column, found) in enumerate(zip(self._columns, self._reader.values(event), strict=True), start=1):
            if found is None:
                continue
            try:
                parts.append(_WRITERS[column.kind](number, found))
            except (TypeError, ValueError, OverflowError):
                raise UnfitError(
                    f"{column.field} is not a {column.kind}, which the column {column.name} requires"
                ) from None
        row = b"".join(parts)
        if len(row) > _ROW_MAX_BYTES:
            raise UnfitError(f"the row takes {len(row)} bytes, more than BigQuery takes in a request")
        return Encoded(bytes_field(1, row))

    def data(self, rows: Sequence[bytes]) -> bytes:
        """Encoded rows with their description: `AppendRowsRequest.ProtoData`."""
        return self._schema + bytes_field(2, b"".join(rows))


def _descriptor(columns: Sequence[BigQueryColumn]) -> bytes:
    """The DescriptorProto of the table. Columns whose names are not valid in Protocol Buffers get other field names
    (`_compile`)."""
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
        raise ValueError("not a whole number of 64 bits")
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
