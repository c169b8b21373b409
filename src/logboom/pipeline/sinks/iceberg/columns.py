"""The columns that a sink writes, those that a table lacks, and the values of additional attribute columns.

Knows the columns of events, Arrow and pyiceberg's schemas. Must not know catalogs, files or batches.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from logboom.pipeline.errors import PipelineError
from logboom.pipeline.event.names import find_attribute
from logboom.pipeline.event.schema import LIVE_SCHEMA, MICROSECONDS
from logboom.pipeline.sinks.iceberg import IcebergColumn, IcebergSink

_TYPES: Final[Mapping[pa.DataType, IcebergType]] = {
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    MICROSECONDS: TimestamptzType(),
}
_ARROW: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamptz": MICROSECONDS,
}
_OWN: Final[Mapping[str, IcebergType]] = {
    "string": StringType(),
    "long": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamptz": TimestamptzType(),
}
_WIDER: Final = ((IntegerType(), LongType()),)
"""Column types that are accepted instead of the one that the sink would create."""
_LONG_MAX: Final = 1 << 63
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def wanted_columns(sink: IcebergSink) -> dict[str, IcebergType]:
    """Name and type of each column that the sink writes."""
    own = {field.name: _TYPES[field.type] for field in LIVE_SCHEMA}
    return own | {column.name: _OWN[column.type] for column in sink.columns}


def new_schema(sink: IcebergSink) -> Schema:
    """The schema of a new table. All columns are optional, because each event lacks some fields."""
    wanted = wanted_columns(sink).items()
    return Schema(*(NestedField(at, name, kind, required=False) for at, (name, kind) in enumerate(wanted, start=1)))


def new_spec(sink: IcebergSink, schema: Schema) -> PartitionSpec:
    """The partitioning of a new table. Hours and dates are those of `time`, in UTC."""
    fields = []
    for at, name in enumerate(sink.partition_by):
        transform: Transform[Any, Any] = IdentityTransform()
        if name == "date":
            transform = DayTransform()
        elif name == "hour":
            transform = HourTransform()
        source = schema.find_field("time" if name in ("date", "hour") else name).field_id
        fields.append(
            PartitionField(source, 1000 + at, transform, {"date": "time_day", "hour": "time_hour"}.get(name, name))
        )
    return PartitionSpec(*fields)


def missing_columns(sink: IcebergSink, table: Table) -> dict[str, IcebergType]:
    """The columns that the table lacks.

    :raises PipelineError: the table cannot hold the sink's rows: a column has another type, or is required and unknown
        to the sink.
    """
    wanted = wanted_columns(sink)
    found = {field.name: field for field in table.schema().fields}
    for name, field in found.items():
        kind = wanted.get(name)
        if kind is None and field.required and field.write_default is None:
            raise PipelineError(f"the table's column {name} must not be empty, and no event has it")
        if kind is not None and field.required and name not in ("event_id", "stream", "partition", "offset"):
            raise PipelineError(f"the table's column {name} must not be empty, and not every event has it")
        if kind is not None and field.field_type != kind and (kind, field.field_type) not in _WIDER:
            raise PipelineError(f"the table's column {name} is {field.field_type}, and the sink would write {kind}")
    return {name: kind for name, kind in wanted.items() if name not in found}


def with_columns(events: pa.Table, columns: Sequence[IcebergColumn]) -> pa.Table:
    """Events with a column for each of these attributes: null if an event has none, or one of another type."""
    if not columns:
        return events
    values: list[list[Any]] = [[] for _ in columns]
    for text in events.column("attributes").to_pylist():
        attributes = _OBJECT.decode(text) if text else {}
        for column, into in zip(columns, values, strict=True):
            into.append(_value(find_attribute(attributes, column.attribute), column.type))
    for column, made in zip(columns, values, strict=True):
        events = events.append_column(column.name, pa.array(made, _ARROW[column.type]))
    return events


def _value(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "string":
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "timestamptz":
        return _time(value) if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind == "double":
        return _double(value)
    return value if isinstance(value, int) and -_LONG_MAX <= value < _LONG_MAX else None


def _time(text: str) -> datetime | None:
    """The value in UTC; without a zone it is taken as UTC. None for invalid times, such as year 1 in a zone east of
    UTC."""
    try:
        time = msgspec.convert(text, type=datetime)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        return None


def _double(value: float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
