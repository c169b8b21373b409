"""Records that the broker makes of what other protocols brought: packed once, before their place in a batch is known.

A record has its offset delta in the middle, after its length. Everything after that delta is its content: key, value
and headers. Whoever has a message packs its content; whoever knows its place puts many contents into one batch. So a
message costs no object beside its bytes, and one that is left out costs the others nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final, cast

from logboom.base.errors import CorruptBatchError
from logboom.records.alike_contents import AlikeContents, contents_bytes
from logboom.records.columns import DELTAS, ONE_BYTE_DELTAS
from logboom.records.header import HEADER_BYTES
from logboom.records.record import seal_batch
from logboom.records.varint import MAX_LONG_BYTES, read_varint, varint

HeaderFields = Sequence[tuple[bytes, bytes | None]]
"""Names and values in their order; a name may be there more than once. Kafka wants names that are UTF-8."""

MESSAGE_ID: Final = b"Nats-Msg-Id"
"""The header that names a message, so that the same one sent again is not stored again."""

_NULL: Final = varint(-1)
_NO_KEY: Final = _NULL[0]
_FRAME_BYTES_MAX: Final = 5 + 2 + 5
"""Of a record beside its content: its length, attributes and timestamp delta, offset delta."""
_HEADS_MAX: Final = 8192
_DELTAS_OF_ONE_SIZE: Final = ((0, ONE_BYTE_DELTAS), (ONE_BYTE_DELTAS, len(DELTAS)))


class _Heads(dict[int, bytes]):
    """What stands before a record's offset delta, by the length of its content: length, attributes, and a timestamp
    delta of 0."""

    def __init__(self, delta_bytes: int) -> None:
        self._rest_bytes = 2 + delta_bytes

    def __missing__(self, content_bytes: int) -> bytes:
        head = varint(content_bytes + self._rest_bytes) + b"\0\0"
        if content_bytes < _HEADS_MAX:
            self[content_bytes] = head
        return head


_HEADS: Final = {size: _Heads(size) for size in range(1, 6)}


def record_content(key: bytes | None, value: bytes | None, headers: HeaderFields = ()) -> bytes:
    """A record from its key on.

    >>> record_content(None, b"v").hex(" ")
    '01 02 76 00'
    """
    parts = [
        _NULL if key is None else varint(len(key)) + key,
        _NULL if value is None else varint(len(value)) + value,
        varint(len(headers)),
    ]
    for name, content in headers:
        parts += (varint(len(name)), name, _NULL if content is None else varint(len(content)) + content)
    return b"".join(parts)


def has_key(content: bytes) -> bool:
    """Whether a record of this content has a key."""
    return content[0] != _NO_KEY


def batch_bytes_max(contents: Sequence[bytes]) -> int:
    """How large a batch of these can be at most."""
    return HEADER_BYTES + contents_bytes(contents) + _FRAME_BYTES_MAX * len(contents)


def batch_of(contents: Sequence[bytes], timestamp_ms: int) -> bytearray:
    """One batch, not compressed, of at least one record; all have the same timestamp."""
    alike = isinstance(contents, AlikeContents) and len(contents) <= len(DELTAS)
    pieces = _pieces_of_columns(cast("AlikeContents", contents)) if alike else _pieces_of(contents)
    return seal_batch(b"".join(pieces), len(contents), times_ms=(timestamp_ms, timestamp_ms))


def _pieces_of(contents: Sequence[bytes]) -> list[bytes]:
    """What the records are put together from."""
    pieces: list[bytes] = []
    for start, stop in _DELTAS_OF_ONE_SIZE:
        heads = _HEADS[len(DELTAS[start])]
        part = contents[start:stop]
        # Only as many deltas as there are records: to copy all 8,192 touches half a megabyte, most of a core's cache.
        deltas = DELTAS[start : start + len(part)]
        records = [b""] * (3 * len(part))
        # A column at a time, which takes half the time of record by record.
        records[::3] = map(heads.__getitem__, map(len, part))
        records[1::3] = deltas
        records[2::3] = part
        pieces += records
    for place in range(len(DELTAS), len(contents)):
        delta, content = varint(place), contents[place]
        pieces += (_HEADS[len(delta)][len(content)], delta, content)
    return pieces


def _pieces_of_columns(contents: AlikeContents) -> list[bytes]:
    """The same without a content of each record, in a third of the time. No more than there are `DELTAS`."""
    pieces: list[bytes] = []
    step = 2 + 2 * len(contents.columns)
    for start, end in _DELTAS_OF_ONE_SIZE:
        stop = min(end, len(contents))
        if start >= stop:
            break
        # What ends a record and what begins the next one are one piece.
        records = [contents.behind + _HEADS[len(DELTAS[start])][contents.content_bytes]] * (step * (stop - start))
        records[1::step] = DELTAS[start:stop]
        for place, (text, column) in enumerate(zip(contents.texts, contents.columns, strict=True)):
            records[2 + 2 * place :: step] = [text] * (stop - start)
            records[3 + 2 * place :: step] = column[start:stop]
        pieces += records
    pieces[0] = pieces[0][len(contents.behind) :]
    pieces.append(contents.behind)
    return pieces


def header_values(body: bytes, count: int, name: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Of the plain records of a batch those with a header of this name: offset delta, timestamp delta, and the value of
    the first such header, where it is not null.

    Records without it cost next to nothing. CorruptBatchError where a length contradicts another.
    """
    needle = varint(len(name)) + name
    found = body.find(needle)
    at = 0
    try:
        for _ in range(count):
            if found < 0:
                return
            length, start = read_varint(body, at)
            at = start + length
            if length < 0:
                raise CorruptBatchError("A record has a negative length.")
            if found < at:
                timestamp_delta, delta, value = _header_value(body, start, name)
                if value is not None:
                    yield delta, timestamp_delta, value
                found = body.find(needle, at)
    except IndexError:
        raise CorruptBatchError("A record reaches past the end of its batch.") from None


def _header_value(body: bytes, at: int, name: bytes) -> tuple[int, int, bytes | None]:
    """Timestamp delta, offset delta and the header's value, of the record whose attributes are at `at`."""
    timestamp_delta, at = read_varint(body, at + 1, MAX_LONG_BYTES)
    delta, at = read_varint(body, at)
    for _ in ("key", "value"):
        length, at = read_varint(body, at)
        at += max(length, 0)
    headers, at = read_varint(body, at)
    for _ in range(headers):
        length, at = read_varint(body, at)
        is_wanted = body[at : at + length] == name
        length, at = read_varint(body, at + length)
        if is_wanted and length >= 0:
            return timestamp_delta, delta, body[at : at + length]
        at += max(length, 0)
    return timestamp_delta, delta, None
