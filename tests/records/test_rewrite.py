"""Batches of clients' own builders without some of their records, read again by clients' own readers."""

import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import built_by

from logboom.base.errors import CorruptBatchError, InvalidRecordError
from logboom.base.ids import Epoch, Offset
from logboom.records import (
    MAX_OFFSET_DELTA,
    BatchHeader,
    Codec,
    Record,
    RecordLimits,
    build_batch,
    crc_ok,
    gap_batch,
    is_gap,
    iter_records,
    keyed_records,
    patch_batch,
    read_header,
    records_body,
    records_without_key,
    retain_records,
    validate_produced,
    without_records,
)

with warnings.catch_warnings():
    # kafka-python's own imports use what Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as PythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder

LIMITS = RecordLimits(max_batch_bytes=1 << 20, max_decompressed_bytes=4 << 20, max_records=10_000)
FIRST_MS = 1_700_000_000_000
HEADERS = [("trace", b"abc"), ("empty", None)]
ROWS = [
    (
        FIRST_MS + n * 977,
        b"key %d" % n * (1 + n % 30),
        None if n % 7 == 3 else b"a value of a log line %d " % n * (n % 90),
    )
    for n in range(200)
]
KEPT = [n for n in range(200) if n % 3 == 1]
BASE = Offset(5_000_000_000)


def stored(builder: type, codec: Codec) -> tuple[bytearray, BatchHeader]:
    """A client's batch as the broker stores it."""
    buffer = built_by(builder, codec, ROWS, HEADERS)
    validate_produced(buffer, LIMITS)
    patch_batch(buffer, 0, BASE, Epoch(4))
    return buffer, read_header(buffer)


@pytest.mark.parametrize("horizon_ms", [None, FIRST_MS + 86_400_000, 5])
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(("builder", "reader"), [(AioBuilder, AioBatch), (PythonBuilder, PythonBatch)])
def test_what_is_left_of_a_clients_batch(builder: type, reader: type, codec: Codec, horizon_ms: int | None) -> None:
    buffer, before = stored(builder, codec)
    body = records_body(buffer, 0, before, 4 << 20)
    retained = [record[3:] for n, record in enumerate(keyed_records(body, before.records_count)) if n in KEPT]
    rewritten = retain_records(before, body, retained, delete_horizon_ms=horizon_ms)
    header = read_header(rewritten)
    assert crc_ok(rewritten, 0, header)
    assert header.size_bytes == len(rewritten) < len(buffer)
    # Where it lies, whose it is and how it is compressed have not changed.
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (BASE, BASE + 200, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (123, 2, 9)
    assert (header.last_sequence, header.codec) == (before.last_sequence, codec)
    assert (header.records_count, header.delete_horizon_ms) == (len(KEPT), horizon_ms)
    assert header.max_timestamp == ROWS[KEPT[-1]][0]
    batch = reader(bytes(rewritten))
    assert batch.validate_crc()
    read = list(batch)
    assert [(r.timestamp, r.key, r.value) for r in read] == [ROWS[n] for n in KEPT]
    assert [r.offset for r in read] == [BASE + n for n in KEPT]
    assert all(list(r.headers) == HEADERS for r in read)
    ours = list(iter_records(rewritten, 0, header, 4 << 20))
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in ours] == [(BASE + n, *ROWS[n]) for n in KEPT]


@pytest.mark.parametrize("reader", [AioBatch, PythonBatch])
def test_batches_without_records_are_read_there(reader: type) -> None:
    _, before = stored(AioBuilder, Codec.LZ4)
    for empty in (without_records(before), gap_batch(BASE, Offset(BASE + 200), Epoch(4))):
        header = read_header(empty)
        assert crc_ok(empty, 0, header)
        assert (len(empty), header.records_count, header.max_timestamp) == (61, 0, -1)
        assert (header.base_offset, header.next_offset, header.leader_epoch) == (BASE, BASE + 200, 4)
        assert not list(iter_records(empty, 0, header, 1))
        batch = reader(bytes(empty))
        assert batch.validate_crc()
        assert batch.next_offset == BASE + 200
        assert not list(batch)
    header = read_header(without_records(before))
    assert (header.producer_id, header.last_sequence, is_gap(header)) == (123, before.last_sequence, False)
    assert is_gap(read_header(gap_batch(Offset(0), Offset(MAX_OFFSET_DELTA + 1), Epoch(0))))


RECORDS = st.lists(
    st.tuples(
        st.integers(-1, 1 << 45),
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=9)), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@given(RECORDS, st.sampled_from(Codec), st.data())
def test_any_records_may_be_retained(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    data: st.DataObject,
) -> None:
    records = [
        Record(Offset(n), time, key, value, tuple(headers)) for n, (time, key, value, headers) in enumerate(rows)
    ]
    buffer = build_batch(records, codec=codec)
    before = read_header(buffer)
    body = records_body(buffer, 0, before, 1 << 20)
    found = list(keyed_records(body, len(records)))
    assert [(delta, key, has_value) for delta, key, has_value, _, _ in found] == [
        (record.offset, record.key, record.value is not None) for record in records
    ]
    keyless = [n for n, record in enumerate(records) if record.key is None]
    for most in (1, 100):
        assert records_without_key(buffer, 0, before, 1 << 20, most=most) == keyless[:most]
    kept = sorted(data.draw(st.sets(st.sampled_from(range(len(records))), min_size=1)))
    horizon_ms = data.draw(st.none() | st.integers(0, 1 << 45))
    rewritten = retain_records(before, body, [found[n][3:] for n in kept], delete_horizon_ms=horizon_ms)
    assert list(iter_records(rewritten, 0, read_header(rewritten), 1 << 20)) == [records[n] for n in kept]


@given(st.binary(max_size=80), st.integers(1, 5))
def test_bytes_that_are_no_records_are_refused(body: bytes, count: int) -> None:
    try:
        found = list(keyed_records(body, count))
    except CorruptBatchError:
        return
    assert (len(found), found[-1][4]) == (count, len(body))


def test_a_client_may_not_set_the_delete_horizon() -> None:
    buffer = build_batch([Record(Offset(0), 1, b"k", b"v")])
    header = read_header(buffer)
    body = records_body(buffer, 0, header, 1 << 20)
    marked = retain_records(header, body, [(0, len(body))], delete_horizon_ms=1)
    with pytest.raises(InvalidRecordError, match="delete horizon"):
        validate_produced(marked, LIMITS)
