"""Kafka's primitive types, read with every length checked against the bytes that are left.

Knows the encoding of numbers, strings and byte arrays, not what they mean.
"""

import struct
from typing import Final

from logboom.groups.errors import GroupRecordError

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_VARINT_BYTES_MAX: Final = 5


class GroupRecordReader:
    """A cursor over untrusted bytes. Raises GroupRecordError instead of reading beyond their end."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def remaining_bytes(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self._position

    def raw(self, length: int) -> bytes:
        """The next `length` bytes."""
        if not 0 <= length <= self.remaining_bytes:
            raise GroupRecordError(f"{length} bytes needed at byte {self._position}, {self.remaining_bytes} are left")
        start = self._position
        self._position = start + length
        return self._data[start : self._position]

    def i16(self) -> int:
        """A signed 16-bit number."""
        return int(_I16.unpack(self.raw(2))[0])

    def i32(self) -> int:
        """A signed 32-bit number."""
        return int(_I32.unpack(self.raw(4))[0])

    def i64(self) -> int:
        """A signed 64-bit number."""
        return int(_I64.unpack(self.raw(8))[0])

    def uvarint(self) -> int:
        """An unsigned variable-length number of at most 32 bits."""
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise GroupRecordError("varint of more than 5 bytes")

    def string(self, *, flexible: bool) -> str:
        """A string that must not be null."""
        value = self.nullable_string(flexible=flexible)
        if value is None:
            raise GroupRecordError("null for a string that cannot be null")
        return value

    def nullable_string(self, *, flexible: bool) -> str | None:
        """A string or null."""
        length = self.uvarint() - 1 if flexible else self.i16()
        if length == -1:
            return None
        try:
            return self.raw(length).decode()
        except UnicodeDecodeError:
            raise GroupRecordError("string that is not UTF-8") from None

    def byte_array(self, *, flexible: bool) -> bytes:
        """A byte array that must not be null."""
        return self.raw(self.uvarint() - 1 if flexible else self.i32())

    def count(self, item_bytes_min: int, *, flexible: bool) -> int:
        """Length of an array, checked against the bytes that are left: each item takes at least `item_bytes_min`."""
        count = self.uvarint() - 1 if flexible else self.i32()
        if not 0 <= count * item_bytes_min <= self.remaining_bytes:
            raise GroupRecordError(f"{count} items claimed, {self.remaining_bytes} bytes are left")
        return count

    def skip_tags(self) -> None:
        """Skip tagged fields (KIP-482), which newer writers may add."""
        count = self.uvarint()
        if count * 2 > self.remaining_bytes:
            raise GroupRecordError(f"{count} tagged fields claimed, {self.remaining_bytes} bytes are left")
        for _ in range(count):
            self.uvarint()
            self.raw(self.uvarint())


class Writer:
    """Collects values in Kafka's encoding of versions that are not flexible."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def i16(self, value: int) -> "Writer":
        """A signed 16-bit number."""
        self._buffer += _I16.pack(value)
        return self

    def i32(self, value: int) -> "Writer":
        """A signed 32-bit number."""
        self._buffer += _I32.pack(value)
        return self

    def i64(self, value: int) -> "Writer":
        """A signed 64-bit number."""
        self._buffer += _I64.pack(value)
        return self

    def string(self, value: str | None) -> "Writer":
        """A string or null."""
        if value is None:
            return self.i16(-1)
        encoded = value.encode()
        self.i16(len(encoded))
        self._buffer += encoded
        return self

    def byte_array(self, value: bytes) -> "Writer":
        """A byte array."""
        self.i32(len(value))
        self._buffer += value
        return self

    def to_bytes(self) -> bytes:
        """Everything that was written."""
        return bytes(self._buffer)
