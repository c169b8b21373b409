"""Zigzag variable-length integers as records carry them (protobuf's sint32 and sint64)."""

from typing import Final

from logboom.base.errors import CorruptBatchError

MAX_INT_BYTES: Final = 5
MAX_LONG_BYTES: Final = 10
CONTINUES: Final = 0x80
"""Set in each byte of a number but its last."""

_SMALL: Final = tuple(bytes((n,)) for n in range(128))


def read_varint(buffer: bytes, position: int, max_bytes: int = MAX_INT_BYTES) -> tuple[int, int]:
    """The signed number at `position` and the position after it.

    CorruptBatchError where it does not end within `max_bytes`, IndexError where the buffer does.

    >>> read_varint(bytes([0xC8, 0x01]), 0)
    (100, 2)
    """
    raw = buffer[position]
    if raw < 0x80:  # as nearly all are
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw = shift = 0
    for at in range(position, position + max_bytes):
        byte = buffer[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + 1
        shift += 7
    raise CorruptBatchError(f"A number in a record is longer than {max_bytes} bytes.")


def varint(value: int) -> bytes:
    """The bytes of a signed number of up to 64 bits.

    >>> varint(100).hex()
    'c801'
    """
    raw = (value << 1) ^ (value >> 63)
    if raw < 0x80:
        return _SMALL[raw]
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
