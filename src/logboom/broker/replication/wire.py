"""The messages between a follower and a leader: a header in msgpack, followed by the records as they are in the log.

The length of the header comes first, in four bytes. Arrays, not maps: a request may name ten thousand partitions. A
reader trusts nothing: what does not fit the types and their bounds is InvalidRequestError. The sender has the cluster's
key, but it may run another version, have damaged memory, or lie.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Annotated, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from logboom.base.errors import InvalidRequestError
from logboom.base.ids import StreamId
from logboom.base.ports import Bytes
from logboom.broker.partition.replication_port import StreamIdPartition

Message = TypeVar("Message")
ITEMS_MAX: Final = 100_000
"""Partitions that a message names: no cluster has more."""
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_CountOrNone: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
_Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
_Number32: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Bytes16: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_LENGTH: Final = Struct(">I")
_KEYS_KEPT_MAX: Final = 16_384
"""A few megabytes at most."""


class FetchItem(msgspec.Struct, frozen=True, array_like=True):
    """`following.Fetch`, of one partition."""

    stream: _Bytes16
    index: _Number32
    number: _Count
    epoch: _Epoch
    offset: _Count
    last_epoch: _Epoch
    durable_end: _Count
    partition_epoch: _Epoch = -1
    """The default is for followers of an earlier version: they stay outside the ISR until they are of this one."""
    last_answer: _CountOrNone = -1
    """-1 is for followers of an earlier version, which do not send it."""
    log_start: _CountOrNone = -1
    """The first offset of the follower's log; -1 as above."""
    lacks_room: bool = False
    """Whether its disk had no room for what it got last."""


class FetchRequest(msgspec.Struct, frozen=True, array_like=True):
    """New fetches of a follower; those of the session that are not answered yet continue."""

    session: int
    begins: bool
    """Whether the session begins with this request."""
    broker_epoch: _CountOrNone
    max_wait_ms: _Number32
    max_bytes: _Number32
    """The most bytes of records in the answer; the records of the first partition come whatever their size."""
    partition_max_bytes: _Number32
    items: Annotated[list[FetchItem], msgspec.Meta(max_length=ITEMS_MAX)]
    reports_sent: _Count
    """How many `DurableEnds` were sent in this session before: a leader that has received fewer has lost some."""
    observer: bool = False
    """Whether this session is for observers, which a broker fetches separately from its replicas."""
    takes_parts: bool = False
    """Whether answers may come in parts while the request waits, the last one empty. Followers of an earlier version
    take none."""


class AnswerItem(msgspec.Struct, frozen=True, array_like=True):
    """`following.FetchAnswered`, of one partition."""

    stream: _Bytes16
    index: _Number32
    number: _Count
    high_watermark: _Count = 0
    log_start: _Count = 0
    size_bytes: _Number32 = 0
    """The size of its records, which follow those of the items before it."""
    diverging: tuple[_Epoch, _Count] | None = None
    refusal: str = ""
    """Why the fetch was not served, for people; it is to be sent again, later."""
    offset: _CountOrNone = -1
    """The offset of the fetch when this answer was made; -1 from leaders of an earlier version, which answer it
    once."""
    stands: bool = False
    """Whether the fetch continues after its records."""
    start_is_known: bool = True
    """Whether the leader knows that what is below its log start was deleted. If not, `log_start` is above 0 only for a
    follower without records, which has to begin there."""


class AnswerHeader(msgspec.Struct, frozen=True, array_like=True):
    """What comes before the records."""

    items: Annotated[Sequence[AnswerItem], msgspec.Meta(max_length=ITEMS_MAX)]
    left: Annotated[Sequence[tuple[_Bytes16, _Number32]], msgspec.Meta(max_length=ITEMS_MAX)] = ()
    """To an observer: fetches of the session, by stream and index, for which something new has to wait. For all others
    that are not answered there was nothing."""


class DurableEnd(msgspec.Struct, frozen=True, array_like=True):
    """`following.ReportDurableEnd`, of one partition."""

    stream: _Bytes16
    index: _Number32
    number: _Count
    """The number of the fetch that was waiting at the leader when it was sent."""
    epoch: _Epoch
    durable_end: _Count
    partition_epoch: _Epoch = -1
    log_start: _CountOrNone = -1
    """As in `FetchItem`."""


class DurableEnds(msgspec.Struct, frozen=True, array_like=True):
    """How far a follower's logs are synced, and where they begin."""

    session: int
    broker_epoch: _CountOrNone
    ends: Annotated[Sequence[DurableEnd], msgspec.Meta(max_length=ITEMS_MAX)]


_encoder: Final = msgspec.msgpack.Encoder()
_request_decoder: Final = msgspec.msgpack.Decoder(FetchRequest)
_answer_decoder: Final = msgspec.msgpack.Decoder(AnswerHeader)
_ends_decoder: Final = msgspec.msgpack.Decoder(DurableEnds)


@lru_cache(maxsize=_KEYS_KEPT_MAX)
def key_of(stream: bytes, index: int) -> StreamIdPartition:
    """The partition that an item names. The same object each time, mostly: to make a UUID takes as long as to look for
    what is kept under it, and ids that are the same object need not be compared."""
    return StreamIdPartition(StreamId(UUID(bytes=stream)), index)


def encode_request(request: FetchRequest) -> list[Bytes]:
    """The body of a FETCH frame."""
    return [_encoder.encode(request)]


def decode_request(body: memoryview) -> FetchRequest:
    """Raises InvalidRequestError."""
    request = _decoded(_request_decoder, body)
    for one in request.items:
        if one.durable_end > one.offset:
            raise InvalidRequestError(
                f"a follower says that it has synced its log up to {one.durable_end}, and asks for what is at "
                f"{one.offset}"
            )
    return request


def encode_answer(answer: AnswerHeader, records: Sequence[Bytes]) -> list[Bytes]:
    """The answer to a FETCH frame; `records` are those of its items, in their order.

    Everything that decides something is in the first buffer, which is authenticated; the others are not.
    """
    header = _encoder.encode(answer)
    return [_LENGTH.pack(len(header)) + header, *records]


def decode_answer(body: memoryview) -> tuple[list[tuple[AnswerItem, memoryview]], Sequence[StreamIdPartition]]:
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
