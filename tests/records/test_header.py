from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.base.errors import CorruptBatchError
from logboom.base.ids import Epoch, Offset
from logboom.records import (
    HEADER_BYTES,
    MAX_SEQUENCE,
    Record,
    add_to_sequence,
    build_batch,
    crc_ok,
    iter_batches,
    iter_records,
    patch_batch,
    read_header,
    stamp_append_time,
    whole_batches,
    whole_headers,
)


def batch(count: int = 3, base_sequence: int = -1) -> bytearray:
    records = [Record(Offset(0), 1000 + n, b"k", b"value %d" % n) for n in range(count)]
    return build_batch(records, base_sequence=base_sequence, producer_id=7 if base_sequence >= 0 else -1)


def test_patching_leaves_the_crc_right() -> None:
    buffer = bytearray(b"xy") + batch()
    patch_batch(buffer, 2, Offset(1 << 40), Epoch(9))
    header = read_header(buffer, 2)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (1 << 40, 9, (1 << 40) + 2)
    assert header.next_offset == (1 << 40) + 3
    assert crc_ok(buffer, 2, header)
    assert crc_ok(memoryview(bytes(buffer)), 2, header)


def test_append_time_is_every_records_time() -> None:
    buffer = batch()
    stamp_append_time(buffer, 0, 5_000)
    header = read_header(buffer)
    assert header.uses_append_time
    assert crc_ok(buffer, 0, header)
    assert [r.timestamp_ms for r in iter_records(buffer, 0, header, 1 << 20)] == [5_000] * 3


def test_iteration_stops_before_an_incomplete_batch() -> None:
    first, second = batch(1), batch(5)
    whole = bytes(first + second)
    for cut in range(len(whole) + 1):
        seen = [position for position, _ in iter_batches(whole[:cut])]
        assert seen == [0, len(first)][: (cut >= len(first)) + (cut >= len(whole))]


def test_an_impossible_length_is_corrupt() -> None:
    buffer = batch()
    buffer[8:12] = (10).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        list(iter_batches(buffer))
    assert not crc_ok(buffer, 0, read_header(buffer))


@pytest.mark.parametrize("length", [0, 1, HEADER_BYTES - 1])
def test_a_short_head_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatchError):
        read_header(bytes(length))


def test_sequences_wrap_to_zero() -> None:
    assert add_to_sequence(MAX_SEQUENCE, 1) == 0
    assert read_header(batch(3, MAX_SEQUENCE - 1)).last_sequence == 0
    assert read_header(batch(3)).last_sequence == -1


@given(st.binary(max_size=300))
def test_any_bytes_iterate_or_are_corrupt(data: bytes) -> None:
    try:
        for position, header in iter_batches(data):
            assert position + header.size_bytes <= len(data)
            crc_ok(data, position, header)
    except CorruptBatchError:
        pass


@given(st.integers(0, 8 * 80 - 1))
def test_every_flipped_bit_under_the_crc_is_seen(bit: int) -> None:
    buffer = batch(1)
    bit %= 8 * (len(buffer) - 21)
    buffer[21 + bit // 8] ^= 1 << bit % 8
    assert not crc_ok(buffer, 0, read_header(buffer))


@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    flip=st.none() | st.integers(0, 8 * 70),
    cut=st.integers(0, 40),
    ceiling=st.integers(0, 16),
)
def test_a_run_of_whole_batches_ends_at_the_first_doubt(
    counts: list[int], flip: int | None, cut: int, ceiling: int
) -> None:
    run, ends = bytearray(), [(0, 0)]
    for count in counts:
        one = build_batch([Record(Offset(n), 5, None, b"v", ()) for n in range(count)])
        patch_batch(one, 0, Offset(ends[-1][1]), Epoch(3))
        run += one
        ends.append((len(run), ends[-1][1] + count))
    if flip is not None:
        flip %= 8 * len(run)
        run[flip // 8] ^= 1 << flip % 8
    data = bytes(run[: len(run) - cut])
    right = 0
    for (start, base), (end, following) in pairwise(ends):
        if end > len(data) or following > ceiling or (flip is not None and start <= flip // 8 < end):
            break
        right += 1
        assert read_header(data, start).base_offset == base
    assert whole_batches(data, Offset(0), Offset(ceiling), lambda _: Epoch(3)) == ends[right]
    assert whole_batches(data, Offset(0), Offset(ceiling), lambda _: Epoch(2)) == (0, 0)
    headers = [(data, start, read_header(data, start)) for start, _ in ends[:right]]
    assert whole_headers(data, Offset(0), Offset(ceiling), lambda _: Epoch(3)) == headers
    assert whole_headers(data, Offset(0), Offset(ceiling), lambda _: Epoch(2)) == []
    for second in range(len(counts) + 1):
        # The epoch changes at the second batch from some offset on: what was written in another one ends the run.
        epochs = [Epoch(3) if offset < second else Epoch(4) for offset in range(20)]
        expected = [one for one in headers if epochs[one[2].base_offset] == 3]
        assert whole_headers(data, Offset(0), Offset(ceiling), epochs.__getitem__) == expected
