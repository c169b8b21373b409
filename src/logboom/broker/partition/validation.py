"""The rules by which a partition takes a client's batch. Pure: one batch and the time in, the batch or an error out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from logboom.base.errors import InvalidRecordError, LogboomError, MessageTooLargeError
from logboom.broker.config import BrokerConfig
from logboom.broker.partition.conditions import ConditionalBatch, conditional_batch
from logboom.metadata import Compression, Flush, StreamConfig, TimestampType
from logboom.records import (
    BatchHeader,
    Codec,
    RecordLimits,
    batch_of,
    check_timestamps,
    read_header,
    recompress,
    records_without_key,
    stamp_append_time,
    validate_produced,
)
from logboom.storage import Batch

_NAMED_MAX: Final = 100
"""Records without a key that an answer names. Kafka names all; a batch may have a million."""
_CODECS: Final = {
    Compression.UNCOMPRESSED: Codec.NONE,
    Compression.GZIP: Codec.GZIP,
    Compression.SNAPPY: Codec.SNAPPY,
    Compression.LZ4: Codec.LZ4,
    Compression.ZSTD: Codec.ZSTD,
}

Checked: TypeAlias = Batch | ConditionalBatch | LogboomError
"""A valid client batch, with its conditions if it has any, or what is wrong with it."""


@dataclass(frozen=True, slots=True)
class AppendRules:
    """What a stream's settings and the broker's say of appends."""

    limits: RecordLimits
    stamps_append_time: bool
    """`message.timestamp.type` is LogAppendTime."""
    behind_max_ms: int
    """How far a record's time may lie in the past (`message.timestamp.before.max.ms`, KIP-937)."""
    ahead_max_ms: int
    """How far it may lie in the future (`message.timestamp.after.max.ms`)."""
    syncs: bool
    """Whether an ack waits for a sync of this broker's disk (`logboom.flush` is commit)."""
    unsynced_records_max: int
    """Where it does not: written records that make the flush that reaches them a synced one (`flush.messages`)."""
    needs_keys: bool
    """Whether a record without a key is refused, because compaction could not identify it."""
    codec: Codec | None
    """What batches are stored in, with `codec_level`; None leaves them as they were sent (`compression.type`)."""
    codec_level: int

    @classmethod
    def of(cls, stream: StreamConfig, broker: BrokerConfig) -> "AppendRules":
        """The rules under these settings."""
        return cls(
            RecordLimits(stream.max_message_bytes, broker.max_decompressed_bytes, broker.max_batch_records),
            stream.message_timestamp_type is TimestampType.LOG_APPEND_TIME,
            stream.message_timestamp_before_max_ms,
            stream.message_timestamp_after_max_ms,
            stream.flush is Flush.COMMIT,
            1 if stream.flush_ms == 0 else stream.flush_messages,
            stream.compacts,
            _CODECS.get(stream.compression_type),
            {
                Compression.GZIP: stream.compression_gzip_level,
                Compression.LZ4: stream.compression_lz4_level,
                Compression.ZSTD: stream.compression_zstd_level,
            }.get(stream.compression_type, 0),
        )

    def check(self, records: bytearray | memoryview, now_ms: int) -> Checked:
        """A client's batch and its header, stamped in place where the stream stamps; or what is wrong with it.

        The batch is another buffer where the stream has a codec of its own, and where conditions were taken out of it.
        """
        conditional: ConditionalBatch | None = None
        try:
            header, is_conditional = validate_produced(records, self.limits)
            if is_conditional:
                conditional = conditional_batch(records, header, self.limits.max_decompressed_bytes)
                records, header = conditional.batch
            if self.needs_keys:
                self._check_keys(records, header)
            if self.codec is not None and header.codec is not self.codec:
                records, header = self._recompressed(records, header, self.codec)
            elif conditional is not None:
                self._check_stored_size(records, "compressed again without the headers of its conditions")
            if self.stamps_append_time:
                stamp_append_time(records, 0, now_ms)
                header = read_header(records)
            elif header.max_timestamp > now_ms + self.ahead_max_ms or now_ms > self.behind_max_ms:
                # The header knows the newest time alone; each record is looked at only where one may be out of bounds.
                oldest_ms, newest_ms = now_ms - self.behind_max_ms, now_ms + self.ahead_max_ms
                check_timestamps(records, header, oldest_ms, newest_ms, self.limits)
        except LogboomError as error:
            return error
        return (records, header) if conditional is None else replace(conditional, batch=(records, header))

    def batch_of(self, contents: Sequence[bytes], received_ms: int, now_ms: int) -> Batch:
        """What this broker has packed itself, as one batch the way the stream stores it."""
        records: bytearray = batch_of(contents, received_ms)
        header = read_header(records)
        if self.codec is not None and self.codec is not Codec.NONE:
            packed = recompress(records, header, self.codec, self.codec_level, self.limits.max_decompressed_bytes)
            if len(packed) < len(records):
                records, header = packed, read_header(packed)
        if self.stamps_append_time:
            stamp_append_time(records, 0, now_ms)
            header = read_header(records)
        return records, header

    def _check_keys(self, records: bytearray | memoryview, header: BatchHeader) -> None:
        """Raises InvalidRecordError where a record has no key, as Kafka's LogValidator."""
        indexes = records_without_key(records, 0, header, self.limits.max_decompressed_bytes, most=_NAMED_MAX)
        if indexes:
            raise InvalidRecordError(
                f"Record {indexes[0]} of the batch has no key, and a stream with cleanup.policy=compact needs one.",
                record_indexes=indexes,
            )

    def _recompressed(
        self, records: bytearray | memoryview, header: BatchHeader, codec: Codec
    ) -> tuple[bytearray, BatchHeader]:
        """A validated batch in the stream's own codec. Raises MessageTooLargeError where it has become too large."""
        changed = recompress(records, header, codec, self.codec_level, self.limits.max_decompressed_bytes)
        self._check_stored_size(changed, "in the stream's compression.type")
        return changed, read_header(changed)

    def _check_stored_size(self, changed: bytearray | memoryview, how: str) -> None:
        """The size limit applies to what is stored too, as in Kafka: a batch that came compressed may no longer fit."""
        if len(changed) > self.limits.max_batch_bytes:
            raise MessageTooLargeError(
                f"A record batch has {len(changed)} bytes {how}, above the limit of {self.limits.max_batch_bytes}.",
                limit="max.message.bytes",
            )
