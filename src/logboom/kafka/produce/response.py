"""Produce responses, encoded by hand. The tests compare every version with kio's reader."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from logboom.base.errors import InvalidRecordError, LogboomError
from logboom.base.ids import Offset
from logboom.broker.partition.replica import AppendResult
from logboom.kafka.errors import error_code
from logboom.kafka.wire import encoding
from logboom.kafka.wire.encoded import EncodedResponse

if TYPE_CHECKING:
    from logboom.broker.partition.replica import RunResult
    from logboom.kafka.cluster.current_leader import CurrentLeaders

API_KEY: Final = 0
WITH_ID: Final = 13
"""The first version that names topics by their id."""
FLEXIBLE: Final = 9
"""The first version with compact lengths and tagged fields (KIP-482)."""

LEADER_TAG: Final = 0
"""Of a partition's current leader (KIP-951)."""
_WITH_LEADERS: Final = 10
_WITH_LOG_START: Final = 5
_PART_V0: Final = Struct(">ihq")
_PART_V2: Final = Struct(">ihqq")
_PART_V5: Final = Struct(">ihqqq")
_INDEX: Final = Struct(">i")
_NO_THROTTLE: Final = bytes(4)


class PartitionProduce:
    """One partition of a request, and its result once there is one."""

    __slots__ = ("index", "result")

    def __init__(self, index: int, result: AppendResult | LogboomError | None = None) -> None:
        self.index = index
        self.result = result


Topics = Sequence[tuple[Any, Sequence[PartitionProduce]]]
"""(name or id of the topic, its partitions), in the order of the request."""


def encode_response(version: int, topics: Topics, leaders: CurrentLeaders | None = None) -> EncodedResponse:
    """The response body; every partition must have its result. Versions that can tell `leaders` with refusals."""
    flexible = version >= FLEXIBLE
    if version < _WITH_LEADERS:
        leaders = None
    out = bytearray(encoding.count(len(topics), flexible=flexible))
    for topic, parts in topics:
        out += encoding.uuid(topic) if version >= WITH_ID else encoding.string(topic, flexible=flexible)
        out += encoding.count(len(parts), flexible=flexible)
        for part in parts:
            out += _part(version, part)
            if flexible:
                out += _tags(topic, part, leaders)
        if flexible:
            out += b"\0"
    throttle_at = len(out) if version >= 1 else -1
    if version >= 1:
        out += _NO_THROTTLE
    if flexible:
        out += b"\0" if leaders is None else leaders.endpoints()
    return EncodedResponse((out,), throttle_at)


def _tags(topic: Any, part: PartitionProduce, leaders: CurrentLeaders | None) -> bytes:
    if leaders is None or not isinstance(part.result, LogboomError):
        return b"\0"
    return leaders.tags(topic, part.index, part.result)


def _part(version: int, part: PartitionProduce) -> bytes:
    result = part.result
    assert result is not None
    if isinstance(result, LogboomError):
        code, base, time_ms, start, message = int(error_code(result)), -1, -1, -1, str(result) or None
    else:
        code, base, time_ms, start, message = 0, *result, None
    if version < 2:
        return _PART_V0.pack(part.index, code, base)
    if version < _WITH_LOG_START:
        return _PART_V2.pack(part.index, code, base, time_ms)
    head = _PART_V5.pack(part.index, code, base, time_ms, start)
    if version < 8:
        return head
    indexes: Sequence[int] = ()
    messages: Sequence[str | None] = ()
    if isinstance(result, InvalidRecordError):
        indexes = result.record_indexes
        messages = result.record_messages or [message] * len(indexes)
    return head + _record_errors(indexes, messages, message, flexible=version >= FLEXIBLE)


def _record_errors(
    indexes: Sequence[int], messages: Sequence[str | None], message: str | None, *, flexible: bool
) -> bytes:
    """The records for which a batch was refused, each with its message, and the message of the batch (KIP-467)."""
    encode = encoding.compact_nullable if flexible else encoding.nullable
    end = b"\0" if flexible else b""
    errors = [_INDEX.pack(one) + encode(text) + end for one, text in zip(indexes, messages, strict=True)]
    return encoding.count(len(indexes), flexible=flexible) + b"".join(errors) + encode(message)


class ResponseTemplate:
    """The response to a request for one partition that was appended: all but the numbers, cut from an encoded one."""

    __slots__ = ("_before", "_behind", "_layout", "_size_bytes", "_with_log_start")

    def __init__(self, version: int, topic: Any, index: int) -> None:
        appended = AppendResult(Offset(0), 0, Offset(0))
        (body,) = encode_response(version, [(topic, [PartitionProduce(index, appended)])]).pieces
        flexible = version >= FLEXIBLE
        names = encoding.uuid(topic) if version >= WITH_ID else encoding.string(topic, flexible=flexible)
        # In front of the numbers: the counts of topics and partitions, the topic, the partition and the error code.
        numbers_at = 2 * len(encoding.count(1, flexible=flexible)) + len(names) + 6
        self._with_log_start = version >= _WITH_LOG_START
        numbers = "qqq" if self._with_log_start else "qq"
        self._before = (b"\0" if flexible else b"") + bytes(body[:numbers_at])
        self._behind = bytes(body[numbers_at + 8 * len(numbers) :])
        self._layout = Struct(f">ii{len(self._before)}s{numbers}{len(self._behind)}s")
        self._size_bytes = self._layout.size - 4

    def encode(self, correlation_ids: Sequence[int], result: RunResult) -> bytes:
        """Whole responses, one after the other, each with its length and header."""
        pack, size, before, behind = self._layout.pack, self._size_bytes, self._before, self._behind
        offsets, time_ms, start = result
        if self._with_log_start:
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
