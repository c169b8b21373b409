"""The Arrow types of the pipeline's columns, from the SQL types that the plan gives them.

Between kernels `attributes` (a VARIANT to SQL) is text that holds one JSON object. Knows only the plan's columns.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from logboom.pipeline.plan.nodes import DEAD_COLUMNS, EVENT_COLUMNS

MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "variant": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": MICROSECONDS,
    "binary": pa.binary(),
    "array<struct<key:string,value:binary>>": HEADERS,
}
"""By SQL type."""

EVENT_SCHEMA: Final = pa.schema([(name, ARROW_TYPES[kind]) for name, kind in (*EVENT_COLUMNS, *DEAD_COLUMNS)])
"""What a parse makes: an event, and for a dead one the record it could not read."""

LIVE_SCHEMA: Final = pa.schema([(name, ARROW_TYPES[kind]) for name, kind in EVENT_COLUMNS])
"""An event that was read: what its JSON form holds."""
