"""Lines as record batches, a block at a time. Pure: it knows bytes, not who sends them.

All records of a run have the key and all headers but one in common, so what differs from record to record is little:
its lengths, its offset in the batch, its value and its position. The pieces are laid out in one list by whole columns
and joined once; nothing here runs Python code for each record but where a length changes.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

from logboom.collector.batch import Lines
from logboom.collector.pending_send import POSITION_HEADER, UNFINISHED_HEADER, RecordHeaders
from logboom.records import varint

MAX_BATCH_RECORDS: Final = 8_192
"""Offsets below this take at most two bytes, which brokers read fastest."""
_OFFSET_BOUND: Final = 1 << 6
"""From here to MAX_BATCH_RECORDS an offset takes two bytes."""
_PIECES: Final = 6
"""Of a record: length, offset, key and value's length, value, headers, position."""
_UNFINISHED: Final = varint(len(UNFINISHED_HEADER)) + UNFINISHED_HEADER.encode() + varint(4) + b"true"


@cache
def _offsets() -> list[bytes]:
    """Every offset that a batch can have, made once: together they cost more than all else of a record."""
    return list(map(varint, range(MAX_BATCH_RECORDS)))


@dataclass(frozen=True, slots=True)
class Run:
    """Some lines of one source, read at one time."""

    key: bytes
    headers: RecordHeaders
    """Those that all have in common."""
    lines: Lines
    first: int
    count: int
    time_ms: int


def encode_run(run: Run, delta: int, base_time_ms: int) -> bytes:
    """The records of a run, the first of them at the offset `delta` of a batch of at most MAX_BATCH_RECORDS."""
    groups = [_encode_group(run, at, end, delta, base_time_ms) for at, end in pairwise(_cuts(run, delta))]
    return groups[0] if len(groups) == 1 else b"".join(groups)


def _cuts(run: Run, delta: int) -> list[int]:
    """Indexes of lines between which every number is as long as the others, and all or none are unfinished."""
    first, end = run.first, run.first + run.count
    starts, unfinished = run.lines.starts, run.lines.unfinished
    cuts = {first, end}
    if first < (at := first + _OFFSET_BOUND - delta) < end:
        cuts.add(at)
    for digits in range(len(str(starts[first])), len(str(starts[end - 1]))):
        cuts.add(bisect_left(starts, 10**digits, first, end))
    for index in unfinished:
        cuts.update(at for at in (index, index + 1) if first < at < end)
    return sorted(cuts)


def _encode_group(run: Run, at: int, end: int, delta: int, base_time_ms: int) -> bytes:
    values, starts = run.lines.values[at:end], run.lines.starts[at:end]
    tail = _UNFINISHED if at in run.lines.unfinished else b""
    assert not tail or end == at + 1, "an unfinished line stands alone"
    digits = len(str(starts[0]))
    headers = b"".join(_headers(run.headers, 2 if tail else 1, digits))
    key = varint(len(run.key)) + run.key
    time = varint(run.time_ms - base_time_ms)
    delta += at - run.first
    offsets = _offsets()[delta : delta + len(values)]
    around = 1 + len(time) + len(offsets[0]) + len(key) + len(headers) + digits + len(tail)
    lengths = list(map(len, values))
    heads: dict[int, bytes] = {}
    keys: dict[int, bytes] = {}
    for length in set(lengths):
        size = varint(length)
        heads[length] = varint(around + len(size) + length) + b"\0" + time
        keys[length] = key + size
    pieces: list[bytes] = [headers] * (_PIECES * len(values))
    pieces[0::_PIECES] = map(heads.__getitem__, lengths)
    pieces[1::_PIECES] = offsets
    pieces[2::_PIECES] = map(keys.__getitem__, lengths)
    pieces[3::_PIECES] = values
    pieces[5::_PIECES] = (b"%d " * len(starts) % tuple(starts)).split()
    return b"".join(pieces) + tail if tail else b"".join(pieces)


def _headers(shared: RecordHeaders, own: int, digits: int) -> Iterator[bytes]:
    """The headers up to the digits of the position."""
    yield varint(len(shared) + own)
    for name, value in shared:
        yield varint(len(name)) + name.encode() + varint(len(value)) + value
    yield varint(len(POSITION_HEADER)) + POSITION_HEADER.encode() + varint(digits)
