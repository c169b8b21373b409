"""Runs a pass of kernels over Arrow batches on an executor: each row goes to the kernel of the place it stands at.

Knows Arrow and the kernels. Must not know Spark or what comes before and after the pass. Rows keep their order, which
the deliveries rely on; a kernel gives as many rows as it gets.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.layout import KernelNode, KernelPass
from logboom.pipeline.mask import mask_batch
from logboom.pipeline.parse import parse_batch
from logboom.pipeline.plan import DEAD_COLUMNS, EVENT_COLUMNS, MaskTransform, ParseTransform, mask_column

AT: Final = "at"
_UTC_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
_ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "variant": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": _UTC_MICROSECONDS,
    "binary": pa.binary(),
    "array<struct<key:string,value:binary>>": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def pass_columns(labels: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Columns and SQL types of the rows behind a pass; `attributes` is JSON text here."""
    event = [(name, "string" if kind == "variant" else kind) for name, kind in (*EVENT_COLUMNS, *DEAD_COLUMNS)]
    return (*event, (AT, "int"), *((mask_column(label), "int") for label in labels))


def _schema(labels: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in pass_columns(labels)])


@dataclass(frozen=True, slots=True)
class PassRunner:
    """A pass as executors call it: an iterator of batches to an iterator of batches with `pass_columns`."""

    kernel_pass: KernelPass
    keys: Mapping[str, bytes]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = _schema(self.kernel_pass.labels)
        for batch in batches:
            if batch.num_rows:
                yield _run(self.kernel_pass, self.keys, batch, schema)


def _run(
    kernel_pass: KernelPass, keys: Mapping[str, bytes], batch: pa.RecordBatch, schema: pa.Schema
) -> pa.RecordBatch:
    if kernel_pass.parses:
        batch = _parse(kernel_pass, batch)
    for node in kernel_pass.nodes:
        if isinstance(node.transform, MaskTransform):
            batch = _mask(node, node.transform, keys, batch, schema)
    return conform(batch, schema)


def _parse(kernel_pass: KernelPass, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every row stands before one of the parses, since nothing else takes raw records."""
    pieces: list[tuple[pa.Array, pa.RecordBatch]] = []
    for node in kernel_pass.nodes:
        if isinstance(node.transform, ParseTransform):
            rows = _rows_at(batch, node.arrivals)
            if len(rows):
                part = batch if len(rows) == batch.num_rows else batch.take(rows)
                parsed = _moved(node, parse_batch(node.transform, part))
                pieces.append((rows, conform(parsed, _schema(()))))
    return _in_order(pieces)


def _mask(
    node: KernelNode, transform: MaskTransform, keys: Mapping[str, bytes], batch: pa.RecordBatch, schema: pa.Schema
) -> pa.RecordBatch:
    rows = _rows_at(batch, node.arrivals)
    if not len(rows):
        return batch
    if len(rows) == batch.num_rows:
        return _moved(node, mask_batch(transform, batch, keys))
    others = pc.indices_nonzero(pc.invert(pc.is_in(batch.column(AT), value_set=_codes(node.arrivals))))
    masked = conform(_moved(node, mask_batch(transform, batch.take(rows), keys)), schema)
    return _in_order([(rows, masked), (others, conform(batch.take(others), schema))])


def _codes(codes: tuple[int, ...]) -> pa.Array:
    return pa.array(codes, pa.int32())


def _rows_at(batch: pa.RecordBatch, codes: tuple[int, ...]) -> pa.Array:
    return pc.indices_nonzero(pc.is_in(batch.column(AT), value_set=_codes(codes)))


def _moved(node: KernelNode, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows at the place behind the kernel, the dead ones among the dead."""
    reasons = batch.column("dead_reason")
    if reasons.null_count == len(reasons):
        at: pa.Array = pa.repeat(pa.scalar(node.leaves, pa.int32()), batch.num_rows)
    else:
        at = pc.if_else(pc.is_valid(reasons), pa.scalar(node.dead, pa.int32()), pa.scalar(node.leaves, pa.int32()))
    return batch.set_column(batch.schema.get_field_index(AT), AT, at)


def _in_order(pieces: list[tuple[pa.Array, pa.RecordBatch]]) -> pa.RecordBatch:
    """The rows of all pieces in the order they had before they were taken apart."""
    if len(pieces) == 1:
        return pieces[0][1]
    rows = pa.concat_arrays([rows for rows, _ in pieces])
    whole = pa.Table.from_batches([piece for _, piece in pieces]).combine_chunks().to_batches()[0]
    return whole.take(pc.sort_indices(rows))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns and types of a schema; columns it lacks are null, counts it lacks are 0."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for wanted in schema:
        index = batch.schema.get_field_index(wanted.name)
        column = batch.column(index) if index >= 0 else _absent(wanted, batch.num_rows)
        columns.append(column if column.type.equals(wanted.type) else column.cast(wanted.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _absent(wanted: pa.Field, rows: int) -> pa.Array:
    if wanted.name.startswith(mask_column("")):
        return pa.repeat(pa.scalar(0, wanted.type), rows)
    return pa.nulls(rows, wanted.type)
