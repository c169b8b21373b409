"""Pieces of Kafka's encoding for the two responses that are written by hand, Produce and Fetch.

Their bytes are held against kio's reader in the tests. Everything else goes through kio's writers.
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
    """A string that is there."""
    raw = value.encode()
    return (uvarint(len(raw) + 1) if flexible else _I16.pack(len(raw))) + raw


def compact_nullable(value: str | None) -> bytes:
    """A string of a flexible version that may be absent."""
    return b"\0" if value is None else string(value, flexible=True)


def nullable(value: str | None) -> bytes:
    """A string of an older version that may be absent."""
    return b"\xff\xff" if value is None else string(value, flexible=False)


def count(value: int, *, flexible: bool) -> bytes:
    """The count of an array that is there."""
    return uvarint(value + 1) if flexible else _I32.pack(value)


def uuid(value: UUID | None) -> bytes:
    """An id, zeros where there is none."""
    return _NO_UUID if value is None else value.bytes
