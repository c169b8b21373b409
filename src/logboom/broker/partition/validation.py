"""The rules by which a partition takes a client's batch. Pure: one batch and the time in, the batch or an error out."""

from dataclasses import dataclass

from logboom.base.errors import LogboomError
from logboom.broker.config import BrokerConfig
from logboom.metadata import Flush, StreamConfig, TimestampType
from logboom.records import RecordLimits, check_timestamps, read_header, stamp_append_time, validate_produced
from logboom.storage import Batch


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

    @classmethod
    def of(cls, stream: StreamConfig, broker: BrokerConfig) -> "AppendRules":
        """The rules under these settings."""
        return cls(
            RecordLimits(stream.max_message_bytes, broker.max_decompressed_bytes, broker.max_batch_records),
            stream.message_timestamp_type is TimestampType.LOG_APPEND_TIME,
            stream.message_timestamp_before_max_ms,
            stream.message_timestamp_after_max_ms,
            stream.flush is Flush.COMMIT,
        )

    def check(self, records: bytearray | memoryview, now_ms: int) -> Batch | LogboomError:
        """A client's batch and its header, stamped in place where the stream stamps; or what is wrong with it."""
        try:
            ((_, header),) = validate_produced(records, self.limits)
            if self.stamps_append_time:
                stamp_append_time(records, 0, now_ms)
                header = read_header(records)
            elif header.max_timestamp > now_ms + self.ahead_max_ms or now_ms > self.behind_max_ms:
                # The header knows the newest time alone; each record is looked at only where one may be out of bounds.
                oldest_ms, newest_ms = now_ms - self.behind_max_ms, now_ms + self.ahead_max_ms
                check_timestamps(records, header, oldest_ms, newest_ms, self.limits)
        except LogboomError as error:
            return error
        return records, header
