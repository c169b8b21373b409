"""Errors that a client can cause, or that are reported to clients.

Each class maps to one Kafka error code in one table (`logboom.kafka.errors`). A violated invariant of this program is
an assertion, not one of these.
"""

from collections.abc import Sequence
from typing import TypeVar

from logboom.base.ids import Offset

Raised = TypeVar("Raised", bound=BaseException)


class LogboomError(Exception):
    """Base of all; its text is one sentence for a person."""

    def __init__(self, *args: object, limit: str = "") -> None:
        super().__init__(*args)
        self.limit = limit
        """The limit that was reached, by the name of its setting in the documents; empty for other errors."""


def with_cause(error: Raised, cause: BaseException) -> Raised:
    """`error` with `cause` as its `__cause__`, for `raise with_cause(error, cause) from cause`.

    Compiled modules (decision 20) need it: the compiler leaves the `from` of a raise out, and what is raised in place
    of a failed sync, or of a sector that cannot be read, is known by its cause.
    """
    error.__cause__ = cause
    return error


# --- streams and partitions -------------------------------------------------------------------------------------


class UnknownStreamError(LogboomError):
    """No such stream or partition here (UNKNOWN_TOPIC_OR_PARTITION)."""


class UnknownStreamIdError(LogboomError):
    """No stream has this id (UNKNOWN_TOPIC_ID)."""


class StreamExistsError(LogboomError):
    """A stream of this name is there (TOPIC_ALREADY_EXISTS)."""


class InvalidStreamNameError(LogboomError):
    """A name no stream may have (INVALID_TOPIC_EXCEPTION)."""


class InvalidPartitionsError(LogboomError):
    """A partition count that is not possible (INVALID_PARTITIONS)."""


class InvalidReplicationFactorError(LogboomError):
    """More replicas than brokers, or fewer than one (INVALID_REPLICATION_FACTOR)."""


class InvalidAssignmentError(LogboomError):
    """A replica assignment that is not possible (INVALID_REPLICA_ASSIGNMENT)."""


class InvalidConfigError(LogboomError):
    """A setting or a value that is not known (INVALID_CONFIG)."""


class InvalidRequestError(LogboomError):
    """A request that contradicts itself (INVALID_REQUEST)."""


class PolicyViolationError(LogboomError):
    """A documented limit was reached (POLICY_VIOLATION)."""


# --- leadership -------------------------------------------------------------------------------------------------


class NotLeaderError(LogboomError):
    """This broker does not lead the partition (NOT_LEADER_OR_FOLLOWER)."""


class FencedLeaderEpochError(LogboomError):
    """The request knows an older leader epoch (FENCED_LEADER_EPOCH)."""


class UnknownLeaderEpochError(LogboomError):
    """The request knows a newer leader epoch (UNKNOWN_LEADER_EPOCH)."""


class OffsetNotAvailableError(LogboomError):
    """A leader that has just been elected does not know yet how far its log is committed (OFFSET_NOT_AVAILABLE)."""


class NotEnoughReplicasError(LogboomError):
    """The ISR is below its minimum (NOT_ENOUGH_REPLICAS)."""


class NotEnoughReplicasAfterAppendError(NotEnoughReplicasError):
    """The ISR fell below its minimum after the append (NOT_ENOUGH_REPLICAS_AFTER_APPEND)."""


# --- the cluster ------------------------------------------------------------------------------------------------


class NotControllerError(LogboomError):
    """This broker is not the controller, or is not any more; nothing was changed (NOT_CONTROLLER)."""


class OutcomeUnknownError(LogboomError):
    """The change may have been made, or may still be made: its answer was lost (REQUEST_TIMED_OUT)."""


class ConcurrentChangeError(LogboomError):
    """Something else has changed the same since the change was asked for: nothing was changed (REQUEST_TIMED_OUT: asked
    for again, it may be)."""


class DuplicateBrokerError(LogboomError):
    """Another broker is registered under this id (DUPLICATE_BROKER_REGISTRATION)."""


class BrokerRunsError(DuplicateBrokerError):
    """A process of this broker is alive, so that another one with the same data directory is a copy of it, or too early
    (DUPLICATE_BROKER_REGISTRATION)."""


class UnknownBrokerError(LogboomError):
    """No broker is registered under this id (BROKER_ID_NOT_REGISTERED)."""


class UnsupportedLevelError(LogboomError):
    """A program that does not speak the metadata level of its cluster (UNSUPPORTED_VERSION)."""


class StaleBrokerEpochError(LogboomError):
    """The request comes from an earlier process of the broker (STALE_BROKER_EPOCH)."""


class InvalidUpdateVersionError(LogboomError):
    """The partition was changed since the one who asks has looked (INVALID_UPDATE_VERSION)."""


class IneligibleReplicaError(LogboomError):
    """A broker that may not be in an ISR: fenced, shutting down, or another process by now (INELIGIBLE_REPLICA)."""


class ElectionNotNeededError(LogboomError):
    """The partition has the leader that was asked for (ELECTION_NOT_NEEDED)."""


class PreferredLeaderNotAvailableError(LogboomError):
    """The preferred leader is not active or not in sync (PREFERRED_LEADER_NOT_AVAILABLE)."""


class EligibleLeadersNotAvailableError(LogboomError):
    """No replica may lead the partition (ELIGIBLE_LEADERS_NOT_AVAILABLE)."""


class NoReassignmentInProgressError(LogboomError):
    """The partition is not being reassigned (NO_REASSIGNMENT_IN_PROGRESS)."""


# --- records ----------------------------------------------------------------------------------------------------


class CorruptBatchError(LogboomError):
    """Bytes that are no record batch: wrong CRC, length or count (CORRUPT_MESSAGE)."""


class InvalidRecordError(LogboomError):
    """A batch that is whole but breaks a rule (INVALID_RECORD)."""

    def __init__(
        self,
        *args: object,
        limit: str = "",
        record_indexes: Sequence[int] = (),
        record_messages: Sequence[str] = (),
    ) -> None:
        super().__init__(*args, limit=limit)
        self.record_indexes = record_indexes
        """The records of the batch that break it, counted from 0, where not the batch as a whole does (KIP-467)."""
        self.record_messages = record_messages
        """What is wrong with each of them, where it is not the same for all."""


class ConditionFailedError(InvalidRecordError):
    """The latest record of a key is not the one that the writer of a conditional record expects (INVALID_RECORD)."""


class WrongLastOffsetError(InvalidRecordError):
    """The partition does not end where the publisher of a message expects (INVALID_RECORD)."""

    def __init__(self, end: Offset, expected: Offset) -> None:
        super().__init__(f"The partition ends at offset {end}, and the publisher expects {expected}.")
        self.end = end
        """Where it ends."""


class WrongLastMessageIdError(InvalidRecordError):
    """The last message of a partition is not the one that the publisher of the next expects (INVALID_RECORD)."""

    def __init__(self, last: bytes | None, expected: bytes) -> None:
        found = "has no id" if last is None else f"is {last!r}"
        super().__init__(f"The last message {found}, and the publisher expects {expected!r}.")
        self.last = last
        """Its id, None where it has none."""


class OverloadedError(LogboomError):
    """More comes than can be written now, or than a quota allows; nothing was taken (THROTTLING_QUOTA_EXCEEDED)."""


class UnsupportedTransactionError(InvalidRecordError):
    """Transactions are not served (TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which no client retries)."""


class UnsupportedCompressionError(LogboomError):
    """A codec that this broker does not support (UNSUPPORTED_COMPRESSION_TYPE)."""


class MessageTooLargeError(LogboomError):
    """A batch above the stream's limit, compressed or decompressed (MESSAGE_TOO_LARGE)."""


class RecordListTooLargeError(LogboomError):
    """A request's records above the segment's limit (RECORD_LIST_TOO_LARGE)."""


class InvalidTimestampError(LogboomError):
    """A timestamp outside what the stream takes (INVALID_TIMESTAMP)."""


class OffsetOutOfRangeError(LogboomError):
    """An offset below the log start or above the end (OFFSET_OUT_OF_RANGE)."""


# --- idempotent producers (KIP-98) ------------------------------------------------------------------------------


class OutOfOrderSequenceError(LogboomError):
    """A sequence number that does not follow the last one (OUT_OF_ORDER_SEQUENCE_NUMBER)."""


class InvalidProducerEpochError(LogboomError):
    """A newer producer has taken this id (INVALID_PRODUCER_EPOCH)."""


# --- storage ----------------------------------------------------------------------------------------------------


class StorageError(LogboomError):
    """The disk failed or holds damaged bytes (KAFKA_STORAGE_ERROR)."""


class RetriableStorageError(StorageError):
    """A resource for a write was lacking, and the write was undone; or a log that was read is being cut back. It may be
    tried again (KAFKA_STORAGE_ERROR)."""


class DiskFullError(RetriableStorageError):
    """The file system is full."""


class NoHandlesError(RetriableStorageError):
    """The process or the system has no file handle or no memory left to open a file with."""


class CompactionCancelledError(LogboomError):
    """A log is not compacted any further for now: it was asked to end, or the log was changed."""


class FormatVersionError(StorageError):
    """A data directory written by a newer format than this program knows."""
