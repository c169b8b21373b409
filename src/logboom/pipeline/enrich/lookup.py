"""Enriching of whole Arrow batches: `enrich_batch` is the kernel of the transform `enrich`.

A table is opened once per process; the values of a batch's keys are looked up once for each different key, and put
into the events column by column. Knows the files of the store. Must not know how they came there.
"""

import ipaddress
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.attributes import with_member
from logboom.pipeline.plan.tables import TableKind

PREFIX: Final = "attributes."
Fields = tuple[tuple[str, str], ...]
"""What of a row goes where: a name in the row, with dots for what is inside objects, and a field of the event."""
Find = Callable[[str], dict[str, Any] | None]

_encode = msgspec.json.Encoder().encode
_OPEN_MAX: Final = 16
_REMEMBERED_MAX: Final = 100_000


def enrich_batch(
    kind: TableKind, path: str, keys: pa.Array, fields: Fields, batch: pa.RecordBatch
) -> tuple[pa.RecordBatch, pa.Array]:
    """The events with what the table has for their keys, and by row (int) 1 where it has nothing for a key that is
    there.

    A field that the event has already stays. `path`: a file of the store.
    """
    coded = keys.dictionary_encode()
    find = opened(kind, path)
    rows = [find(key) for key in coded.dictionary.to_pylist()]
    for name, target in fields:
        values = [None if row is None else _inside(row, name) for row in rows]
        if any(value is not None for value in values):
            batch = _filled(batch, target, values, coded.indices)
    is_missed = pa.array([row is None for row in rows], pa.bool_())
    missed = pc.fill_null(is_missed.take(coded.indices).cast(pa.int32()), 0) if len(rows) else _none(batch.num_rows)
    return batch, missed


def _none(rows: int) -> pa.Array:
    return pa.array(np.zeros(rows, np.int32))


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
    """A table of this process, ready to be asked; the file is one version and never changes."""
    if kind == "geoip":
        return _geoip(path)
    with open(path, "rb") as file:
        rows: dict[str, dict[str, Any]] = msgspec.json.decode(file.read(), type=dict[str, dict[str, Any]])
    return rows.get


def _geoip(path: str) -> Find:
    """MaxMind's files: the networks of addresses, IPv4 and IPv6; a text that is no address has nothing."""
    import maxminddb

    reader = maxminddb.open_database(path)  # its extension in C where that is installed

    @lru_cache(maxsize=_REMEMBERED_MAX)
    def find(key: str) -> dict[str, Any] | None:
        try:
            found = reader.get(ipaddress.ip_address(key.strip().strip("[]")))
        except (ValueError, maxminddb.InvalidDatabaseError):
            return None  # no address, or one of IPv6 where the file has IPv4 alone, or a damaged place of the file
        return found if isinstance(found, dict) else None

    return find
