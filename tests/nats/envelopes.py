"""Liftbridge's envelopes, written as its clients do, and its acks read: by protobuf's rules, apart from the product."""

import struct
from collections.abc import Iterator, Mapping

import crc32c


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes((value % 128 + 128,))
        value //= 128
    return out + bytes((value,))


def bytes_field(number: int, content: bytes) -> bytes:
    return varint(number * 8 + 2) + varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    return varint(number * 8) + varint(value)


def message(
    value: bytes = b"",
    *,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
    inbox: str = "",
    correlation: str = "",
    policy: int = 0,
) -> bytes:
    """A `Message` of liftbridge-api."""
    body = b"" if key is None else bytes_field(2, key)
    body += bytes_field(3, value) if value else b""
    for name, content in (headers or {}).items():
        body += bytes_field(9, bytes_field(1, name.encode()) + bytes_field(2, content))
    body += bytes_field(10, inbox.encode()) if inbox else b""
    body += bytes_field(11, correlation.encode()) if correlation else b""
    return body + (number_field(12, policy) if policy else b"")


def sealed(body: bytes, *, crc: bool = False, kind: int = 0) -> bytes:
    """Such a message in its envelope."""
    checksum = struct.pack(">I", crc32c.crc32c(body)) if crc else b""
    return struct.pack(">4sBBBB", b"\xb9\x0e\x43\xb4", 0, 8 + len(checksum), crc, kind) + checksum + body


def fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and contents of a protobuf message with varints and bytes alone."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value += (byte % 128) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(body):
        tag = number()
        if tag % 8 == 0:
            yield tag // 8, number()
        else:
            assert tag % 8 == 2
            length = number()
            yield tag // 8, body[at : at + length]
            at += length
