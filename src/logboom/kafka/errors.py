"""The one table from Logboom's errors to Kafka's error codes.

The most derived class found in the table decides, so a subclass needs a row only where its code differs.
"""

from typing import Final

from kio.schema.errors import ErrorCode

from logboom.base import errors
from logboom.base.errors import LogboomError
from logboom.broker.peers import PeerUnavailableError
from logboom.groups import errors as groups

NO_TRANSACTIONS: Final = "this broker does not serve transactions: unset transactional.id"
"""Sent with UnsupportedTransactionError wherever a transactional producer may come first."""


REPLICAS_ELSEWHERE: Final = "brokers replicate over a listener of their own, not over the one for clients"
"""Sent with ReplicaRequestError."""

NO_ACLS: Final = "this broker has no authorizer: there are no ACLs, and every client may do everything"
"""Sent with SecurityDisabledError."""


class InvalidAcksError(LogboomError):
    """acks is none of -1, 0 and 1 (INVALID_REQUIRED_ACKS)."""


class RequestTimedOutError(LogboomError):
    """The request was not completed within its timeout; it may still be (REQUEST_TIMED_OUT)."""


class UnsupportedVersionError(LogboomError):
    """The request needs a newer version of the API (UNSUPPORTED_VERSION)."""


class LeaderNotAvailableError(LogboomError):
    """Nobody leads the partition now, or not for clients (LEADER_NOT_AVAILABLE)."""


class ReplicaRequestError(LogboomError):
    """A request that is for brokers alone came over the listener for clients (CLUSTER_AUTHORIZATION_FAILED)."""


class SecurityDisabledError(LogboomError):
    """The request is about ACLs, and there is no authorizer (SECURITY_DISABLED)."""


class LogDirNotFoundError(LogboomError):
    """The request names a log dir that this broker does not have (LOG_DIR_NOT_FOUND)."""


class ReplicaNotAvailableError(LogboomError):
    """The request is about a replica, and this broker has none of the partition (REPLICA_NOT_AVAILABLE)."""


_TABLE: dict[type[BaseException], ErrorCode] = {
    errors.UnknownStreamError: ErrorCode.unknown_topic_or_partition,
    errors.UnknownStreamIdError: ErrorCode.unknown_topic_id,
    errors.StreamExistsError: ErrorCode.topic_already_exists,
    errors.InvalidStreamNameError: ErrorCode.invalid_topic_exception,
    errors.InvalidPartitionsError: ErrorCode.invalid_partitions,
    errors.InvalidReplicationFactorError: ErrorCode.invalid_replication_factor,
    errors.InvalidAssignmentError: ErrorCode.invalid_replica_assignment,
    errors.InvalidConfigError: ErrorCode.invalid_config,
    errors.InvalidRequestError: ErrorCode.invalid_request,
    errors.PolicyViolationError: ErrorCode.policy_violation,
    errors.NotLeaderError: ErrorCode.not_leader_or_follower,
    errors.FencedLeaderEpochError: ErrorCode.fenced_leader_epoch,
    errors.UnknownLeaderEpochError: ErrorCode.unknown_leader_epoch,
    errors.OffsetNotAvailableError: ErrorCode.offset_not_available,
    errors.NotEnoughReplicasError: ErrorCode.not_enough_replicas,
    errors.NotEnoughReplicasAfterAppendError: ErrorCode.not_enough_replicas_after_append,
    errors.NotControllerError: ErrorCode.not_controller,
    errors.OutcomeUnknownError: ErrorCode.request_timed_out,
    errors.ConcurrentChangeError: ErrorCode.request_timed_out,
    errors.DuplicateBrokerError: ErrorCode.duplicate_broker_registration,
    errors.UnknownBrokerError: ErrorCode.broker_id_not_registered,
    errors.StaleBrokerEpochError: ErrorCode.stale_broker_epoch,
    errors.UnsupportedLevelError: ErrorCode.unsupported_version,
    errors.InvalidUpdateVersionError: ErrorCode.invalid_update_version,
    errors.IneligibleReplicaError: ErrorCode.ineligible_replica,
    errors.ElectionNotNeededError: ErrorCode.election_not_needed,
    errors.PreferredLeaderNotAvailableError: ErrorCode.preferred_leader_not_available,
    errors.EligibleLeadersNotAvailableError: ErrorCode.eligible_leaders_not_available,
    errors.NoReassignmentInProgressError: ErrorCode.no_reassignment_in_progress,
    errors.CorruptBatchError: ErrorCode.corrupt_message,
    errors.InvalidRecordError: ErrorCode.invalid_record,
    errors.UnsupportedTransactionError: ErrorCode.transactional_id_authorization_failed,
    errors.UnsupportedCompressionError: ErrorCode.unsupported_compression_type,
    errors.MessageTooLargeError: ErrorCode.message_too_large,
    errors.RecordListTooLargeError: ErrorCode.record_list_too_large,
    errors.InvalidTimestampError: ErrorCode.invalid_timestamp,
    errors.OverloadedError: ErrorCode.throttling_quota_exceeded,
    errors.OffsetOutOfRangeError: ErrorCode.offset_out_of_range,
    errors.OutOfOrderSequenceError: ErrorCode.out_of_order_sequence_number,
    errors.InvalidProducerEpochError: ErrorCode.invalid_producer_epoch,
    errors.StorageError: ErrorCode.kafka_storage_error,
    PeerUnavailableError: ErrorCode.network_exception,
    LeaderNotAvailableError: ErrorCode.leader_not_available,
    ReplicaRequestError: ErrorCode.cluster_authorization_failed,
    SecurityDisabledError: ErrorCode.security_disabled,
    LogDirNotFoundError: ErrorCode.log_dir_not_found,
    ReplicaNotAvailableError: ErrorCode.replica_not_available,
    InvalidAcksError: ErrorCode.invalid_required_acks,
    RequestTimedOutError: ErrorCode.request_timed_out,
    UnsupportedVersionError: ErrorCode.unsupported_version,
    groups.InvalidGroupIdError: ErrorCode.invalid_group_id,
    groups.CoordinatorLoadInProgressError: ErrorCode.coordinator_load_in_progress,
    groups.CoordinatorNotAvailableError: ErrorCode.coordinator_not_available,
    groups.NotCoordinatorError: ErrorCode.not_coordinator,
    groups.UnknownMemberError: ErrorCode.unknown_member_id,
    groups.MemberIdRequiredError: ErrorCode.member_id_required,
    groups.FencedInstanceIdError: ErrorCode.fenced_instance_id,
    groups.IllegalGenerationError: ErrorCode.illegal_generation,
    groups.RebalanceInProgressError: ErrorCode.rebalance_in_progress,
    groups.InconsistentGroupProtocolError: ErrorCode.inconsistent_group_protocol,
    groups.InvalidSessionTimeoutError: ErrorCode.invalid_session_timeout,
    groups.GroupMaxSizeReachedError: ErrorCode.group_max_size_reached,
    groups.NonEmptyGroupError: ErrorCode.non_empty_group,
    groups.GroupIdNotFoundError: ErrorCode.group_id_not_found,
    groups.GroupSubscribedToStreamError: ErrorCode.group_subscribed_to_topic,
    groups.OffsetMetadataTooLargeError: ErrorCode.offset_metadata_too_large,
    groups.InvalidCommitOffsetSizeError: ErrorCode.invalid_commit_offset_size,
    groups.GroupTooLargeError: ErrorCode.unknown_server_error,
}


def error_code(error: BaseException | None) -> ErrorCode:
    """The code for an error; NONE for no error, UNKNOWN_SERVER_ERROR for one that has no row.

    The error's traceback is dropped: from here on the error is a response. A traceback refers to stack frames, and a
    frame whose variable holds the error completes a cycle, which would keep all that those frames hold, the request's
    bytes among it, in memory until a garbage collection.
    """
    if error is None:
        return ErrorCode.none
    error.__traceback__ = error.__context__ = error.__cause__ = None
    for cls in type(error).__mro__:
        code = _TABLE.get(cls)
        if code is not None:
            return code
    return ErrorCode.unknown_server_error


def error_message(error: BaseException | None) -> str | None:
    """The message for a response that has a field for one; None for no error."""
    return None if error is None else str(error) or error_code(error).name
