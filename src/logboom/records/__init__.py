"""Row 1: Kafka's record batch, magic 2 (KIP-98), as bytes.

A batch is a header of 61 bytes and then records, compressed together or not. The broker treats the records as opaque:
a batch is stored and given out as its producer sent it, and three things make that safe and fast.

- The CRC covers everything but base offset and leader epoch, which lie before it. So the broker can write these two
  into the bytes it received (`patch_batch`), and nothing else changes. They need a check of their own when read back
  (`whole_batches`), since no CRC speaks for them.
- Everything a client sends is checked once, before it is appended (`validate_produced`): the header's rules, the CRC,
  and a walk over all records, which must fill the batch exactly. What a consumer fetches needs no look at records.
- That walk is the one loop of the broker that runs for each record, so it makes no object of any (`walk`), and checks
  runs of records that are alike a column of bytes at a time (`columns`).

`header` reads and patches headers, `validate` holds the rules for produced batches (their errors are Kafka's, see
docs/bad-input.md), `walk` and `columns` the walk, `codec` compression with a limit on what comes out, `record` single
records for what needs them: groups, tools, tests, searches by time. `keys`, `key_columns` and `rewrite` are for key
compaction: they read the keys of a batch, and make batches from which records are missing. `conditions` takes the
headers of conditional records out of a batch. `contents` makes batches of what came through other front ends than
Kafka's, one content after another, and finds one header in many records.

It knows bytes. It must not know partitions, files, or what the wire around a batch looks like.
"""

from logboom.records.alike_contents import AlikeContents, contents_bytes
from logboom.records.codec import compress, decompress
from logboom.records.conditions import EXPECTED_OFFSET, READ_TO, STREAM_ID, ConditionHeaders, take_conditions
from logboom.records.contents import (
    MESSAGE_ID,
    HeaderFields,
    batch_bytes_max,
    batch_of,
    has_key,
    header_values,
    record_content,
)
from logboom.records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MAX_SEQUENCE,
    MIN_BATCH_LENGTH,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    add_to_sequence,
    crc_ok,
    holds_records,
    iter_batches,
    patch_batch,
    read_header,
    stamp_append_time,
    whole_batches,
    whole_headers,
)
from logboom.records.key_columns import KeyColumns, key_columns, lone_key
from logboom.records.keys import KeyedRecord, keyed_records, records_without_key
from logboom.records.record import (
    Headers,
    Record,
    build_batch,
    iter_records,
    recompress,
    record_value,
    records_body,
    seal_batch,
)
from logboom.records.rewrite import (
    MAX_OFFSET_DELTA,
    RecordBounds,
    gap_batch,
    is_gap,
    replace_records,
    retain_records,
    without_records,
)
from logboom.records.validate import NO_TIMESTAMP, Produced, RecordLimits, check_timestamps, validate_produced
from logboom.records.varint import varint

__all__ = [
    "CODEC_MASK",
    "CONTROL_BIT",
    "EXPECTED_OFFSET",
    "HEADER_BYTES",
    "LENGTH_PREFIX_BYTES",
    "MAGIC",
    "MAX_OFFSET_DELTA",
    "MAX_SEQUENCE",
    "MESSAGE_ID",
    "MIN_BATCH_LENGTH",
    "NO_TIMESTAMP",
    "READ_TO",
    "STREAM_ID",
    "TRANSACTIONAL_BIT",
    "AlikeContents",
    "BatchHeader",
    "Codec",
    "ConditionHeaders",
    "HeaderFields",
    "Headers",
    "KeyColumns",
    "KeyedRecord",
    "Produced",
    "Record",
    "RecordBounds",
    "RecordLimits",
    "add_to_sequence",
    "batch_bytes_max",
    "batch_of",
    "build_batch",
    "check_timestamps",
    "compress",
    "contents_bytes",
    "crc_ok",
    "decompress",
    "gap_batch",
    "has_key",
    "header_values",
    "holds_records",
    "is_gap",
    "iter_batches",
    "iter_records",
    "key_columns",
    "keyed_records",
    "lone_key",
    "patch_batch",
    "read_header",
    "recompress",
    "record_content",
    "record_value",
    "records_body",
    "records_without_key",
    "replace_records",
    "retain_records",
    "seal_batch",
    "stamp_append_time",
    "take_conditions",
    "validate_produced",
    "varint",
    "whole_batches",
    "whole_headers",
    "without_records",
]
