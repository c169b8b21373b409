"""Produce requests that are alike: read by comparing bytes, appended as one run, answered from a template.

What a client sends to one partition differs in its correlation id and its records alone. So the first such request is
read the general way, and `usual_of` keeps the bytes it begins with; a request that begins with the same bytes, and
whose records end where it ends, says the same. Anything else is left to the general way (`logboom.kafka.apis.produce`),
whose replies the template is cut from. This module knows bytes and the broker's partitions, and no connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final
from uuid import UUID

from logboom.base.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidStreamNameError,
    InvalidTimestampError,
    LogboomError,
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedCompressionError,
)
from logboom.base.ids import Offset, StreamId
from logboom.broker.partition.replica import AppendResult, Partition, RunResult
from logboom.kafka.admin.lookup import find_partition
from logboom.kafka.errors import InvalidAcksError, RequestTimedOutError, error_code
from logboom.kafka.handlers.handler import Close, Encoded, Later, RequestContext
from logboom.kafka.wire import encoding
from logboom.kafka.wire.messages import as_milliseconds
from logboom.kafka.wire.reading import MalformedError, read_uvarint
from logboom.records import Codec

API_KEY: Final = 0
WITH_ID: Final = 13
"""From here on topics are named by their id."""

WITH_ZSTD: Final = 7
_FLEXIBLE: Final = 9
_WITH_START: Final = 5
_BEGIN_AT: Final = 8
"""Where a request goes on behind its correlation id."""
_I32: Final = Struct(">i")
_NO_TAGS: Final = bytes(3)
"""Behind the records of a flexible request: no tags of the partition, of the topic, of the request."""
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

_NOWHERE: Final = RunResult((), -1, Offset(-1))


def writable_partition(context: RequestContext, topic: Any, index: int) -> Partition:
    """The partition that a client may append to. Raises LogboomError."""
    partition = find_partition(context.broker, topic, index)
    if partition.stream.internal:
        raise InvalidStreamNameError(f"{partition.stream.name} is internal: clients cannot write to it")
    return partition


def is_zstd(records: memoryview) -> bool:
    """Whether a batch is compressed in a way that clients of before version 7 cannot know (KIP-110)."""
    return len(records) > _ATTRIBUTES_BYTE and records[_ATTRIBUTES_BYTE] & 7 == Codec.ZSTD


def note_error(context: RequestContext, topic: Any, index: int, error: LogboomError) -> None:
    """Count an error that a client is told; one of its own making is told to the log as well."""
    name = error_code(error).name
    metrics = context.shared.metrics
    metrics.api(API_KEY).errors[name] += 1
    if error.limit:
        metrics.crossed[error.limit] += 1
    if isinstance(error, _BAD_INPUT):
        context.shared.complaints.say(
            f"records {name}",
            "records refused",
            error=name,
            why=str(error),
            stream=_name(context, topic),
            partition=index,
            client=context.client_host,
            client_id=context.client_id,
        )


def _name(context: RequestContext, topic: Any) -> str:
    """What a person calls it."""
    stream = context.broker.catalog.stream_by_id(StreamId(topic)) if isinstance(topic, UUID) else None
    return str(topic) if stream is None else stream.name


def too_late() -> RequestTimedOutError:
    """What is said of records that were appended and not committed within the client's time."""
    return RequestTimedOutError("the records were not committed in time; they may be yet")


# --- reading by comparison -------------------------------------------------------------------------------------------


def usual_of(context: RequestContext, frame: bytearray, position: int, request: Any) -> UsualProduce | None:
    """What requests like this one begin with; None unless it is one batch for one partition and nothing else.

    `position` is where its body begins. What it should then look like is written out here and held against it, so
    that a request which was read by other rules than these is never taken for a usual one.
    """
    if request.transactional_id is not None or request.acks not in (-1, 0, 1) or len(request.topic_data) != 1:
        return None
    (topic,) = request.topic_data
    if len(topic.partition_data) != 1 or not topic.partition_data[0].records:
        return None
    (data,) = topic.partition_data
    version = context.api_version
    flexible = version >= _FLEXIBLE
    name = topic.topic_id if version >= WITH_ID else topic.name
    timeout_ms = as_milliseconds(request.timeout)
    body = b"".join(
        (
            b"\0" if flexible else b"\xff\xff",
            _ACKS.pack(request.acks, timeout_ms),
            encoding.count(1, flexible=flexible),
            encoding.uuid(name) if version >= WITH_ID else encoding.string(name, flexible=flexible),
            encoding.count(1, flexible=flexible),
            _I32.pack(data.index),
        )
    )
    usual = UsualProduce(version, bytes(frame[:position]) + body, name, data.index, request.acks, timeout_ms)
    payload = usual.payload_of(frame)
    return usual if payload is not None and len(payload) == len(data.records) else None


_ACKS: Final = Struct(">hi")


class UsualProduce:
    """What produce requests of one client to one partition have in common. Never changes; connections share it."""

    __slots__ = (
        "_flexible",
        "_head",
        "_timeout_s",
        "acks",
        "begin",
        "end",
        "index",
        "template",
        "topic",
        "version",
    )

    def __init__(self, version: int, begin: bytes, topic: Any, index: int, acks: int, timeout_ms: int) -> None:
        self._head = begin[:4]
        self._flexible = version >= _FLEXIBLE
        self.topic = topic
        self.index = index
        self._timeout_s = timeout_ms / 1000
        self.version = version
        self.acks = acks
        self.begin = begin[_BEGIN_AT:]
        """The bytes between the correlation id and the length of the records."""
        self.end = len(begin)
        self.template = _Template(version, topic, index)

    def payload_of(self, frame: bytearray) -> memoryview | None:
        """The records of a request that begins as these do and ends with them; None of any other."""
        start, end = self.end, len(frame)
        if not (end > start + 4 and frame.startswith(self.begin, _BEGIN_AT) and frame.startswith(self._head)):
            return None
        if self._flexible:
            # Lengths are written plus one; 0 is null, 1 is empty.
            length, high = frame[start], frame[start + 1]
            if length < 128:
                start += 1
            elif high < 128:
                length, start = length & 127 | high << 7, start + 2
            else:
                try:
                    length, start = read_uvarint(memoryview(frame), start)
                except (IndexError, MalformedError):
                    return None
            end -= len(_NO_TAGS)
            if length - 1 != end - start or not frame.endswith(_NO_TAGS):
                return None
        else:
            start += 4
            if _I32.unpack_from(frame, start - 4)[0] != end - start:
                return None
        payload = memoryview(frame)[start:end]
        return None if not payload or (self.version < WITH_ZSTD and is_zstd(payload)) else payload

    def start(self, context: RequestContext, correlation_ids: Sequence[int], payloads: Sequence[memoryview]) -> Later:
        """Append the records of requests that came together; their replies come together, as bytes."""
        run = ProduceRun(self, context, correlation_ids)
        try:
            partition = writable_partition(context, self.topic, self.index)
        except LogboomError as error:
            run.done(_NOWHERE._replace(outcomes=[error] * len(payloads)))
            return run
        context.shared.metrics.produced_bytes += sum(map(len, payloads))
        partition.append_run(payloads, acks=self.acks, done=run.done)
        if not run.is_set:
            run.expires_at_s = context.broker.clock.monotonic_s() + self._timeout_s
            run.on_expired = run.expire
        return run

    def failed_reply(self, result: AppendResult | LogboomError) -> bytes:
        """A reply, behind its correlation id, of a request whose records were not taken."""
        (body,) = encode_response(self.version, [(self.topic, [Part(self.index, result)])]).pieces
        return (b"\0" if self._flexible else b"") + bytes(body)


class ProduceRun(Later):
    """Usual requests on their way to their replies: until all are committed, or the client's time is over."""

    __slots__ = ("_context", "_correlation_ids", "_usual")

    def __init__(self, usual: UsualProduce, context: RequestContext, correlation_ids: Sequence[int]) -> None:
        super().__init__()
        self._usual = usual
        self._context = context
        self._correlation_ids = correlation_ids

    def done(self, result: RunResult) -> None:
        """The partition is done with all of them; after the time was over nobody listens."""
        if self.is_set:
            return
        errors = [outcome for outcome in result.outcomes if isinstance(outcome, LogboomError)]
        if self._usual.acks == 0:
            for error in errors:
                error_code(error)  # which takes its stack away
            self.set(Close(f"acks=0: {errors[0]}") if errors else None)
        elif not errors:
            self.set(self._usual.template.replies(self._correlation_ids, result))
        else:
            for error in errors:
                note_error(self._context, self._usual.topic, self._usual.index, error)
            self.set(b"".join(self._each(result)))

    def _each(self, result: RunResult) -> Iterator[bytes]:
        for correlation_id, outcome in zip(self._correlation_ids, result.outcomes, strict=True):
            if isinstance(outcome, LogboomError):
                reply = self._usual.failed_reply(outcome)
                yield _REPLY_HEAD.pack(len(reply) + 4, correlation_id) + reply
            else:
                yield self._usual.template.replies((correlation_id,), result._replace(outcomes=(outcome,)))

    def expire(self) -> None:
        """The client's time is over."""
        self.done(_NOWHERE._replace(outcomes=[too_late()] * len(self._correlation_ids)))


# --- the response, by hand (held against kio's reader in the tests) ------------------------------------------------

_REPLY_HEAD: Final = Struct(">ii")
_PART_V0: Final = Struct(">ihq")
_PART_V2: Final = Struct(">ihqq")
_PART_V5: Final = Struct(">ihqqq")
_NO_THROTTLE: Final = bytes(4)


class Part:
    """One partition of a request and what became of it."""

    __slots__ = ("index", "result")

    def __init__(self, index: int, result: AppendResult | LogboomError | None = None) -> None:
        self.index = index
        self.result = result


Topics = Sequence[tuple[Any, Sequence[Part]]]


def encode_response(version: int, topics: Topics) -> Encoded:
    """The body of a produce response."""
    flexible = version >= _FLEXIBLE
    out = bytearray(encoding.count(len(topics), flexible=flexible))
    for topic, parts in topics:
        out += encoding.uuid(topic) if version >= WITH_ID else encoding.string(topic, flexible=flexible)
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


def _part(version: int, part: Part) -> bytes:
    result = part.result
    assert result is not None
    if isinstance(result, LogboomError):
        code, base, time_ms, start, message = int(error_code(result)), -1, -1, -1, str(result) or None
    else:
        code, base, time_ms, start, message = 0, *result, None
    if version < 2:
        return _PART_V0.pack(part.index, code, base)
    if version < _WITH_START:
        return _PART_V2.pack(part.index, code, base, time_ms)
    head = _PART_V5.pack(part.index, code, base, time_ms, start)
    if version < 8:
        return head
    # No record errors one by one: a batch is taken or refused whole.
    if version == 8:
        return head + encoding.count(0, flexible=False) + encoding.nullable(message)
    return head + encoding.count(0, flexible=True) + encoding.compact_nullable(message) + b"\0"


class _Template:
    """The reply to a usual request whose records were taken: everything but the numbers, cut from a whole one."""

    __slots__ = ("_before", "_behind", "_layout", "_size_bytes", "_with_start")

    def __init__(self, version: int, topic: Any, index: int) -> None:
        taken = AppendResult(Offset(0), 0, Offset(0))
        (body,) = encode_response(version, [(topic, [Part(index, taken)])]).pieces
        flexible = version >= _FLEXIBLE
        names = encoding.uuid(topic) if version >= WITH_ID else encoding.string(topic, flexible=flexible)
        numbers_at = 2 * len(encoding.count(1, flexible=flexible)) + len(names) + 6
        self._with_start = version >= _WITH_START
        numbers = "qqq" if self._with_start else "qq"
        self._before = (b"\0" if flexible else b"") + bytes(body[:numbers_at])
        self._behind = bytes(body[numbers_at + 8 * len(numbers) :])
        self._layout = Struct(f">ii{len(self._before)}s{numbers}{len(self._behind)}s")
        self._size_bytes = self._layout.size - 4

    def replies(self, correlation_ids: Sequence[int], result: RunResult) -> bytes:
        """Whole replies, one behind the other, each with its length and head."""
        pack, size, before, behind = self._layout.pack, self._size_bytes, self._before, self._behind
        offsets, time_ms, start = result
        if self._with_start:
            return b"".join(
                [
                    pack(size, correlation_id, before, offset, time_ms, start, behind)
                    for correlation_id, offset in zip(correlation_ids, offsets, strict=True)
                ]
            )
        return b"".join(
            [
                pack(size, correlation_id, before, offset, time_ms, behind)
                for correlation_id, offset in zip(correlation_ids, offsets, strict=True)
            ]
        )
