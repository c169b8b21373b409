"""Sealing of fields of whole Arrow batches: `seal_batch` is the kernel of the transform `encrypt`.

Knows an event's columns and attributes as JSON. Must not know keys by anything but their cipher.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from logboom.pipeline.event.attributes import rows_with_attribute
from logboom.pipeline.event.names import spellings
from logboom.pipeline.normalise.memory import no_collections
from logboom.pipeline.seal.cipher import Cipher

PREFIX: Final = "attributes."
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def seal_batch(cipher: Cipher, fields: Sequence[str], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The events with these fields sealed where they have a value. Of an attribute every spelling is sealed, whole."""
    with no_collections():
        ids = batch.column("event_id")
        for field in fields:
            name = "attributes" if field.startswith(PREFIX) else field
            index = batch.schema.get_field_index(name)
            seal = _seal_attribute if field.startswith(PREFIX) else _seal_column
            batch = batch.set_column(index, name, seal(cipher, field, batch.column(index), ids))
        return batch


def _place(event_id: str | None, field: str) -> bytes:
    return f"{event_id}\0{field}".encode()


def _seal_column(cipher: Cipher, field: str, column: pa.Array, ids: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return column
    pairs = zip(column.to_pylist(), ids.to_pylist(), strict=True)
    texts = [None if text is None else cipher.seal(text, _place(event_id, field)) for text, event_id in pairs]
    return pa.array(texts, pa.string())


def _seal_attribute(cipher: Cipher, field: str, column: pa.Array, ids: pa.Array) -> pa.Array:
    name = field.removeprefix(PREFIX)
    rows = rows_with_attribute(column, name)
    if not len(rows):
        return column
    texts: list[str | None] = column.to_pylist()
    event_ids = ids.take(rows).to_pylist()
    for row, event_id in zip(np.asarray(rows).tolist(), event_ids, strict=True):
        tree = _decode(texts[row] or "{}")
        for path in spellings(name):
            holder: Any = tree
            for part in path[:-1]:
                holder = holder.get(part) if isinstance(holder, dict) else None
            if isinstance(holder, dict) and holder.get(path[-1]) is not None:
                place = _place(event_id, PREFIX + "\0".join(path))
                holder[path[-1]] = cipher.seal(holder[path[-1]], place)
        texts[row] = _encode(tree).decode()
    return pa.array(texts, pa.string())
