"""Enriching of whole Arrow batches: `enrich_batch` is the kernel of the transform `enrich`.

A table is opened once per process; each distinct key of a batch is looked up once, and the values are put into the
events column by column. Knows the files of the store. Must not know their sources.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.enrich.maxmind import DAMAGED, open_geoip
from logboom.pipeline.event.attributes import with_member
from logboom.pipeline.plan.tables import TableKind

PREFIX: Final = "attributes."
Fields = tuple[tuple[str, str], ...]
"""A mapping from a row to an event: a name in the row, with dots for members of objects, and a field of the event."""
Find = Callable[[str], dict[str, Any] | None]

_encode = msgspec.json.Encoder().encode
_OPEN_MAX: Final = 16


def enrich_batch(
    kind: TableKind, path: str, keys: pa.Array, fields: Fields, batch: pa.RecordBatch
) -> tuple[pa.RecordBatch, pa.Array, pa.Array]:
    """The events with the table's values for their keys; by row (int) 1 if the table lacks the event's key; and by row
    1 if the table is damaged at the key.

    A field that the event already has is kept. `path`: a file of the store.
    """
    coded = keys.dictionary_encode()
    find = opened(kind, path)
    rows = [find(key) for key in coded.dictionary.to_pylist()]
    for name, target in fields:
        values = [None if row is None else _inside(row, name) for row in rows]
        if any(value is not None for value in values):
            batch = _filled(batch, target, values, coded.indices)
    missed = _by_row([row is None for row in rows], coded.indices)
    return batch, missed, _by_row([row is DAMAGED for row in rows], coded.indices)


def _by_row(is_so: Sequence[bool], index: pa.Array) -> pa.Array:
    """By row 1 if the condition holds for its key; 0 if it does not, or if the row has no key."""
    if not any(is_so):
        return pa.array(np.zeros(len(index), np.int32))
    return pc.fill_null(pa.array(is_so, pa.bool_()).cast(pa.int32()).take(index), 0)


def _filled(batch: pa.RecordBatch, target: str, values: Sequence[Any], index: pa.Array) -> pa.RecordBatch:
    if target.startswith(PREFIX):
        at = batch.schema.get_field_index("attributes")
        texts = pa.array([None if value is None else _encode(value).decode() for value in values], pa.string())
        column = with_member(batch.column(at), target.removeprefix(PREFIX), texts.take(index))
        return batch.set_column(at, "attributes", column)
    at = batch.schema.get_field_index(target)
    texts = pa.array([None if value is None else _text(value) for value in values], pa.string())
    return batch.set_column(at, target, pc.coalesce(batch.column(at), texts.take(index)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


def _inside(row: dict[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    found: Any = row
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


@lru_cache(maxsize=_OPEN_MAX)
def opened(kind: TableKind, path: str) -> Find:
    """A table of this process, ready for lookups; the file is one version and never changes."""
    if kind == "geoip":
        return open_geoip(path)
    with open(path, "rb") as file:
        rows: dict[str, dict[str, Any]] = msgspec.json.decode(file.read(), type=dict[str, dict[str, Any]])
    return rows.get
