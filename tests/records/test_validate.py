import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    LogboomError,
    MessageTooLargeError,
    UnsupportedCompressionError,
    UnsupportedTransactionError,
)
from logboom.base.ids import Offset
from logboom.records import (
    HEADER_BYTES,
    BatchHeader,
    Codec,
    Record,
    RecordLimits,
    build_batch,
    compress,
    iter_records,
    read_header,
    stamp_append_time,
    validate_produced,
)
from logboom.records.header import pack_header, write_crc
from logboom.records.varint import varint

LIMITS = RecordLimits(max_batch_bytes=1 << 20, max_decompressed_bytes=4 << 20, max_records=10_000)

blobs = st.one_of(st.none(), st.binary(max_size=20), st.integers(0, 20_000).map(lambda n: b"v" * n))
records_of_a_batch = st.lists(
    st.builds(
        Record,
        offset=st.just(Offset(0)),
        timestamp_ms=st.integers(-1, 1 << 45),
        key=blobs,
        value=blobs,
        headers=st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3).map(
            tuple
        ),
    ),
    min_size=1,
    max_size=5,
)


def some_records(count: int) -> list[Record]:
    return [Record(Offset(0), 1000 + n, b"key", b"v" * 60, (("h", b"x"),)) for n in range(count)]


def framed(body: bytes, count: int, codec: Codec = Codec.NONE, **fields: int) -> bytearray:
    """A batch with a right CRC around any body."""
    header = read_header(build_batch(some_records(1)))._replace(
        batch_length=HEADER_BYTES - 12 + len(body), attributes=codec, last_offset_delta=count - 1, records_count=count
    )
    return reheaded(bytearray(HEADER_BYTES) + body, header._replace(**fields))  # type: ignore[arg-type]


def reheaded(buffer: bytearray, header: BatchHeader) -> bytearray:
    pack_header(buffer, 0, header)
    write_crc(buffer, 0, len(buffer))
    return buffer


def with_fields(**fields: int) -> Callable[[], bytearray]:
    def make() -> bytearray:
        buffer = build_batch(some_records(3))
        return reheaded(buffer, read_header(buffer)._replace(**fields))  # type: ignore[arg-type]

    return make


@given(records=records_of_a_batch, codec=st.sampled_from(Codec))
@settings(max_examples=150, deadline=None)
def test_what_is_built_is_valid_and_reads_back(records: list[Record], codec: Codec) -> None:
    buffer = build_batch(records, codec=codec, base_offset=40)
    header, is_conditional = validate_produced(memoryview(buffer), LIMITS)
    assert not is_conditional
    assert header.codec is codec
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    read = list(iter_records(buffer, 0, header, 1 << 20))
    expected = [Record(Offset(40 + n), r.timestamp_ms, r.key, r.value, r.headers) for n, r in enumerate(records)]
    assert read == expected


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193])
def test_offset_deltas_of_every_width(count: int) -> None:
    header, _ = validate_produced(build_batch(some_records(count)), LIMITS)
    assert header.records_count == count


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (bytearray, InvalidRecordError),
        (with_fields(magic=0), InvalidRecordError),
        (with_fields(magic=1), InvalidRecordError),
        (with_fields(magic=3), CorruptBatchError),
        (with_fields(attributes=5), UnsupportedCompressionError),
        (with_fields(attributes=0x10), UnsupportedTransactionError),
        (with_fields(attributes=0x20), InvalidRecordError),
        (with_fields(attributes=0x08), InvalidTimestampError),
        (with_fields(records_count=2), InvalidRecordError),
        (with_fields(records_count=4, last_offset_delta=3), InvalidRecordError),
        (with_fields(records_count=2, last_offset_delta=1), InvalidRecordError),
        (with_fields(records_count=0, last_offset_delta=-1), InvalidRecordError),
        (with_fields(records_count=-5), InvalidRecordError),
        (with_fields(last_offset_delta=5), InvalidRecordError),
        (with_fields(records_count=10_001, last_offset_delta=10_000), MessageTooLargeError),
        (with_fields(records_count=9_999, last_offset_delta=9_998), InvalidRecordError),
        (with_fields(batch_length=48), CorruptBatchError),
        (with_fields(batch_length=-1), CorruptBatchError),
        (with_fields(batch_length=500), InvalidRecordError),
        (with_fields(batch_length=1 << 21), MessageTooLargeError),
        (with_fields(producer_id=5, producer_epoch=0, base_sequence=-1), InvalidRecordError),
        (with_fields(producer_id=5, producer_epoch=-1, base_sequence=0), InvalidRecordError),
        (with_fields(producer_id=-2, producer_epoch=0, base_sequence=0), InvalidRecordError),
        (lambda: build_batch(some_records(1)) + build_batch(some_records(1)), InvalidRecordError),
        (lambda: build_batch(some_records(1)) + b"tail", CorruptBatchError),
        (lambda: build_batch(some_records(1))[:-1], InvalidRecordError),
        (lambda: build_batch(some_records(1))[:40], InvalidRecordError),
        (lambda: build_batch(some_records(20_000)), MessageTooLargeError),
    ],
)
def test_each_rule(make: Callable[[], bytearray], error: type[LogboomError]) -> None:
    with pytest.raises(error) as caught:
        validate_produced(make(), LIMITS)
    assert type(caught.value) is error


def test_a_stamped_batch_is_not_taken_from_a_client() -> None:
    buffer = build_batch(some_records(1))
    stamp_append_time(buffer, 0, 99)
    with pytest.raises(InvalidTimestampError):
        validate_produced(buffer, LIMITS)


def test_offset_deltas_must_run_from_zero() -> None:
    def record(delta: int) -> bytes:
        body = b"\x00\x00" + varint(delta) + b"\x01\x01\x00"
        return varint(len(body)) + body

    validate_produced(framed(record(0) + record(1), 2), LIMITS)
    for wrong in (record(1) + record(2), record(0) + record(0), record(0) + record(70), record(0) + record(-1)):
        with pytest.raises(InvalidRecordError):
            validate_produced(framed(wrong, 2), LIMITS)


def test_numbers_longer_than_they_need_to_be_are_read() -> None:
    body = b"\x00" + b"\x80\x80\x00" + b"\x80\x00" + b"\x81\x00" + b"\x82\x00v" + b"\x80\x00"
    batch = framed(bytes((2 * len(body) | 0x80, 0)) + body, 1)
    validate_produced(batch, LIMITS)
    (record,) = iter_records(batch, 0, read_header(batch), 1 << 20)
    assert record.value == b"v"


def test_a_bomb_is_refused_by_size() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        with pytest.raises(MessageTooLargeError):
            validate_produced(framed(compress(codec, bytes(8 << 20)), 1, codec), LIMITS)


@given(data=st.data(), codec=st.sampled_from(Codec))
@settings(max_examples=300, deadline=None)
def test_mutated_records_under_a_right_crc_parse_or_raise_a_typed_error(data: st.DataObject, codec: Codec) -> None:
    plain = bytearray(build_batch(some_records(data.draw(st.integers(1, 70))))[HEADER_BYTES:])
    count = data.draw(st.integers(1, 80))
    for _ in range(data.draw(st.integers(0, 3))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    plain = plain[: data.draw(st.integers(0, len(plain)))]
    buffer = framed(compress(codec, plain), count, codec)
    try:
        header, _ = validate_produced(buffer, LIMITS)
    except LogboomError:
        pass
    else:
        assert len(list(iter_records(buffer, 0, header, 1 << 20))) == count
    with contextlib.suppress(LogboomError):
        list(iter_records(buffer, 0, read_header(buffer), 1 << 20))


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_the_quick_walk_agrees_with_the_reader(data: st.DataObject) -> None:
    """A record that validation lets through is one that the record reader reads, and the other way round."""
    field = st.one_of(st.just(b"\x01"), st.binary(max_size=3), st.sampled_from([b"\x80\x00", b"\x81\x00", b"\x04ab"]))
    body = b"".join(data.draw(st.lists(field, min_size=1, max_size=8)))
    record = data.draw(st.sampled_from([varint(len(body)), varint(len(body) + 1), b"\x80\x80\x00"])) + body
    buffer = framed(record, 1)
    header = read_header(buffer)
    try:
        (read,) = iter_records(buffer, 0, header, 1 << 20)
        readable = read.offset == header.base_offset
    except LogboomError:
        readable = False
    try:
        validate_produced(buffer, LIMITS)
        valid = True
    except LogboomError:
        valid = False
    assert valid == readable


@given(data=st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_answered_with_a_typed_error(data: bytes) -> None:
    with pytest.raises(LogboomError):
        validate_produced(data, LIMITS)


@given(data=st.data(), codec=st.sampled_from(Codec))
@settings(max_examples=200, deadline=None)
def test_mutated_batches_are_valid_or_answered_with_a_typed_error(data: st.DataObject, codec: Codec) -> None:
    """No other exception than LogboomError comes out of the check, whatever the bytes are."""
    buffer = build_batch(some_records(3), codec=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(LogboomError):
        validate_produced(buffer[: data.draw(st.integers(0, len(buffer)))], LIMITS)
