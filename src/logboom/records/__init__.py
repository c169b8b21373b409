"""Row 1: the record batch of Kafka, magic 2: read its head, check it, patch it, build it, (de)compress it.

It knows bytes. It must not know partitions, files, or what the wire around a batch looks like.
"""

from logboom.records.codec import compress, decompress
from logboom.records.header import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MAX_SEQUENCE,
    MIN_BATCH_LENGTH,
    BatchHeader,
    Codec,
    add_to_sequence,
    crc_ok,
    iter_batches,
    patch_batch,
    read_header,
    stamp_append_time,
    whole_batches,
)
from logboom.records.record import Headers, Record, build_batch, iter_records, seal_batch
from logboom.records.validate import NO_TIMESTAMP, RecordLimits, check_timestamps, validate_produced
from logboom.records.varint import varint

__all__ = [
    "HEADER_BYTES",
    "LENGTH_PREFIX_BYTES",
    "MAGIC",
    "MAX_SEQUENCE",
    "MIN_BATCH_LENGTH",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Codec",
    "Headers",
    "Record",
    "RecordLimits",
    "add_to_sequence",
    "build_batch",
    "check_timestamps",
    "compress",
    "crc_ok",
    "decompress",
    "iter_batches",
    "iter_records",
    "patch_batch",
    "read_header",
    "seal_batch",
    "stamp_append_time",
    "validate_produced",
    "varint",
    "whole_batches",
]
