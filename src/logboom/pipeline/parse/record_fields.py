"""Adds attributes from other parts of a record than its line: its key, its headers, its timestamp.

Knows the raw columns and attributes as JSON. Must not know rules. A field of the line with the same name is kept.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.attributes import with_member
from logboom.pipeline.event.json import escaped, time_texts
from logboom.pipeline.event.schema import MICROSECONDS
from logboom.pipeline.event.utf8 import decode_utf8

HEADER: Final = "header."
"""`header.NAME` is the first header with that name, as text."""
RECORD_PARTS: Final = ("key", "headers", "timestamp")
"""`headers` is an object of all headers; each name has its first value."""

_encode = msgspec.json.Encoder().encode


def with_record_fields(
    parsed: pa.RecordBatch, raw: pa.RecordBatch, wanted: Sequence[tuple[str, str]]
) -> pa.RecordBatch:
    """Add attributes to parsed events. `wanted`: names of attributes, and the part of the record for each. Records
    without that part get no attribute. Rows that could not be read are unchanged."""
    index = parsed.schema.get_field_index("attributes")
    attributes = parsed.column(index)
    for name, part in wanted:
        attributes = with_member(attributes, name, _json_of(raw, part))
    return parsed.set_column(index, "attributes", attributes)


def _json_of(raw: pa.RecordBatch, part: str) -> pa.Array:
    """The part as JSON, for each row; null if a record has none."""
    if part == "key":
        return _quoted(decode_utf8(raw.column("key").cast(pa.binary())))
    if part == "timestamp":
        return _quoted(time_texts(raw.column("timestamp").cast(MICROSECONDS)))
    found = (_headers(pairs) for pairs in raw.column("headers").to_pylist())
    if part == "headers":
        return pa.array([_encode(headers).decode() if headers else None for headers in found], pa.string())
    name = part.removeprefix(HEADER)
    return _quoted(pa.array([headers.get(name) for headers in found], pa.string()))


def _headers(pairs: list[dict[str, Any]] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs or ():
        if pair["value"] is not None:
            found.setdefault(pair["key"], pair["value"].decode(errors="replace"))
    return found


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', escaped(texts), '"', "")
