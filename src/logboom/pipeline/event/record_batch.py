"""Record batches made of tables, and with other columns. Knows only Arrow."""

import pyarrow as pa

from logboom.pipeline.errors import PipelineError


def whole_batch(table: pa.Table) -> pa.RecordBatch:
    """All rows of a table as one record batch.

    :raises PipelineError: a column has more than the 2 GiB of text that one array can hold. Arrow would then return
    several batches.
    """
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    if len(batches) > 1:
        raise PipelineError(
            f"{table.num_rows:,} events of one batch have more than 2 GiB in one column, which is too much for one "
            "batch: lower batch.max_records, or max_bytes of the transform that holds events"
        )
    return batches[0]


def with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """The batch with this column in place of the one of its name, or behind all others."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        return batch.append_column(name, column)
    return batch.set_column(index, name, column)
