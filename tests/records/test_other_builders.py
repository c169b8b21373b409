"""Batches that clients' own builders make, and ours read by them."""

import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from tests.support.builders import built_by

from logboom.base.ids import Offset
from logboom.records import Codec, Record, RecordLimits, build_batch, iter_records, validate_produced

with warnings.catch_warnings():
    # kafka-python's own imports use what Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as PythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder

LIMITS = RecordLimits(max_batch_bytes=1 << 20, max_decompressed_bytes=4 << 20, max_records=10_000)
ROWS = [
    (1_700_000_000_000 + n * 7, b"k%d" % n if n % 3 else None, b"a value, a log line %d " % n * (n % 5) or None)
    for n in range(300)
]
HEADERS = [("trace", b"abc"), ("empty", None)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("builder", [AioBuilder, PythonBuilder])
def test_their_batches_are_valid_here(builder: type, codec: Codec) -> None:
    buffer = built_by(builder, codec, ROWS, HEADERS)
    header, _ = validate_produced(buffer, LIMITS)
    assert (header.codec, header.producer_id, header.producer_epoch, header.base_sequence) == (codec, 123, 2, 9)
    read = list(iter_records(buffer, 0, header, 4 << 20))
    assert [(r.timestamp_ms, r.key, r.value) for r in read] == ROWS
    assert all(list(r.headers) == HEADERS for r in read)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("reader", [AioBatch, PythonBatch])
def test_our_batches_are_read_there(reader: type, codec: Codec) -> None:
    records = [Record(Offset(0), *row, tuple(HEADERS)) for row in ROWS]
    batch = reader(bytes(build_batch(records, codec=codec, base_offset=50)))
    assert batch.validate_crc()
    read = list(batch)
    assert [(r.timestamp, r.key, r.value) for r in read] == ROWS
    assert [r.offset for r in read] == list(range(50, 350))
    assert all(list(r.headers) == HEADERS for r in read)
