"""Groups of rows as columns: 64-bit hashes of their keys, ranks and running sums within a group.

Knows numpy and the hash of samples. Must not know what a key means.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.plan.sampling import xxh64
from logboom.pipeline.route.sample_columns import hashes

Words = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.float64]

_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_TEXTS: Final = ("body", "attributes", "service", "host", "severity_text", "trace_id", "span_id", "event_id")
_FIXED_BYTES: Final = 64
"""Bytes that the times and numbers of an event take."""


def text_words(texts: pa.Array) -> Words:
    """XXH64 of each text, as in samples. Nulls share one hash, which differs from those of texts except by chance."""
    coded = texts.dictionary_encode()
    words = np.append(hashes(coded.dictionary), np.uint64(0))
    found: Words = words[pc.fill_null(coded.indices, len(words) - 1).to_numpy(zero_copy_only=False)]
    return found


def salted(words: Words, salt: str) -> Words:
    """Second hashes of the same keys, nearly independent of the first for every salt. A sample by these may follow one
    that has kept only low first hashes. This is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast Splittable
    Pseudorandom Number Generators", OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        total = words ^ np.uint64(xxh64(salt.encode()))
        total = (total ^ (total >> np.uint64(30))) * _MIX_1
        total = (total ^ (total >> np.uint64(27))) * _MIX_2
        return total ^ (total >> np.uint64(31))


def ranks(groups: Words, order: Words) -> Longs:
    """The rank of each row in its group, from 0, by `order`; rows of equal order keep their sequence."""
    sort = np.lexsort((order, groups))
    found = np.empty(len(groups), np.int64)
    found[sort] = _since_start(groups[sort])
    return found


def sums_before(groups: Words, values: Longs) -> Longs:
    """The sum of the values of the preceding rows of the same group, for each row."""
    sort = np.argsort(groups, kind="stable")
    ordered = values[sort]
    before = np.cumsum(ordered) - ordered
    starts = np.arange(len(groups)) - _since_start(groups[sort])
    found = np.empty(len(groups), np.int64)
    found[sort] = before - before[starts]
    return found


def _since_start(ordered: Words) -> Longs:
    """The distance of each row from the first of its run of equal values."""
    places = np.arange(len(ordered))
    starts = np.where(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)], places, 0)
    found: Longs = places - np.maximum.accumulate(starts) if len(ordered) else places
    return found


def totals(words: Words, values: Weights) -> tuple[Words, Weights]:
    """The distinct words, sorted, with the sum of the values of each."""
    found, index = np.unique(words, return_inverse=True)
    return found, np.bincount(index, weights=values, minlength=len(found)).astype(np.float64)


def found_at(sorted_words: Words, wanted: Words) -> tuple[Longs, Mask]:
    """The position of each wanted word among sorted ones, and whether it is there."""
    if not len(sorted_words):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    places = np.minimum(np.searchsorted(sorted_words, wanted), len(sorted_words) - 1)
    return places, sorted_words[places] == wanted


def times_ms(rows: pa.RecordBatch, now_ms: int) -> Longs:
    """When each event happened, in milliseconds since 1970: its time, else its observed time, else now."""
    times = pc.coalesce(rows.column("time"), rows.column("observed_time")).cast(pa.int64())
    micros: Longs = pc.fill_null(times, now_ms * 1_000).to_numpy(zero_copy_only=False)
    return micros // 1_000


def weights_of(rows: pa.RecordBatch) -> Weights:
    """The weights of events; 1 for an event without one."""
    found: Weights = pc.fill_null(rows.column("weight"), 1.0).to_numpy(zero_copy_only=False)
    return found


def sizes_of(rows: pa.RecordBatch) -> Longs:
    """The approximate bytes of each event: its texts, including attributes as JSON, and 64 for the rest."""
    found = np.full(rows.num_rows, _FIXED_BYTES, np.int64)
    for name in _TEXTS:
        found += pc.fill_null(pc.binary_length(rows.column(name)), 0).to_numpy(zero_copy_only=False)
    return found
