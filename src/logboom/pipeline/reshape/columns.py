"""What the edits of a batch and its splitting share: a column put into a batch, a value shown in a reason."""

from typing import Any, Final

import msgspec
import pyarrow as pa

_SHOWN_MAX: Final = 60
_encode: Final = msgspec.json.Encoder().encode


def shortened(value: Any) -> str:
    """A value as JSON, cut off where it is long."""
    text = _encode(value).decode()
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


def with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """The batch with this column in place of the one of its name, or behind all others."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        return batch.append_column(name, column)
    return batch.set_column(index, name, column)
