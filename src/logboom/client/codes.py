"""What the error codes of a broker mean for a batch of an idempotent producer.

Source: Kafka's `Errors`, as kio has them; KIP-98 and KIP-360 for the sequences. The caller decides what to do about a
code: the collector and the router promise different things.
"""

from typing import Final

from kio.schema.errors import ErrorCode

__all__ = ["MOVED", "OUT_OF_ORDER", "PRODUCER_LOST", "REFUSED", "TAKEN", "TOO_LARGE", "ErrorCode", "error_of"]

TAKEN: Final = frozenset((ErrorCode.none, ErrorCode.duplicate_sequence_number))
"""The batch is in the log, by this request or an earlier one."""

OUT_OF_ORDER: Final = ErrorCode.out_of_order_sequence_number
"""A batch before this one is missing. If none is, the broker has lost the producer's state."""

PRODUCER_LOST: Final = frozenset(
    (
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.producer_fenced,
    )
)
"""The producer id and its sequences are no longer valid."""

TOO_LARGE: Final = frozenset((ErrorCode.message_too_large, ErrorCode.record_list_too_large))
"""The stream accepts smaller batches only."""

REFUSED: Final = TOO_LARGE | {
    ErrorCode.invalid_topic_exception,
    ErrorCode.topic_authorization_failed,
    ErrorCode.cluster_authorization_failed,
    ErrorCode.invalid_timestamp,
    ErrorCode.invalid_record,
    ErrorCode.invalid_request,
    ErrorCode.policy_violation,
    ErrorCode.unsupported_compression_type,
    ErrorCode.unsupported_for_message_format,
    ErrorCode.unsupported_version,
}
"""The broker has written nothing of the batch, and will not. After any other error its fate is unknown."""

MOVED: Final = frozenset(
    (
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.broker_not_available,
        ErrorCode.replica_not_available,
    )
)
"""The partition's leader is elsewhere, or about to be there: look it up."""


def error_of(code: int) -> ErrorCode:
    """The error of a code; an unknown code is the server's fault.

    >>> error_of(6).name, error_of(9_999).name
    ('not_leader_or_follower', 'unknown_server_error')
    """
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.unknown_server_error
