"""Events that a transform with a state creates itself, as columns. Knows only Arrow."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from logboom.pipeline.event.schema import ARROW_TYPES
from logboom.pipeline.plan.stateful import EXIT

_encode = msgspec.json.Encoder().encode


class MadeEvent(NamedTuple):
    """One event; times are in microseconds since 1970."""

    time: int
    service: str | None
    host: str | None
    body: str | None
    attributes: Mapping[str, Any]


_COLUMNS: Final = pa.schema(
    {
        "time": ARROW_TYPES["timestamp"],
        "observed_time": ARROW_TYPES["timestamp"],
        "service": pa.string(),
        "host": pa.string(),
        "body": pa.string(),
        "attributes": pa.string(),
        EXIT: pa.int8(),
    }
)


def made_events(events: Sequence[MadeEvent], wall_ms: int, exit_code: int) -> pa.RecordBatch:
    """In the form of `Advanced.made`: all have the same observed time and leave by one exit."""
    observed = wall_ms * 1_000
    rows = [
        (event.time, observed, event.service, event.host, event.body, _encode(event.attributes).decode(), exit_code)
        for event in events
    ]
    columns = zip(*rows, strict=True) if rows else ((),) * len(_COLUMNS)
    arrays = [
        pa.array(column, _plain(field.type)).cast(field.type) for field, column in zip(_COLUMNS, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS)


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind
