"""Errors in the answers to group requests. Each class maps to one Kafka error code, in `logboom.kafka.errors`."""

from logboom.base.errors import (
    LogboomError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    NotLeaderError,
    RecordListTooLargeError,
    RetriableStorageError,
    StorageError,
    UnknownStreamError,
)


class GroupError(LogboomError):
    """Base of the errors that a coordinator answers."""


class InvalidGroupIdError(GroupError):
    """The group's id is empty or longer than allowed (INVALID_GROUP_ID)."""


class CoordinatorLoadInProgressError(GroupError):
    """The coordinator is reading its state from the log; retry (COORDINATOR_LOAD_IN_PROGRESS)."""


class CoordinatorNotAvailableError(GroupError):
    """The coordinator cannot serve the group now; retry (COORDINATOR_NOT_AVAILABLE)."""


class NotCoordinatorError(GroupError):
    """This broker does not coordinate the group (NOT_COORDINATOR)."""


class UnknownMemberError(GroupError):
    """The group has no such member; join as a new one (UNKNOWN_MEMBER_ID)."""


class MemberIdRequiredError(GroupError):
    """Join again with the member id in this answer (MEMBER_ID_REQUIRED, KIP-394)."""


class FencedInstanceIdError(GroupError):
    """Another process took this group.instance.id (FENCED_INSTANCE_ID, KIP-345)."""


class IllegalGenerationError(GroupError):
    """The request names a generation that is not the current one (ILLEGAL_GENERATION)."""


class RebalanceInProgressError(GroupError):
    """The group is being rebalanced: join again (REBALANCE_IN_PROGRESS)."""


class InconsistentGroupProtocolError(GroupError):
    """No protocol is common to the member and the group (INCONSISTENT_GROUP_PROTOCOL)."""


class InvalidSessionTimeoutError(GroupError):
    """A session timeout outside the broker's bounds (INVALID_SESSION_TIMEOUT)."""


class GroupMaxSizeReachedError(GroupError):
    """The group has as many members as allowed (GROUP_MAX_SIZE_REACHED, KIP-389)."""


class NonEmptyGroupError(GroupError):
    """The group has members (NON_EMPTY_GROUP)."""


class GroupIdNotFoundError(GroupError):
    """No such group (GROUP_ID_NOT_FOUND)."""


class GroupSubscribedToStreamError(GroupError):
    """The group reads this stream now, so its offsets stay (GROUP_SUBSCRIBED_TO_TOPIC, KIP-496)."""


class OffsetMetadataTooLargeError(GroupError):
    """The metadata of a committed offset is too long (OFFSET_METADATA_TOO_LARGE)."""


class InvalidCommitOffsetSizeError(GroupError):
    """More offsets than a group may hold or one commit may carry (INVALID_COMMIT_OFFSET_SIZE)."""


class GroupRecordError(LogboomError):
    """A record of the offsets stream that cannot be read; it is logged and skipped."""


class GroupTooLargeError(GroupError):
    """The group's metadata does not fit one record (UNKNOWN_SERVER_ERROR, as Kafka answers)."""


def metadata_store_error(error: LogboomError) -> LogboomError:
    """The error that members are answered when writing the group's metadata failed (Kafka's mapping)."""
    if isinstance(error, RetriableStorageError | UnknownStreamError | NotEnoughReplicasError):
        return CoordinatorNotAvailableError(str(error))
    if isinstance(error, NotLeaderError | StorageError):
        return NotCoordinatorError(str(error))
    if isinstance(error, MessageTooLargeError | RecordListTooLargeError):
        return GroupTooLargeError(str(error), limit="broker.groups.offsets_max_message_bytes")
    return error


def offset_store_error(error: LogboomError) -> LogboomError:
    """The error that OffsetCommit is answered when writing the offsets failed (Kafka's mapping)."""
    if isinstance(error, MessageTooLargeError | RecordListTooLargeError):
        return InvalidCommitOffsetSizeError(str(error))
    return metadata_store_error(error)
