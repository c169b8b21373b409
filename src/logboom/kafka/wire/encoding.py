"""Pieces of Kafka's encoding for responses that are encoded by hand: Produce, Fetch, and parts of Metadata.

The tests compare the results with kio's reader. Everything else is encoded by `wire.writing`.
"""

from struct import Struct
from uuid import UUID

_I16 = Struct(">h")
_I32 = Struct(">i")
_NO_UUID = bytes(16)


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: str, *, flexible: bool) -> bytes:
    """A string that is not null."""
    raw = value.encode()
    return (uvarint(len(raw) + 1) if flexible else _I16.pack(len(raw))) + raw


def compact_nullable(value: str | None) -> bytes:
    """A nullable string of a flexible version."""
    return b"\0" if value is None else string(value, flexible=True)


def nullable(value: str | None) -> bytes:
    """A nullable string of a version that is not flexible."""
    return b"\xff\xff" if value is None else string(value, flexible=False)


def count(value: int, *, flexible: bool) -> bytes:
    """The count of an array that is not null."""
    return uvarint(value + 1) if flexible else _I32.pack(value)


def uuid(value: UUID | None) -> bytes:
    """An id; zeros stand for none."""
    return _NO_UUID if value is None else value.bytes


def tagged(tag: int, data: bytes) -> bytes:
    """Tagged fields that are this one alone."""
    return uvarint(1) + uvarint(tag) + uvarint(len(data)) + data
