"""Parsing of whole Arrow batches: raw records in, events out, a malformed line being its own row's affair."""

import pyarrow as pa

from logboom.pipeline.plan import ParseTransform


def parse_batch(transform: ParseTransform, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Events of a batch of RAW_COLUMNS (plus the rules' `when` columns): EVENT_COLUMNS + DEAD_COLUMNS + the rest."""
    raise NotImplementedError
