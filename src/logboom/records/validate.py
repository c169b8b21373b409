"""The rules for batches that a client sent, before anything is appended (Kafka's LogValidator and ProduceRequest).

Clients act on which error it is: after CorruptBatchError (CORRUPT_MESSAGE: bytes changed on the way) they send the
batch again, after any other they give up. Each choice is Kafka's own: docs/bad-input.md.
"""

from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from logboom.base.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedTransactionError,
)
from logboom.base.ids import NO_PRODUCER
from logboom.base.ports import Bytes
from logboom.records.header import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MIN_BATCH_LENGTH,
    BatchHeader,
    crc_ok,
    read_header,
)
from logboom.records.record import iter_records, records_body
from logboom.records.walk import walk_records

NO_TIMESTAMP = -1
"""What a record carries that has no time."""

_MAGIC_POSITION = 16
"""Where every format since magic 0 has its magic, after offset, length and four bytes more."""


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """What one batch may be at most."""

    max_batch_bytes: int
    max_decompressed_bytes: int
    max_records: int


class Produced(NamedTuple):
    """A client's batch that keeps every rule."""

    header: BatchHeader
    is_conditional: bool
    """Whether a record has the header of a condition (`conditions`)."""


def validate_produced(buffer: Bytes, limits: RecordLimits) -> Produced:
    """Check a client's bytes for one partition by every rule; the header of their batch.

    They are exactly one whole batch of magic 2, as since produce version 3. Its CRC and lengths are right, its records
    have been walked (decompressed within the limit) and number what the header says, and it is neither a control batch
    nor of a transaction nor stamped with an append time.

    Raises CorruptBatchError, UnsupportedCompressionError, MessageTooLargeError, InvalidTimestampError,
    InvalidRecordError and UnsupportedTransactionError.
    """
    header = _simple_batch(buffer, limits)
    is_simple = header is not None
    if header is None:
        header = _whole_batch(buffer, limits)
        _check_header(header, limits)
    try:
        if is_simple:
            body = bytes(memoryview(buffer)[HEADER_BYTES:])
        else:
            body = records_body(buffer, 0, header, limits.max_decompressed_bytes)
        return Produced(header, walk_records(body, header.records_count))
    except CorruptBatchError as error:
        # CORRUPT_MESSAGE would make the client send the batch again. The CRC is right, so these bytes are what it has,
        # and it would send them for ever.
        raise InvalidRecordError(str(error)) from None


def _simple_batch(buffer: Bytes, limits: RecordLimits) -> BatchHeader | None:
    """The header of an uncompressed batch that keeps every rule of `_whole_batch` and `_check_header`; None otherwise.

    One expression for the case that nearly every batch is. Nothing is refused here: where it does not hold, the rules
    are checked again one by one, to find the error that Kafka answers with.
    """
    size = len(buffer)
    if not HEADER_BYTES < size <= limits.max_batch_bytes or size > limits.max_decompressed_bytes:
        return None
    header = read_header(buffer)
    _, length, _, magic, crc, attributes, last_delta, _, _, producer, producer_epoch, sequence, count = header
    if (
        length == size - LENGTH_PREFIX_BYTES
        and magic == MAGIC
        and attributes == 0
        and last_delta == count - 1
        and 0 < count <= limits.max_records
        and (producer == NO_PRODUCER or min(producer, producer_epoch, sequence) >= 0)
        and crc == crc32c(memoryview(buffer)[CRC_START:])
    ):
        return header
    return None


def check_timestamps(buffer: Bytes, header: BatchHeader, oldest_ms: int, newest_ms: int, limits: RecordLimits) -> None:
    """InvalidTimestampError unless all records of a validated batch lie between the two times, inclusive (KIP-937).

    The latest time is the header's `max_timestamp`, which retention and the time index go by too. The earliest is
    looked for among the records. A record without a timestamp (-1) is not checked.
    """
    latest_ms = header.max_timestamp
    if latest_ms > newest_ms:
        raise InvalidTimestampError(f"A timestamp of {latest_ms} is too far ahead: {newest_ms} is the latest taken.")
    for record in iter_records(buffer, 0, header, limits.max_decompressed_bytes) if oldest_ms > 0 else ():
        if record.timestamp_ms < oldest_ms and record.timestamp_ms != NO_TIMESTAMP:
            raise InvalidTimestampError(
                f"A timestamp of {record.timestamp_ms} is too long ago: {oldest_ms} is the earliest taken."
            )


def _whole_batch(buffer: Bytes, limits: RecordLimits) -> BatchHeader:
    size = len(buffer)
    if size == 0:
        raise InvalidRecordError("A produce request must have a record batch for each partition.")
    if size > _MAGIC_POSITION and buffer[_MAGIC_POSITION] != MAGIC:
        # Magic 0 and 1 are the message sets from before KIP-98, which a client can be told to stop sending. There is no
        # other format, so any other byte was changed on the way, and a retry may help.
        kind = InvalidRecordError if buffer[_MAGIC_POSITION] < MAGIC else CorruptBatchError
        raise kind(f"Record batches must have magic {MAGIC}, not {buffer[_MAGIC_POSITION]}.")
    if size < HEADER_BYTES:
        raise InvalidRecordError(f"A record batch has a header of {HEADER_BYTES} bytes; {size} are left.")
    header = read_header(buffer)
    if header.batch_length < MIN_BATCH_LENGTH:
        raise CorruptBatchError(f"A record batch cannot be {header.batch_length} bytes long.")
    end = LENGTH_PREFIX_BYTES + header.batch_length
    if end > limits.max_batch_bytes:
        raise MessageTooLargeError(
            f"A record batch of {end} bytes is above the limit of {limits.max_batch_bytes}.", limit="max.message.bytes"
        )
    if end > size:
        raise InvalidRecordError(f"A record batch of {end} bytes is cut after {size}.")
    if not crc_ok(buffer, 0, header):
        raise CorruptBatchError("The CRC of a record batch is wrong.")
    if end < size:
        _reject_rest(buffer, end)
    return header


def _reject_rest(buffer: Bytes, end: int) -> None:
    """Bytes follow the first batch: a second batch is the client's mistake, anything else damage."""
    if len(buffer) - end >= HEADER_BYTES and buffer[end + _MAGIC_POSITION] == MAGIC:
        raise InvalidRecordError("A produce request may have only one record batch for each partition.")
    raise CorruptBatchError(f"{len(buffer) - end} bytes follow the record batch.")


def _check_header(header: BatchHeader, limits: RecordLimits) -> None:
    count = header.records_count
    if count <= 0:
        raise InvalidRecordError(f"A record batch cannot have {count} records.")
    if header.last_offset_delta != count - 1:
        raise InvalidRecordError(f"A batch of {count} records has the last offset delta {header.last_offset_delta}.")
    if count > limits.max_records:
        raise MessageTooLargeError(
            f"A batch of {count} records is above the limit of {limits.max_records}.", limit="broker.max_batch_records"
        )
    if header.is_control:
        raise InvalidRecordError("Clients may not write control batches.")
    if header.is_transactional:
        raise UnsupportedTransactionError("Transactions are not served; the batch belongs to one.")
    if header.uses_append_time:
        raise InvalidTimestampError("Clients may not mark a batch with append time.")
    if header.delete_horizon_ms is not None:
        # A compacted stream would take the first timestamp for the time from which tombstones may go.
        raise InvalidRecordError("Clients may not set the delete horizon of a batch.")
    if header.producer_id != NO_PRODUCER and min(header.producer_id, header.producer_epoch, header.base_sequence) < 0:
        raise InvalidRecordError(
            f"Producer {header.producer_id} sent epoch {header.producer_epoch} and sequence {header.base_sequence}."
        )
