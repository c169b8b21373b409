"""The messages between a follower and a leader: a header in msgpack, and the records behind it as they are.

The length of the header comes first, in four bytes. Arrays, not maps: a request may name ten thousand partitions. A
reader takes nothing for granted: what does not fit the types is InvalidRequestError.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from logboom.base.errors import InvalidRequestError
from logboom.base.ids import PartitionIndex, StreamId
from logboom.base.ports import Bytes
from logboom.broker.partition.replication_port import ReplicaKey

Message = TypeVar("Message")
_LENGTH: Final = Struct(">I")


class FetchItem(msgspec.Struct, frozen=True, array_like=True):
    """`following.Fetch`, of one partition."""

    stream: bytes
    index: int
    number: int
    epoch: int
    offset: int
    last_epoch: int
    durable_end: int
    partition_epoch: int = -1
    """The default is for followers of an earlier version: they stay outside the ISR until they are of this one."""
    heard: int = -1
    """-1 is for followers of an earlier version, which do not say it."""
    log_start: int = -1
    """The first offset of the follower's log; -1 as above."""


class FetchRequest(msgspec.Struct, frozen=True, array_like=True):
    """New fetches of a follower; those of the session that were not answered yet go on."""

    session: int
    begins: bool
    """Whether the session begins with this request."""
    broker_epoch: int
    max_wait_ms: int
    max_bytes: int
    """Of all records of the answer together; one partition's come however many bytes they are."""
    partition_max_bytes: int
    items: list[FetchItem]
    told: int
    """How many `DurableEnds` went out in this session before: a leader that has fewer of them has lost some."""
    observer: bool = False
    """Whether this session is for copies that observe, which a broker asks for apart from its replicas."""


class AnswerItem(msgspec.Struct, frozen=True, array_like=True):
    """`following.FetchAnswered`, of one partition."""

    stream: bytes
    index: int
    number: int
    high_watermark: int = 0
    log_start: int = 0
    size_bytes: int = 0
    """Of its records, which lie behind those of the items before it."""
    diverging: tuple[int, int] | None = None
    refusal: str = ""
    """Why the fetch was not served, for people; it is to be sent again, later."""


class AnswerHeader(msgspec.Struct, frozen=True, array_like=True):
    """What comes before the records."""

    items: Sequence[AnswerItem]
    left: Sequence[tuple[bytes, int]] = ()
    """To an observer: fetches of the session, by stream and index, for which there is news that has to wait. Of all
    others that are not answered there was none."""


class DurableEnd(msgspec.Struct, frozen=True, array_like=True):
    """`following.TellDurableEnd`, of one partition."""

    stream: bytes
    index: int
    number: int
    """Of the fetch beside which it is told."""
    epoch: int
    durable_end: int
    partition_epoch: int = -1
    log_start: int = -1
    """As in `FetchItem`."""


class DurableEnds(msgspec.Struct, frozen=True, array_like=True):
    """How far a follower's logs are synced, and where they begin."""

    session: int
    broker_epoch: int
    ends: Sequence[DurableEnd]


_encoder: Final = msgspec.msgpack.Encoder()
_request_decoder: Final = msgspec.msgpack.Decoder(FetchRequest)
_answer_decoder: Final = msgspec.msgpack.Decoder(AnswerHeader)
_ends_decoder: Final = msgspec.msgpack.Decoder(DurableEnds)


def key_of(stream: bytes, index: int) -> ReplicaKey:
    """The partition that an item names. Raises InvalidRequestError."""
    if len(stream) != 16:
        raise InvalidRequestError("a partition is named by a stream id of another length than 16 bytes")
    return StreamId(UUID(bytes=stream)), PartitionIndex(index)


def encode_request(request: FetchRequest) -> list[Bytes]:
    """The body of a FETCH frame."""
    return [_encoder.encode(request)]


def decode_request(body: memoryview) -> FetchRequest:
    """Raises InvalidRequestError."""
    return _decoded(_request_decoder, body)


def encode_answer(answer: AnswerHeader, records: Sequence[Bytes]) -> list[Bytes]:
    """The answer to a FETCH frame; `records` are those of its items, in their order.

    What decides something is all in the first buffer: of the others nobody proves that they arrive as they were sent.
    """
    header = _encoder.encode(answer)
    return [_LENGTH.pack(len(header)) + header, *records]


def decode_answer(body: memoryview) -> tuple[list[tuple[AnswerItem, memoryview]], Sequence[ReplicaKey]]:
    """The items of an answer, each with its records, and what is left. Raises InvalidRequestError."""
    if len(body) < _LENGTH.size:
        raise InvalidRequestError("the answer to a fetch ends before its header")
    (length,) = _LENGTH.unpack_from(body)
    position = _LENGTH.size + length
    found = []
    header = _decoded(_answer_decoder, body[_LENGTH.size : position])
    for item in header.items:
        end = position + item.size_bytes
        if not position <= end <= len(body):
            raise InvalidRequestError("the answer to a fetch ends inside its records")
        found.append((item, body[position:end]))
        position = end
    return found, [key_of(stream, index) for stream, index in header.left]


def encode_ends(ends: DurableEnds) -> list[Bytes]:
    """The body of a DURABLE_END frame."""
    return [_encoder.encode(ends)]


def decode_ends(body: memoryview) -> DurableEnds:
    """Raises InvalidRequestError."""
    return _decoded(_ends_decoder, body)


def _decoded(decoder: "msgspec.msgpack.Decoder[Message]", body: memoryview) -> Message:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidRequestError(f"a message of replication cannot be read: {error}") from None
