"""Encodes and decodes Protocol Buffers messages, field by field.

The encoding is that of https://protobuf.dev/programming-guides/encoding. Pure. Must not know any message.
"""

from collections.abc import Iterator
from typing import Final

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MASK: Final = (1 << 64) - 1


def varint(number: int) -> bytes:
    """Encode a 64-bit integer; a negative one as its two's complement.

    >>> varint(300).hex()
    'ac02'
    """
    number &= _MASK
    if number < 0x80:
        return bytes((number,))
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def whole_field(field: int, number: int) -> bytes:
    """An integer field of a type without fixed length, or a boolean field."""
    return varint(field << 3 | _VARINT) + varint(number)


def fixed64_field(field: int, bits: bytes) -> bytes:
    """A field of eight bytes, little-endian."""
    return varint(field << 3 | _FIXED64) + bits


def bytes_field(field: int, data: bytes) -> bytes:
    """A field of bytes, or an embedded message."""
    return b"%b%b%b" % (varint(field << 3 | _BYTES), varint(len(data)), data)


def text_field(field: int, text: str) -> bytes:
    """A text field."""
    return bytes_field(field, text.encode("utf-8", errors="replace"))


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: integers, and bytes for all other types.

    :raises ValueError: the message is not complete.
    """
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        kind = key & 7
        if kind == _VARINT:
            number, position = _read_varint(message, position)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            length, position = _read_varint(message, position)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"a field of the unknown type {kind}")
        if position + length > len(message):
            raise ValueError("the message ends in the middle of a field")
        yield key >> 3, message[position : position + length]
        position += length


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(message) and shift < 70:
        byte = message[position]
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return number, position
        shift += 7
    raise ValueError("the message ends in the middle of a number")
