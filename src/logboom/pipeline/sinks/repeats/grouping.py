"""Groups rows that have equal values in some columns. Knows only Arrow columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.spans import Index


def grouped(columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Index, list[tuple[Any, ...]]]:
    """The group number of each row, and the values of each group."""
    rows = len(columns[0])
    codes, count = np.zeros(rows, np.int64), 1
    for column in columns:
        coded = pc.dictionary_encode(column, null_encoding="encode")
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.chunk(0)
        if len(coded.dictionary) > 1:
            codes = codes * len(coded.dictionary) + coded.indices.to_numpy()
            count *= len(coded.dictionary)
        if count > rows:  # only few of the combinations occur
            found, codes = np.unique(codes, return_inverse=True)
            count = len(found)
    first = np.full(count, -1, np.int64)
    first[codes[::-1]] = np.arange(rows - 1, -1, -1)  # of several rows with one code, the last one is kept
    there = np.flatnonzero(first >= 0)
    group_of = np.zeros(count, np.int64)
    group_of[there] = np.arange(len(there))
    keys = [tuple(column[row].as_py() for column in columns) for row in first[there].tolist()]
    return group_of[codes], keys
