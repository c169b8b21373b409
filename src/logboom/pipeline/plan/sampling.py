"""Sampling by hash: whether an event is kept is a pure function of its key and the rate, the same on every machine and
in SQL.

The hash is XXH64 of the key's UTF-8 bytes with seed 42, which is Spark's `xxhash64`; its upper 53 bits are compared
with `2**53 / rate`. So all events of a trace are kept or dropped together, on every machine, and a sample at a lower
rate contains the one at a higher rate.

Has the SQL text and an equivalent in Python. Must not know Spark sessions, batches or the graph.
"""

from struct import iter_unpack
from typing import Final

import msgspec

from logboom.pipeline.plan.sql_text import bracketed

SEED: Final = 42
"""The seed of Spark's `xxhash64`."""

BITS: Final = 53
SPACE: Final = 1 << BITS
CAUGHT: Final = "_caught"
"""In generated SQL, a function of one argument: its value, null if evaluation fails. A file cannot use it, since
`sql.review` refuses unknown functions."""

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a sample: it keeps one event in `rate`, by the hash of `key`."""

    rate: float
    """At least 1."""
    key: str
    """A column or SQL expression. If it is null or fails, the event id is used."""
    exclude: str | None = None
    """Events for which this is true are always kept, with their weight."""
    follows_weight: bool = False
    """Whether existing weights count towards the rate: true after other samples by the same key."""


def keep_condition(sampling: Sampling) -> str:
    """SQL over an event's columns: true if the event is kept; null if it is not and `exclude` is null."""
    kept = f"shiftrightunsigned(xxhash64({_key(sampling)}), {64 - BITS}) < {_threshold_sql(sampling)}"
    if sampling.exclude is None:
        return kept
    return f"{bracketed(sampling.exclude)} OR {kept}"


def weight_expression(sampling: Sampling) -> str:
    """SQL for the weight of a kept event: the number of input events that it represents."""
    grown = f"weight * {float(sampling.rate)!r}D"
    if sampling.exclude is None:
        return grown
    return f"CASE WHEN coalesce({bracketed(sampling.exclude)}, false) THEN weight ELSE {grown} END"


def keeps(key: str, rate: float, weight: float = 1.0) -> bool:
    """The decision of `keep_condition` in Python. `weight`: the event's, if the sample counts weights, else 1."""
    return xxh64(key.encode()) >> (64 - BITS) < int(SPACE / (weight * rate))


def key_condition(sampling: Sampling) -> str:
    """SQL over an event's columns that fails if the key fails. Its value has no meaning."""
    return f"CAST({bracketed(sampling.key)} AS STRING) = ''"


def _key(sampling: Sampling) -> str:
    key = f"CAST({bracketed(sampling.key)} AS STRING)"
    return f"coalesce({key if sampling.key.strip().isidentifier() else f'{CAUGHT}({key})'}, event_id)"


def _threshold_sql(sampling: Sampling) -> str:
    if sampling.follows_weight:
        return f"CAST({float(SPACE)!r}D / (weight * {float(sampling.rate)!r}D) AS BIGINT)"
    return f"{int(SPACE / sampling.rate)}L"


def xxh64(data: bytes, seed: int = SEED) -> int:
    """XXH64 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md), unsigned.

    >>> hex(xxh64(b"", seed=0))
    '0xef46db3751d8e999'
    """
    position, end = 0, len(data)
    if end >= 32:
        position = end & ~31
        lanes = _lanes(data[:position], seed)
        total = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            total = ((total ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        total = (seed + _P5) & _MASK
    return _avalanche(_tail(data, position, (total + end) & _MASK))


def _lanes(data: bytes, seed: int) -> tuple[int, int, int, int]:
    """The four accumulators over whole stripes of 32 bytes. The rounds are unrolled, since a text may have 10 MB."""
    a, b, c, d = (seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed & _MASK, (seed - _P1) & _MASK
    for one, two, three, four in iter_unpack("<4Q", data):
        a = a + one * _P2 & _MASK
        b = b + two * _P2 & _MASK
        c = c + three * _P2 & _MASK
        d = d + four * _P2 & _MASK
        a = ((a << 31 | a >> 33) & _MASK) * _P1 & _MASK
        b = ((b << 31 | b >> 33) & _MASK) * _P1 & _MASK
        c = ((c << 31 | c >> 33) & _MASK) * _P1 & _MASK
        d = ((d << 31 | d >> 33) & _MASK) * _P1 & _MASK
    return a, b, c, d


def _tail(data: bytes, position: int, total: int) -> int:
    end = len(data)
    while position + 8 <= end:
        total = (_rotate(total ^ _round(0, _word(data, position, 8)), 27) * _P1 + _P4) & _MASK
        position += 8
    if position + 4 <= end:
        total = (_rotate(total ^ (_word(data, position, 4) * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        position += 4
    for byte in data[position:]:
        total = _rotate(total ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    return total


def _avalanche(total: int) -> int:
    total = (total ^ total >> 33) * _P2 & _MASK
    total = (total ^ total >> 29) * _P3 & _MASK
    return total ^ total >> 32


def _word(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "little")


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK
