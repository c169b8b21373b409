"""Fingerprints of the values of rows: 128 bits in two words, whole columns at a time.

Two hashes with different seeds, as two columns of uint64. The first alone chooses a shard and is sorted and searched;
the second is compared where the first is equal, so that two keys are taken for one with a chance of 2^-128 a pair.
The hash must never change: states on disk hold it. Pure.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logboom.pipeline.route.sample_columns import hashes

Words = npt.NDArray[np.uint64]

_MIX: Final = tuple(np.uint64(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_SEEDS: Final = (0, 0x5851F42D4C957F2D)
_LOOKED_AT: Final = 1_000
"""Rows that tell whether a column repeats its values."""


def fingerprints(columns: Sequence[pa.Array], rows: int) -> tuple[Words, Words]:
    """Of the texts of each row, null and the empty text being different, in the order of the columns."""
    first, second = np.full(rows, 1, np.uint64), np.full(rows, 2, np.uint64)
    for column in columns:
        valid = column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint64)
        one, other = (words + valid for words in _hashes(column))
        first, second = mixed(first ^ one), mixed(second + other)
    return first, second


def _hashes(column: pa.Array) -> tuple[Words, Words]:
    """By row, with both seeds; a text that comes again and again is hashed once."""
    first_rows = column.slice(0, _LOOKED_AT)
    if 2 * len(first_rows.unique()) > len(first_rows):
        return hashes(column, _SEEDS[0]), hashes(column, _SEEDS[1])
    coded = column.dictionary_encode(null_encoding="encode")
    rows = coded.indices.to_numpy(zero_copy_only=False)
    return hashes(coded.dictionary, _SEEDS[0])[rows], hashes(coded.dictionary, _SEEDS[1])[rows]


def mixed(words: Words) -> Words:
    """Every bit of each word spread over all of it (the finaliser of SplitMix64; Steele, Lea, Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        words = words + _MIX[0]
        words = (words ^ (words >> np.uint64(30))) * _MIX[1]
        words = (words ^ (words >> np.uint64(27))) * _MIX[2]
        mixed_words: Words = words ^ (words >> np.uint64(31))
        return mixed_words
