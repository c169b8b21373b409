"""How the archive's Parquet files are written, new ones and merged ones alike. Knows Parquet and columns' names."""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

_CODED: Final = (
    *("observed_time", "severity_number", "severity_text", "service", "host", "weight"),
    *("source", "stream", "partition"),
)
"""Columns of few values, which are written with a dictionary. For one of many values the writer would work out a
dictionary and give it up at 1 MiB; zstd finds what is repeated in them without."""


def parquet_writer(where: Path | pa.NativeFile, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    """A writer of a new file, or into a stream that is open; `compression` as the sink's setting names it."""
    return pq.ParquetWriter(where, schema, compression=compression, use_dictionary=list(_CODED))
