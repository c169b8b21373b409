"""Walking by columns and by shapes finds exactly what walking record by record finds."""

import random
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logboom.base.errors import CorruptBatchError, InvalidRecordError, MessageTooLargeError
from logboom.base.ids import Offset
from logboom.records import (
    HEADER_BYTES,
    BatchHeader,
    Headers,
    Record,
    build_batch,
    iter_records,
    read_header,
    seal_batch,
    take_conditions,
)
from logboom.records.varint import read_varint, varint
from logboom.records.walk import HEADERS_MAX, FoundHeaders, _walk_record, walk_records

Run = tuple[int, Headers, int]
"""So many records with these headers and so many bytes of value."""


def by_the_book(body: bytes, count: int) -> type[Exception] | None:
    """The plain way: each record on its own; the error, if any."""
    position = 0
    try:
        if count * 7 > len(body):
            return InvalidRecordError
        for delta in range(count):
            position = _walk_record(body, position, varint(delta), FoundHeaders())
    except IndexError:
        return CorruptBatchError
    except (CorruptBatchError, InvalidRecordError) as error:
        return type(error)
    return None if position == len(body) else InvalidRecordError


def has_condition(body: bytes, count: int) -> bool:
    """Whether a record of right ones has the header of a condition, by the plain way."""
    records = iter_records(*framed(body, count), 1 << 30)
    return any(name == "logboom-expected-offset" for record in records for name, _ in record.headers)


def framed(body: bytes, count: int) -> tuple[bytearray, int, BatchHeader]:
    buffer = seal_batch(body, count, times_ms=(0, 0))
    return buffer, 0, read_header(buffer)


def walked(body: bytes, count: int) -> type[Exception] | None:
    try:
        walk_records(body, count)
    except (CorruptBatchError, InvalidRecordError) as error:
        return type(error)
    return None


shapes = st.tuples(
    st.integers(1, 90),  # records in a row of this shape
    st.one_of(st.none(), st.integers(0, 70)),  # bytes of the key
    st.one_of(st.none(), st.integers(0, 150)),  # bytes of the value
    st.sampled_from((0, 1, 100, 20_000)),  # milliseconds from one to the next
    st.integers(0, 3),  # headers
)


def body_of(runs: list[tuple[int, int | None, int | None, int, int]]) -> tuple[bytes, int]:
    records: list[Record] = []
    time_ms = 1_000
    for count, key, value, gap_ms, headers in runs:
        for _ in range(count):
            records.append(
                Record(
                    Offset(len(records)),
                    time_ms,
                    None if key is None else bytes(key),
                    None if value is None else b"v" * value,
                    tuple((f"name-{n}", str(time_ms % 777).encode() if n else None) for n in range(headers)),
                )
            )
            time_ms += gap_ms
    return bytes(build_batch(records)[HEADER_BYTES:]), len(records)


@settings(max_examples=150, deadline=None)
@given(st.lists(shapes, min_size=1, max_size=5))
@example([(200, None, 10, 0, 0)])
@example([(9, 3, None, 20_000, 0)])
def test_what_is_right_is_right(runs: list[tuple[int, int | None, int | None, int, int]]) -> None:
    body, count = body_of(runs)
    assert walked(body, count) is None
    assert by_the_book(body, count) is None


@settings(max_examples=400, deadline=None)
@given(
    st.lists(shapes, min_size=1, max_size=4),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=3),
    st.integers(-2, 2),
    st.integers(0, 12),
)
def test_what_is_wrong_is_wrong(
    runs: list[tuple[int, int | None, int | None, int, int]],
    changes: list[tuple[float, int]],
    more: int,
    cut: int,
) -> None:
    """Bytes changed anywhere, a count that lies, an end that is missing: the same verdict as record by record."""
    body, count = body_of(runs)
    changed = bytearray(body)
    for where, byte in changes:
        changed[int(where * len(changed))] = byte
    broken = bytes(changed[: len(changed) - cut])
    assert (walked(broken, max(1, count + more)) is None) == (by_the_book(broken, max(1, count + more)) is None)


names = st.sampled_from(
    ("logboom-expected-offset", "logboom-expected-offseT", "x" * 23, "a", "logboom-expected-offset2")
)
header_values = st.sampled_from((b"", b"-1", b"17", b"logboom-expected-offset"))
header_lists = st.lists(st.tuples(names, header_values), max_size=3).map(tuple)
runs_with_headers = st.lists(st.tuples(st.integers(1, 60), header_lists, st.integers(0, 90)), min_size=1, max_size=4)


@settings(max_examples=200, deadline=None)
@given(runs_with_headers, runs_with_headers)
def test_a_condition_is_found_wherever_it_is(first: list[Run], second: list[Run]) -> None:
    """Among records of any shapes, whatever headers were seen before; its name in a value is none."""
    for runs in (first, second):
        records: list[Record] = []
        for count, headers, size in runs:
            records += [
                Record(Offset(0), 1_000, b"k", bytes(size + n % 2 * (size > 50)), headers) for n in range(count)
            ]
        body = bytes(build_batch(records)[HEADER_BYTES:])
        expected = has_condition(body, len(records))
        assert walk_records(body, len(records)) == expected
        plain, found = take_conditions(body, len(records))
        kept = list(iter_records(*framed(plain, len(records)), 1 << 30))
        assert walk_records(plain, len(records)) is False
        asked = {one.record for one in found}
        assert bool(asked) == expected
        for number, (record, after) in enumerate(zip(records, kept, strict=True)):
            names_before = [name for name, _ in record.headers]
            assert (number in asked) == ("logboom-expected-offset" in names_before)
            assert after.headers == tuple(one for one in record.headers if one[0] != "logboom-expected-offset")
            assert (after.key, after.value) == (record.key, record.value)


families = st.tuples(
    st.integers(30, 200),  # records that follow each other
    st.sampled_from((None, 0, 5, 63, 64, 130)),  # bytes of the key
    st.sampled_from(((0, 4), (30, 70), (60, 66), (90, 300), (118, 118), (8_150, 8_200))),  # shortest and longest value
    st.sampled_from((0, 1, 63, 64, 9_000)),  # milliseconds from one to the next
    st.integers(0, 3),  # headers
    st.sampled_from((0, 3, 63, 64, 400)),  # bytes of the value of each, the last's apart
)
"""Records of one shape whose values are of different lengths, as lines are."""

edits = st.tuples(
    st.floats(0, 1, exclude_max=True),  # which record
    st.floats(0, 1, exclude_max=True),  # which byte of those that are no key, value or name
    st.sampled_from((1, -1, 2, -2, 64, 128, 256)),  # added to the byte; above 127 it becomes another number
)


def family_of(
    runs: list[tuple[int, int | None, tuple[int, int], int, int, int]], seed: int
) -> tuple[bytes, list[list[int]]]:
    """The records, and by record where its numbers stand."""
    chance = random.Random(seed)
    records: list[Record] = []
    time_ms = 1_000
    for count, key, (shortest, longest), gap_ms, headers, header_bytes in runs:
        for _ in range(count if longest < 1_000 else 34):
            lengths = [header_bytes] * (headers - 1) + [len(str(time_ms))] if headers else []
            records.append(
                Record(
                    Offset(len(records)),
                    time_ms,
                    None if key is None else chance.randbytes(key),
                    None if chance.random() < 0.001 else chance.randbytes(chance.randint(shortest, longest)),
                    tuple((f"name-{n}", chance.randbytes(length)) for n, length in enumerate(lengths)),
                )
            )
            time_ms += gap_ms
    body = bytes(build_batch(records)[HEADER_BYTES:])
    return body, numbers_in(body, len(records))


def numbers_in(body: bytes, count: int) -> list[list[int]]:
    found: list[list[int]] = []
    position = 0
    for _ in range(count):
        places: list[int] = []

        def number(at: int, places: list[int] = places) -> tuple[int, int]:
            value, behind = read_varint(body, at, 10)
            places.extend(range(at, behind))
            return value, behind

        _, position = number(position)
        _, position = number(position + 1)
        _, position = number(position)
        for _ in range(2):
            length, position = number(position)
            position += max(length, 0)
        headers, position = number(position)
        for _ in range(2 * headers):
            length, position = number(position)
            position += max(length, 0)
        found.append(places)
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(families, min_size=1, max_size=3), st.integers(0, 9), st.lists(edits, max_size=4), st.booleans())
@example([(200, 30, (90, 300), 0, 3, 63)], 1, [], False)
@example([(200, None, (30, 70), 1, 0, 0)], 1, [(0.5, 0.9, 2)], True)
def test_records_of_one_shape_are_read_as_one_by_one(
    runs: list[tuple[int, int | None, tuple[int, int], int, int, int]],
    seed: int,
    changes: list[tuple[float, float, int]],
    in_step: bool,
) -> None:
    """With numbers changed, in one record or in two by opposite amounts: the same verdict as record by record."""
    body, numbers = family_of(runs, seed)
    count = len(numbers)
    assert walked(body, count) is None
    changed = bytearray(body)
    for which, where, more in changes:
        record = int(which * count)
        number = int(where * len(numbers[record]))
        changed[numbers[record][number]] = (changed[numbers[record][number]] + more) & 255
        beside = numbers[(record + 1) % count]
        if in_step and number < len(beside):
            changed[beside[number]] = (changed[beside[number]] - more) & 255
    broken = bytes(changed)
    assert (walked(broken, count) is None) == (by_the_book(broken, count) is None)


LINE_HEADERS = (("host.name", b"web-1"), ("log.file.position", b"12345"))


@pytest.mark.parametrize("headers", [(), LINE_HEADERS])
@pytest.mark.parametrize("spread", [1, 30])
def test_every_byte_of_records_of_one_shape_matters_as_one_by_one(
    headers: tuple[tuple[str, bytes], ...], spread: int
) -> None:
    """Each bit of some records, and of the same byte in all records of a batch: the verdict of the plain walk."""
    key = b"k" * 70 if headers else None
    lines = [Record(Offset(n), 5, key, b"v" * (90 + n * 7 % spread), headers) for n in range(110)]
    good = bytes(build_batch(lines)[HEADER_BYTES:])
    assert walked(good, len(lines)) is None
    starts = [places[0] for places in numbers_in(good, len(lines))]
    for at in (*range(starts[2]), *range(starts[66], starts[67]), *range(starts[-1], len(good))):
        for bit in (1, 2, 128):
            bad = good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :]
            assert (walked(bad, len(lines)) is None) == (by_the_book(bad, len(lines)) is None), (at, bit)
    for at in (*range(90), *range(-60, 0)):
        for bit in (1, 2, 128):
            changed = bytearray(good)
            for start, end in pairwise([*starts, len(good)]):
                changed[(start if at >= 0 else end) + at] ^= bit
            bad = bytes(changed)
            assert (walked(bad, len(lines)) is None) == (by_the_book(bad, len(lines)) is None), (at, bit)


@pytest.mark.parametrize("size", [8_192, 9_000, 16_383])
def test_a_length_of_three_bytes_is_none_of_two(size: int) -> None:
    """Two bytes that would be a length if the second had no eighth bit for more to come."""
    records = []
    for delta in range(64):
        value = size - 1 - 1 - 1 - 1 - 2 - 1
        fields = b"\0\0" + varint(delta) + b"\1" + bytes((2 * value & 127 | 128, 2 * value >> 7)) + bytes(value) + b"\0"
        records.append(bytes((2 * len(fields) & 127 | 128, 2 * len(fields) >> 7)) + fields)
    body = b"".join(records)
    assert by_the_book(body, 64) is not None
    assert walked(body, 64) is not None


def test_headers_that_differ_in_their_last_value_alone_are_still_read_to_their_end() -> None:
    def body(time: bytes, last: bytes) -> bytes:
        headers = (("time", time), ("position", last))
        return bytes(build_batch([Record(Offset(n), 5, b"k", b"v" * (n % 3), headers) for n in range(20)]))[
            HEADER_BYTES:
        ]

    for last in (b"12", b"34", b"5", b"678", b""):
        assert walked(body(b"1", last), 20) is None
        assert walked(body(b"2", last), 20) is None
    good = body(b"2", b"90")
    for at in range(len(good)):
        for bit in (1, 2, 128):
            bad = good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :]
            assert (walked(bad, 20) is None) == (by_the_book(bad, 20) is None), (at, bit)


@pytest.mark.uncompiled
@settings(max_examples=150, deadline=None)
@given(runs_with_headers, st.integers(0, 300))
def test_headers_are_counted_whichever_way_the_records_are_walked(runs: list[Run], limit: int) -> None:
    records = [
        Record(Offset(0), 1_000, b"k", bytes(size + n % 2 * (size > 50)), headers)
        for count, headers, size in runs
        for n in range(count)
    ]
    body = bytes(build_batch(records)[HEADER_BYTES:])
    headers = sum(len(record.headers) for record in records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("logboom.records.walk.HEADERS_MAX", limit)
        if headers <= limit:
            walk_records(body, len(records))
            return
        with pytest.raises(MessageTooLargeError, match=f"more than {limit} headers"):
            walk_records(body, len(records))


def test_a_record_of_millions_of_empty_headers_is_refused_before_they_are_looked_at() -> None:
    """It compresses to some hundred bytes, and walking it took seconds."""
    count = HEADERS_MAX + 1
    fields = b"\0\0\0\1\1" + varint(count) + bytes(2 * count)
    with pytest.raises(MessageTooLargeError, match="more than 1000000 headers"):
        walk_records(varint(len(fields)) + fields, 1)
