"""Any produce request, as its reader returns it: each partition's batch goes to the broker, the response waits for
all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from logboom.base.errors import (
    InvalidRecordError,
    LogboomError,
    UnsupportedCompressionError,
    UnsupportedTransactionError,
)
from logboom.kafka.errors import NO_TRANSACTIONS, InvalidAcksError, error_code
from logboom.kafka.produce.appending import (
    WITH_ZSTD,
    current_leaders,
    is_zstd,
    report_error,
    timed_out,
    writable_partition,
)
from logboom.kafka.produce.response import WITH_ID, PartitionProduce, Topics, encode_response
from logboom.kafka.replies import Close, DeferredReply
from logboom.kafka.wire.messages import as_milliseconds

if TYPE_CHECKING:
    from logboom.broker.partition.replica import AppendResult
    from logboom.kafka.handlers.context import RequestContext


class PendingProduce(DeferredReply):
    """One request until every partition has its result, or its timeout is over."""

    __slots__ = ("_left", "_topics", "context", "silent")

    def __init__(self, context: RequestContext, topics: Topics, *, silent: bool) -> None:
        super().__init__()
        self.context = context
        self.silent = silent
        """Whether the client wants no response (acks=0)."""
        self._topics = topics
        self._left = sum(len(parts) for _, parts in topics)

    def done(self, part: PartitionProduce, result: AppendResult | LogboomError) -> None:
        """A partition has its result. One that comes after the timeout is ignored."""
        if part.result is None:
            part.result = result
            self._left -= 1
            if self._left == 0:
                self.finish()

    def finish(self) -> None:
        """Every partition has its result."""
        if self.silent:
            errors = [(error, error_code(error)) for error in self._errors()]
            self.set(Close(f"acks=0: {errors[0][0]}") if errors else None)
            return
        for topic, parts in self._topics:
            for part in parts:
                if isinstance(part.result, LogboomError):
                    report_error(self.context, topic, part.index, part.result)
        self.set(encode_response(self.context.api_version, self._topics, current_leaders(self.context)))

    def _errors(self) -> Iterator[LogboomError]:
        return (part.result for _, parts in self._topics for part in parts if isinstance(part.result, LogboomError))

    def expire(self) -> None:
        """The timeout is over."""
        error = timed_out()
        for _, parts in self._topics:
            for part in parts:
                self.done(part, error)


def produce(context: RequestContext, request: Any) -> PendingProduce:
    """Append everything. The reply is set when acks is satisfied for every partition."""
    by_id = context.api_version >= WITH_ID
    topics = [
        (topic.topic_id if by_id else topic.name, [PartitionProduce(data.index) for data in topic.partition_data])
        for topic in request.topic_data
    ]
    acks = request.acks
    pending = PendingProduce(context, topics, silent=acks == 0)
    refusal = _refusal(request)
    for topic, (name, parts) in zip(request.topic_data, topics, strict=True):
        for data, part in zip(topic.partition_data, parts, strict=True):
            if refusal is not None:
                pending.done(part, refusal)
            else:
                _append(pending, part, name, data.records, acks)
    if not any(parts for _, parts in topics):
        pending.finish()  # a request for no partition
    if not pending.is_set:
        pending.expires_at_s = context.broker.clock.monotonic_s() + as_milliseconds(request.timeout) / 1000
        pending.on_expired = pending.expire
    return pending


def _refusal(request: Any) -> LogboomError | None:
    if request.acks not in (-1, 0, 1):
        return InvalidAcksError(f"acks is {request.acks}; it can be -1 (all), 0 or 1")
    if request.transactional_id is not None:
        return UnsupportedTransactionError(NO_TRANSACTIONS)
    return None


def _append(pending: PendingProduce, part: PartitionProduce, topic: Any, records: memoryview | None, acks: int) -> None:
    context, done = pending.context, partial(pending.done, part)
    try:
        if not records:
            raise InvalidRecordError("a produce request has no records for a partition it names")
        if context.api_version < WITH_ZSTD and is_zstd(records):
            raise UnsupportedCompressionError(f"Produce requests before version {WITH_ZSTD} have no zstd.")
        partition = writable_partition(context, topic, part.index)
        context.server.metrics.produced_bytes += len(records)
        partition.append(records, acks=acks, done=done)
    except LogboomError as error:
        done(error)
