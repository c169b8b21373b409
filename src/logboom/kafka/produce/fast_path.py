"""Produce requests that match an earlier one: read by comparing bytes, appended as one run, answered from a template.

The requests of a client for one partition differ in their correlation id and their records alone. So the first of them
is parsed, and `template_of` keeps the bytes it begins with; a request that begins with the same bytes, and whose
records end where the request ends, means the same. Anything else goes the general way (`produce.general`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.broker.partition.replica import RunResult
from logboom.kafka.errors import error_code
from logboom.kafka.produce.appending import (
    WITH_ZSTD,
    current_leaders,
    is_zstd,
    report_error,
    timed_out,
    writable_partition,
)
from logboom.kafka.produce.response import FLEXIBLE, WITH_ID, PartitionProduce, ResponseTemplate, encode_response
from logboom.kafka.replies import Close, DeferredReply
from logboom.kafka.wire import encoding
from logboom.kafka.wire.messages import as_milliseconds
from logboom.kafka.wire.reading import MalformedError, read_uvarint

if TYPE_CHECKING:
    from logboom.kafka.handlers.context import RequestContext

_PREFIX_START: Final = 8
"""Position after the correlation id."""
_I32: Final = Struct(">i")
_ACKS: Final = Struct(">hi")
_RESPONSE_HEAD: Final = Struct(">ii")
_NO_TAGS: Final = bytes(3)
"""What follows the records of a flexible request: no tagged fields of the partition, the topic, the request."""
_NO_RESULT: Final = RunResult((), -1, Offset(-1))


def template_of(context: RequestContext, frame: bytearray, position: int, request: Any) -> ProduceTemplate | None:
    """The template of a request; None unless it is one batch for one partition and nothing else.

    `position` is where its body begins. The template's bytes are encoded from the parsed request and then compared with
    the frame, so that a request that was read by other rules than these never becomes a template.
    """
    if request.transactional_id is not None or request.acks not in (-1, 0, 1) or len(request.topic_data) != 1:
        return None
    (topic,) = request.topic_data
    if len(topic.partition_data) != 1 or not topic.partition_data[0].records:
        return None
    (data,) = topic.partition_data
    version = context.api_version
    flexible = version >= FLEXIBLE
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
    template = ProduceTemplate(version, bytes(frame[:position]) + body, name, data.index, request.acks, timeout_ms)
    payload = template.payload_of(frame)
    return template if payload is not None and len(payload) == len(data.records) else None


class ProduceTemplate:
    """What the produce requests of one client for one partition have in common. Immutable; connections share it."""

    __slots__ = (
        "_flexible",
        "_head",
        "_timeout_s",
        "acks",
        "index",
        "prefix",
        "prefix_end",
        "response",
        "topic",
        "version",
    )

    def __init__(self, version: int, begin: bytes, topic: Any, index: int, acks: int, timeout_ms: int) -> None:
        """`begin` is the request up to the length of its records."""
        self._head = begin[:4]
        self._flexible = version >= FLEXIBLE
        self.topic = topic
        self.index = index
        self._timeout_s = timeout_ms / 1000
        self.version = version
        self.acks = acks
        self.prefix = begin[_PREFIX_START:]
        self.prefix_end = len(begin)
        self.response = ResponseTemplate(version, topic, index)

    def payload_of(self, frame: bytearray) -> memoryview | None:
        """The records of a request that matches; None otherwise."""
        start, end = self.prefix_end, len(frame)
        if not (end > start + 4 and frame.startswith(self.prefix, _PREFIX_START) and frame.startswith(self._head)):
            return None
        if self._flexible:
            # A compact length is written plus one: 0 is null, 1 is empty. One and two bytes, which is what small
            # batches have, are decoded here.
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
        # Clients from before version 7 do not know zstd: the general way refuses it.
        return None if not payload or (self.version < WITH_ZSTD and is_zstd(payload)) else payload

    def start(
        self, context: RequestContext, correlation_ids: Sequence[int], payloads: Sequence[memoryview]
    ) -> DeferredReply:
        """Append the records of a run of requests. Their responses are delivered together, as bytes."""
        run = ProduceRun(self, context, correlation_ids)
        try:
            partition = writable_partition(context, self.topic, self.index)
        except LogboomError as error:
            run.done(_NO_RESULT._replace(outcomes=[error] * len(payloads)))
            return run
        context.server.metrics.produced_bytes += sum(map(len, payloads))
        partition.append_run(payloads, acks=self.acks, done=run.done)
        if not run.is_set:
            run.expires_at_s = context.broker.clock.monotonic_s() + self._timeout_s
            run.on_expired = run.expire
        return run

    def error_response(self, context: RequestContext, error: LogboomError) -> bytes:
        """The response, after its correlation id, to a request whose records were refused."""
        part = PartitionProduce(self.index, error)
        (body,) = encode_response(self.version, [(self.topic, [part])], current_leaders(context)).pieces
        return (b"\0" if self._flexible else b"") + bytes(body)


class ProduceRun(DeferredReply):
    """A run of requests until all of them are committed, or their timeout is over."""

    __slots__ = ("_context", "_correlation_ids", "_template")

    def __init__(self, template: ProduceTemplate, context: RequestContext, correlation_ids: Sequence[int]) -> None:
        super().__init__()
        self._template = template
        self._context = context
        self._correlation_ids = correlation_ids

    def done(self, result: RunResult) -> None:
        """The partition has the results of all requests. A result after the timeout is ignored."""
        if self.is_set:
            return
        errors = [outcome for outcome in result.outcomes if isinstance(outcome, LogboomError)]
        if self._template.acks == 0:
            for error in errors:
                error_code(error)  # drops its traceback, and the request's bytes with it
            self.set(Close(f"acks=0: {errors[0]}") if errors else None)
        elif not errors:
            self.set(self._template.response.encode(self._correlation_ids, result))
        else:
            for error in errors:
                report_error(self._context, self._template.topic, self._template.index, error)
            self.set(b"".join(self._each(result)))

    def _each(self, result: RunResult) -> Iterator[bytes]:
        for correlation_id, outcome in zip(self._correlation_ids, result.outcomes, strict=True):
            if isinstance(outcome, LogboomError):
                response = self._template.error_response(self._context, outcome)
                yield _RESPONSE_HEAD.pack(len(response) + 4, correlation_id) + response
            else:
                yield self._template.response.encode((correlation_id,), result._replace(outcomes=(outcome,)))

    def expire(self) -> None:
        """The timeout is over."""
        self.done(_NO_RESULT._replace(outcomes=[timed_out()] * len(self._correlation_ids)))
