"""Settings for writing the archive's Parquet files, new and merged ones. Knows Parquet and column names."""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

_CODED: Final = (
    *("observed_time", "severity_number", "severity_text", "service", "host", "weight"),
    *("source", "stream", "partition"),
)
"""Columns with few values, which are dictionary-encoded. For a column with many values the writer would build a
dictionary and drop it at 1 MiB; zstd finds repeated values without one."""


def parquet_writer(where: Path | pa.NativeFile, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    """A writer for a new file or an open stream. `compression`: as in the sink's setting."""
    return pq.ParquetWriter(where, schema, compression=compression, use_dictionary=list(_CODED))
