"""Produce: each partition's batch goes to the broker as it lies in the frame, and the reply leaves when all are served.

Version 0 is advertised because older librdkafka draws from it whether it may compress, but versions 0 to 2 carry the
message formats before record batches: they get a proper reply that says UNSUPPORTED_VERSION for every partition.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from struct import Struct
from time import monotonic
from typing import Any, Final

from logboom.base.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidStreamNameError,
    InvalidTimestampError,
    LogboomError,
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedCompressionError,
    UnsupportedTransactionError,
)
from logboom.broker.partition import AppendResult
from logboom.kafka import encoding
from logboom.kafka.errors import (
    InvalidAcksError,
    RequestTimedOutError,
    UnsupportedVersionError,
    error_code,
)
from logboom.kafka.handler import Close, Encoded, Handler, Later, Reply, RequestContext
from logboom.kafka.lookup import find_partition
from logboom.kafka.messages import as_milliseconds
from logboom.kafka.reading import reader_for
from logboom.records import Codec

_API_KEY: Final = 0
_OLDEST: Final = 3
_WITH_ID: Final = 13
_WITH_ZSTD: Final = 7
_ATTRIBUTES_BYTE: Final = 22
"""The one with the codec, in a record batch."""

_BAD_INPUT: Final = (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedCompressionError,
    InvalidAcksError,
)
"""What a client did wrong and does again: the broker's log says so too."""


class _Part:
    """One partition of the request and what became of it."""

    __slots__ = ("index", "result")

    def __init__(self, index: int) -> None:
        self.index = index
        self.result: AppendResult | LogboomError | None = None


_Topics = Sequence[tuple[Any, Sequence[_Part]]]


class _Produce(Later):
    """One request on its way to its reply: until every partition has its result, or the client's time is over."""

    __slots__ = ("_left", "_topics", "context", "silent")

    def __init__(self, context: RequestContext, topics: _Topics, *, silent: bool) -> None:
        super().__init__()
        self.context = context
        self.silent = silent
        """Whether the client wants no reply (acks=0)."""
        self._topics = topics
        self._left = sum(len(parts) for _, parts in topics)

    def done(self, part: _Part, result: AppendResult | LogboomError) -> None:
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
                    self._note(topic, part.index, part.result)
        self.set(encode_response(self.context.api_version, self._topics))

    def _errors(self) -> Iterator[LogboomError]:
        return (part.result for _, parts in self._topics for part in parts if isinstance(part.result, LogboomError))

    def _note(self, topic: Any, index: int, error: LogboomError) -> None:
        context, name = self.context, error_code(error).name
        context.shared.metrics.api(_API_KEY).errors[name] += 1
        if isinstance(error, _BAD_INPUT):
            context.shared.complaints.say(
                f"records {name}",
                "records refused",
                error=name,
                why=str(error),
                stream=str(topic),
                partition=index,
                client=context.client_host,
                client_id=context.client_id,
            )

    def expire(self) -> None:
        """The client's time is over."""
        why = RequestTimedOutError("the records were not committed in time; they may be yet")
        for _, parts in self._topics:
            for part in parts:
                self.done(part, why)


def handle(context: RequestContext, request: Any) -> Reply:
    """Append everything; answer when acks is served for all partitions."""
    by_id = context.api_version >= _WITH_ID
    topics = [
        (topic.topic_id if by_id else topic.name, [_Part(data.index) for data in topic.partition_data])
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
        produce.expires_at_s = monotonic() + as_milliseconds(request.timeout) / 1000
        produce.on_expired = produce.expire
    return produce


def _refusal(request: Any) -> LogboomError | None:
    if request.acks not in (-1, 0, 1):
        return InvalidAcksError(f"acks is {request.acks}; it can be -1 (all), 0 or 1")
    if request.transactional_id is not None:
        return UnsupportedTransactionError("this broker does not serve transactions: unset transactional.id")
    return None


def _append(produce: _Produce, part: _Part, topic: Any, records: memoryview | None, acks: int) -> None:
    done = partial(produce.done, part)
    try:
        if not records:
            raise InvalidRecordError("a produce request has no records for a partition it names")
        if produce.context.api_version < _WITH_ZSTD:
            _check_codec(records)
        partition = find_partition(produce.context.broker, topic, part.index)
        if partition.stream.internal:
            raise InvalidStreamNameError(f"{partition.stream.name} is internal: clients cannot write to it")
        produce.context.shared.metrics.produced_bytes += len(records)
        partition.append(records, acks=acks, done=done)
    except LogboomError as error:
        done(error)


def _check_codec(records: memoryview) -> None:
    """A client of before version 7 cannot know zstd (KIP-110)."""
    if len(records) > _ATTRIBUTES_BYTE and records[_ATTRIBUTES_BYTE] & 7 == Codec.ZSTD:
        raise UnsupportedCompressionError(f"Produce requests before version {_WITH_ZSTD} have no zstd.")


# --- the response, by hand (held against kio's reader in the tests) ------------------------------------------------

_PART_V0: Final = Struct(">ihq")
_PART_V2: Final = Struct(">ihqq")
_PART_V5: Final = Struct(">ihqqq")
_NO_THROTTLE: Final = bytes(4)


def encode_response(version: int, topics: _Topics) -> Encoded:
    """The body of a produce response."""
    flexible = version >= 9
    out = bytearray(encoding.count(len(topics), flexible=flexible))
    for topic, parts in topics:
        out += encoding.uuid(topic) if version >= _WITH_ID else encoding.string(topic, flexible=flexible)
        out += encoding.count(len(parts), flexible=flexible)
        for part in parts:
            out += _part(version, part)
        if flexible:
            out += b"\0"
    throttle_at = len(out) if version >= 1 else -1
    if version >= 1:
        out += _NO_THROTTLE
    if flexible:
        out += b"\0"
    return Encoded((out,), throttle_at)


def _part(version: int, part: _Part) -> bytes:
    result = part.result
    assert result is not None
    if isinstance(result, LogboomError):
        code, base, time_ms, start, message = int(error_code(result)), -1, -1, -1, str(result) or None
    else:
        code, base, time_ms, start, message = 0, *result, None
    if version < 2:
        return _PART_V0.pack(part.index, code, base)
    if version < 5:
        return _PART_V2.pack(part.index, code, base, time_ms)
    head = _PART_V5.pack(part.index, code, base, time_ms, start)
    if version < 8:
        return head
    # No record errors one by one: a batch is taken or refused whole.
    if version == 8:
        return head + encoding.count(0, flexible=False) + encoding.nullable(message)
    return head + encoding.count(0, flexible=True) + encoding.compact_nullable(message) + b"\0"


# --- versions 0 to 2 -----------------------------------------------------------------------------------------------


def handle_unsupported(context: RequestContext, frame: memoryview, position: int) -> Encoded | None:
    """A version before record batches: every partition is told so. Later versions than ours close the connection."""
    if not 0 <= context.api_version < _OLDEST:
        return None
    # Version 3 only put a nullable transactional id in front.
    body = memoryview(bytearray(b"\xff\xff" + frame[position:]))
    request, _, _ = reader_for(_API_KEY, _OLDEST)(body, 0, context.shared.config.max_request_elements)
    if request.acks == 0:
        return None
    why = UnsupportedVersionError("message formats before version 2 are not taken: use Produce version 3 or newer")
    topics = [(topic.name, [_Part(data.index) for data in topic.partition_data]) for topic in request.topic_data]
    for _, parts in topics:
        for part in parts:
            part.result = why
    return encode_response(context.api_version, topics)


HANDLER = Handler(
    api_key=_API_KEY,
    min_version=_OLDEST,
    max_version=13,
    handle=handle,
    advertised_min_version=0,
    handle_unsupported=handle_unsupported,
)
