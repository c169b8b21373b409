"""Produce: each partition's batch goes to the broker as it lies in the frame, and the reply leaves when all are served.

Version 0 is advertised because older librdkafka draws from it whether it may compress, but versions 0 to 2 carry the
message formats before record batches: they get a proper reply that says UNSUPPORTED_VERSION for every partition.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from logboom.base.errors import (
    InvalidRecordError,
    LogboomError,
    UnsupportedCompressionError,
    UnsupportedTransactionError,
)
from logboom.broker.partition.replica import AppendResult
from logboom.kafka.errors import NO_TRANSACTIONS, InvalidAcksError, UnsupportedVersionError, error_code
from logboom.kafka.handlers.handler import Close, Encoded, Handler, Later, Reply, RequestContext
from logboom.kafka.produce.fast_path import (
    API_KEY,
    WITH_ID,
    WITH_ZSTD,
    Part,
    Topics,
    encode_response,
    is_zstd,
    note_error,
    too_late,
    usual_of,
    writable_partition,
)
from logboom.kafka.wire.messages import as_milliseconds
from logboom.kafka.wire.reading import reader_for

_OLDEST: Final = 3


class _Produce(Later):
    """One request on its way to its reply: until every partition has its result, or the client's time is over."""

    __slots__ = ("_left", "_topics", "context", "silent")

    def __init__(self, context: RequestContext, topics: Topics, *, silent: bool) -> None:
        super().__init__()
        self.context = context
        self.silent = silent
        """Whether the client wants no reply (acks=0)."""
        self._topics = topics
        self._left = sum(len(parts) for _, parts in topics)

    def done(self, part: Part, result: AppendResult | LogboomError) -> None:
        """A partition has its result; one that comes after the time was over is dropped."""
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
                    note_error(self.context, topic, part.index, part.result)
        self.set(encode_response(self.context.api_version, self._topics))

    def _errors(self) -> Iterator[LogboomError]:
        return (part.result for _, parts in self._topics for part in parts if isinstance(part.result, LogboomError))

    def expire(self) -> None:
        """The client's time is over."""
        why = too_late()
        for _, parts in self._topics:
            for part in parts:
                self.done(part, why)


def handle(context: RequestContext, request: Any) -> Reply:
    """Append everything; answer when acks is served for all partitions."""
    by_id = context.api_version >= WITH_ID
    topics = [
        (topic.topic_id if by_id else topic.name, [Part(data.index) for data in topic.partition_data])
        for topic in request.topic_data
    ]
    acks = request.acks
    produce = _Produce(context, topics, silent=acks == 0)
    refusal = _refusal(request)
    for topic, (name, parts) in zip(request.topic_data, topics, strict=True):
        for data, part in zip(topic.partition_data, parts, strict=True):
            if refusal is not None:
                produce.done(part, refusal)
            else:
                _append(produce, part, name, data.records, acks)
    if not any(parts for _, parts in topics):
        produce.finish()  # a request for nothing
    if not produce.is_set:
        produce.expires_at_s = context.broker.clock.monotonic_s() + as_milliseconds(request.timeout) / 1000
        produce.on_expired = produce.expire
    return produce


def _refusal(request: Any) -> LogboomError | None:
    if request.acks not in (-1, 0, 1):
        return InvalidAcksError(f"acks is {request.acks}; it can be -1 (all), 0 or 1")
    if request.transactional_id is not None:
        return UnsupportedTransactionError(NO_TRANSACTIONS)
    return None


def _append(produce: _Produce, part: Part, topic: Any, records: memoryview | None, acks: int) -> None:
    done = partial(produce.done, part)
    try:
        if not records:
            raise InvalidRecordError("a produce request has no records for a partition it names")
        if produce.context.api_version < WITH_ZSTD and is_zstd(records):
            raise UnsupportedCompressionError(f"Produce requests before version {WITH_ZSTD} have no zstd.")
        partition = writable_partition(produce.context, topic, part.index)
        produce.context.shared.metrics.produced_bytes += len(records)
        partition.append(records, acks=acks, done=done)
    except LogboomError as error:
        done(error)


# --- versions 0 to 2 -----------------------------------------------------------------------------------------------


def handle_unsupported(context: RequestContext, frame: memoryview, position: int) -> Encoded | None:
    """A version before record batches: every partition is told so. Later versions than ours close the connection."""
    if not 0 <= context.api_version < _OLDEST:
        return None
    # Version 3 only put a nullable transactional id in front.
    body = memoryview(bytearray(b"\xff\xff" + frame[position:]))
    request, _, _ = reader_for(API_KEY, _OLDEST)(body, 0, context.shared.config.max_request_elements)
    if request.acks == 0:
        return None
    why = UnsupportedVersionError("message formats before version 2 are not taken: use Produce version 3 or newer")
    topics = [(topic.name, [Part(data.index) for data in topic.partition_data]) for topic in request.topic_data]
    for _, parts in topics:
        for part in parts:
            part.result = why
    return encode_response(context.api_version, topics)


HANDLER = Handler(
    api_key=API_KEY,
    min_version=_OLDEST,
    max_version=13,
    handle=handle,
    advertised_min_version=0,
    handle_unsupported=handle_unsupported,
    usual=usual_of,
    stages=True,
)
