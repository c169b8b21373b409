"""Sampling of whole Arrow batches: the decision of `logboom.pipeline.plan.sampling` without Spark, and the same one.

Knows Arrow columns and XXH64 a column at a time. Must not know the graph. Keys that are an expression, and exclusions
that only Spark can evaluate, are left to Spark: `sampler` gives None.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.plan.nodes import EVENT_COLUMNS
from logboom.pipeline.plan.sampling import BITS, SEED, SPACE, Sampling, xxh64
from logboom.pipeline.route.conditions import simple_condition

Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.float64]

_TEXTS: Final = frozenset(name for name, kind in EVENT_COLUMNS if kind == "string")
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_FEW: Final = 4


class Sampler(NamedTuple):
    """A sample as functions of a batch and the weights that its events have."""

    stays: Callable[[pa.RecordBatch, Weights], Mask]
    grown: Callable[[pa.RecordBatch, Weights], Weights]
    """The weights of those that stay."""


@lru_cache(maxsize=256)
def sampler(sampling: Sampling) -> Sampler | None:
    """The sample as functions of batches, or None if Spark has to evaluate it."""
    exclude = None if sampling.exclude is None else simple_condition(sampling.exclude)
    if sampling.key.strip() not in _TEXTS or (exclude is None) != (sampling.exclude is None):
        return None
    name, rate = sampling.key.strip(), float(sampling.rate)

    def always(batch: pa.RecordBatch) -> Mask:
        return np.zeros(batch.num_rows, np.bool_) if exclude is None else true_rows(exclude(batch))

    def stays(batch: pa.RecordBatch, weights: Weights) -> Mask:
        keys = pc.coalesce(batch.column(name), batch.column("event_id"))
        threshold = (SPACE / (weights * rate)).astype(np.uint64) if sampling.follows_weight else int(SPACE / rate)
        kept: Mask = hashes(keys) >> np.uint64(64 - BITS) < np.asarray(threshold, np.uint64)
        return kept | always(batch)

    def grown(batch: pa.RecordBatch, weights: Weights) -> Weights:
        return np.where(always(batch), weights, weights * rate)

    return Sampler(stays, grown)


def true_rows(answer: pa.Array) -> Mask:
    """Null is not true."""
    filled = answer if not answer.null_count else pc.fill_null(answer, False)
    rows: Mask = filled.to_numpy(zero_copy_only=False)
    return rows


def hashes(texts: pa.Array, seed: int = SEED) -> Words:
    """XXH64, by default with Spark's seed, of the UTF-8 bytes of each text; that of a null text is the seed, as in
    Spark."""
    result = np.full(len(texts), seed, np.uint64)
    lengths = pc.fill_null(pc.binary_length(texts), -1).to_numpy(zero_copy_only=False)
    for length in np.unique(lengths[lengths >= 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        part = texts if len(rows) == len(texts) else texts.take(pa.array(rows))
        if len(rows) < _FEW or length == 0:
            result[rows] = [xxh64(text.encode(), seed) for text in part.to_pylist()]
        else:
            result[rows] = _hash_equal_lengths(_matrix(part, length), seed)
    return result


def _matrix(texts: pa.Array, length: int) -> npt.NDArray[np.uint8]:
    """The bytes of texts that are all of one length, one row each."""
    start = int(np.frombuffer(texts.buffers()[1], np.int32)[texts.offset])
    data = np.frombuffer(texts.buffers()[2], np.uint8)[start : start + len(texts) * length]
    return data.reshape(len(texts), length)


def _hash_equal_lengths(rows: npt.NDArray[np.uint8], start: int) -> Words:
    """https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md; numpy's unsigned arithmetic wraps as it should."""
    count, length = rows.shape
    seed, position = np.uint64(start), 0
    with np.errstate(over="ignore"):
        if length >= 32:
            lanes = [np.full(count, first, np.uint64) for first in (seed + _P1 + _P2, seed + _P2, seed, seed - _P1)]
            while position <= length - 32:
                lanes = [_round(lane, _words(rows, position + 8 * i, 8)) for i, lane in enumerate(lanes)]
                position += 32
            first, second, third, fourth = lanes
            total = _rotate(first, 1) + _rotate(second, 7) + _rotate(third, 12) + _rotate(fourth, 18)
            for lane in lanes:
                total = (total ^ _round(np.zeros(count, np.uint64), lane)) * _P1 + _P4
        else:
            total = np.full(count, seed + _P5, np.uint64)
        return _avalanche(_tail(rows, position, total + np.uint64(length)))


def _tail(rows: npt.NDArray[np.uint8], position: int, total: Words) -> Words:
    length = rows.shape[1]
    while position + 8 <= length:
        mixed = total ^ _round(np.zeros(len(rows), np.uint64), _words(rows, position, 8))
        total = _rotate(mixed, 27) * _P1 + _P4
        position += 8
    if position + 4 <= length:
        total = _rotate(total ^ _words(rows, position, 4) * _P1, 23) * _P2 + _P3
        position += 4
    for at in range(position, length):
        total = _rotate(total ^ rows[:, at].astype(np.uint64) * _P5, 11) * _P1
    return total


def _avalanche(total: Words) -> Words:
    total = (total ^ (total >> np.uint64(33))) * _P2
    total = (total ^ (total >> np.uint64(29))) * _P3
    return total ^ (total >> np.uint64(32))


def _words(rows: npt.NDArray[np.uint8], position: int, size: int) -> Words:
    part = np.ascontiguousarray(rows[:, position : position + size])
    return part.view(np.dtype(f"<u{size}"))[:, 0].astype(np.uint64)


def _rotate(value: Words, bits: int) -> Words:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


def _round(lane: Words, word: Words) -> Words:
    return _rotate(lane + word * _P2, 31) * _P1
