"""The keys of a batch by columns: always what `keyed_records` finds record by record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.base.errors import CorruptBatchError
from logboom.base.ids import Offset
from logboom.records import Record, build_batch, key_columns, keyed_records, lone_key, read_header, records_body
from logboom.records.rewrite import retain_records

Row = tuple[int, bytes | None, bytes | None]
"""Time, key and value of a record."""


def by_columns(body: bytes, count: int) -> list[tuple[int, bytes | None, bool, int, int]] | None:
    try:
        found = key_columns(body, count)
    except CorruptBatchError:
        return None
    ends = found.bounds[1:]
    rows = zip(found.deltas, found.keys, found.bounds, ends, strict=False)
    assert len(found.deltas) == len(found.keys) == len(ends)
    return [
        (delta, key, place not in found.tombstones, start, end) for place, (delta, key, start, end) in enumerate(rows)
    ]


def one_by_one(body: bytes, count: int) -> list[tuple[int, bytes | None, bool, int, int]] | None:
    try:
        return list(keyed_records(body, count))
    except CorruptBatchError:
        return None


def body_of(rows: list[Row], kept: list[int] | None = None) -> bytes:
    """The records' bytes: time, key, value; of `kept` alone, as a compaction leaves them."""
    records = [Record(Offset(n), 1000 + time, key, value) for n, (time, key, value) in enumerate(rows)]
    buffer = build_batch(records)
    header = read_header(buffer)
    body = records_body(buffer, 0, header, 1 << 24)
    if kept is None:
        return body
    bounds = [record[3:] for record in keyed_records(body, len(rows))]
    rewritten = retain_records(header, body, [bounds[n] for n in kept])
    return records_body(rewritten, 0, read_header(rewritten), 1 << 24)


ROWS = st.tuples(
    st.sampled_from([0, 0, 0, 1, 63, 64, 9000, 1 << 40]),
    st.one_of(st.binary(min_size=1, max_size=6), st.sampled_from([None, b"", b"x" * 63, b"x" * 64])),
    st.one_of(st.binary(max_size=90), st.sampled_from([None, b"y" * 200, b"y" * 9000])),
)
SAME = st.lists(ROWS, min_size=1, max_size=3).flatmap(
    lambda few: st.lists(st.sampled_from(few), min_size=1, max_size=200)
)


@given(SAME, st.data())
def test_columns_are_what_the_records_are(rows: list[Row], data: st.DataObject) -> None:
    kept = sorted(data.draw(st.sets(st.sampled_from(range(len(rows))), min_size=1)))
    for body, count in ((body_of(rows), len(rows)), (body_of(rows, kept), len(kept))):
        expected = one_by_one(body, count)
        assert expected is not None
        assert by_columns(body, count) == expected


@given(SAME, st.data())
def test_damaged_bytes_are_taken_and_refused_as_one_by_one(rows: list[Row], data: st.DataObject) -> None:
    body = bytearray(body_of(rows))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))]) if data.draw(st.booleans()) else bytes(body)
    count = data.draw(st.sampled_from([len(rows), max(len(rows) - 1, 0), len(rows) + 1]))
    assert by_columns(cut, count) == one_by_one(cut, count)


@pytest.mark.parametrize("value_bytes", [10, 100, 1000, 10_000])
def test_many_records_of_a_producer(value_bytes: int) -> None:
    """Deltas of one and of two bytes, times that grow, keys of growing size, a tombstone here and there."""
    rows: list[Row] = [
        (n // 3, b"key-%d" % (n * 7 % 1500), None if n % 50 == 3 else b"v" * (value_bytes + n % 9)) for n in range(1500)
    ]
    assert by_columns(body_of(rows), len(rows)) == one_by_one(body_of(rows), len(rows))
    kept = [n for n in range(len(rows)) if n % 3]
    assert by_columns(body_of(rows, kept), len(kept)) == one_by_one(body_of(rows, kept), len(kept))


@given(ROWS, st.binary(max_size=70), st.binary(max_size=9))
def test_a_lone_record_is_what_it_is_wherever_it_lies(row: Row, before: bytes, behind: bytes) -> None:
    body = body_of([row])
    start, end = len(before), len(before) + len(body)
    found = lone_key(before + body + behind, start, end)
    _, key, value = row
    if found is not None:
        assert found == (key, value is not None)
    is_usual = key is not None and len(key) < 64
    # The first record's timestamp is that of its batch.
    assert (found is not None) == is_usual


@given(ROWS, st.data())
def test_bytes_that_are_no_lone_record_are_left_to_those_who_name_the_error(row: Row, data: st.DataObject) -> None:
    body = bytearray(body_of([row]))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, min(len(body) - 1, 90)))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 3))
    damaged = bytes(body[: len(body) - cut])
    found, rows = lone_key(damaged, 0, len(damaged)), one_by_one(damaged, 1)
    if found is not None:
        assert rows is not None
        ((delta, key, has_value, start, end),) = rows
        assert (found, delta, start, end) == ((key, has_value), 0, 0, len(damaged))


@given(st.binary(max_size=12))
def test_no_bytes_make_a_lone_record_look_past_its_end(body: bytes) -> None:
    found = lone_key(body, 0, len(body))
    assert found is None or one_by_one(body, 1) is not None
