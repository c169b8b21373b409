"""What both ways of producing share: which partition may be appended to, and how its errors are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from logboom.base.errors import (
    ConditionFailedError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    LogboomError,
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedCompressionError,
)
from logboom.base.ids import StreamId
from logboom.kafka.admin.lookup import find_partition
from logboom.kafka.cluster.current_leader import CurrentLeaders
from logboom.kafka.errors import InvalidAcksError, RequestTimedOutError, error_code
from logboom.kafka.produce.response import API_KEY, LEADER_TAG
from logboom.metadata import check_client_may_write
from logboom.records import Codec

if TYPE_CHECKING:
    from logboom.broker.partition.replica import Partition
    from logboom.kafka.handlers.context import RequestContext

WITH_ZSTD: Final = 7
"""The first version whose clients know zstd (KIP-110)."""

_ATTRIBUTES_BYTE: Final = 22
"""Position of the codec in a record batch."""

_CLIENT_ERRORS: Final = (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedCompressionError,
    InvalidAcksError,
)
"""Errors that a client causes and will cause again; they are logged as well as sent."""


def writable_partition(context: RequestContext, topic: Any, index: int) -> Partition:
    """The partition that a client may append to. Raises LogboomError."""
    partition = find_partition(context.broker, topic, index)
    check_client_may_write(partition.stream)
    return partition


def current_leaders(context: RequestContext) -> CurrentLeaders:
    """The current leaders that a response names with its refusals."""
    return CurrentLeaders(context.broker.catalog, context.server.cluster, tag=LEADER_TAG)


def is_zstd(records: memoryview) -> bool:
    """Whether a record batch is compressed with zstd."""
    return len(records) > _ATTRIBUTES_BYTE and records[_ATTRIBUTES_BYTE] & 7 == Codec.ZSTD


def report_error(context: RequestContext, topic: Any, index: int, error: LogboomError) -> None:
    """Count an error that is sent for a partition, and log it if the client caused it."""
    name = error_code(error).name
    server = context.server
    server.metrics.api(API_KEY).errors[name] += 1
    if error.limit:
        server.metrics.limit_hits[error.limit] += 1
    # A writer that another one was quicker than has done nothing wrong, however often that happens.
    if isinstance(error, _CLIENT_ERRORS) and not isinstance(error, ConditionFailedError):
        server.log.warning(
            f"records {name}",
            "records refused",
            error=name,
            why=str(error),
            stream=_stream_name(context, topic),
            partition=index,
            client=context.client_host,
            client_id=context.client_id,
        )


def _stream_name(context: RequestContext, topic: Any) -> str:
    """The name for a log line, where the request names the stream by its id."""
    stream = context.broker.catalog.stream_by_id(StreamId(topic)) if isinstance(topic, UUID) else None
    return str(topic) if stream is None else stream.name


def timed_out() -> RequestTimedOutError:
    """The error of records that were appended and not committed within the request's timeout."""
    return RequestTimedOutError("the records were not committed in time; they may still be")
