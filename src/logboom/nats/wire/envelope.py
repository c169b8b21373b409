"""Liftbridge's envelope, in which its clients publish on NATS: reading it, and acks in the form that they understand.

    magic B9 0E 43 B4 | version 0 | header length | flags | kind of message | CRC-32C, if flag 1 | protobuf

(Liftbridge's envelope protocol; the messages are those of liftbridge-api's api.proto.) The magic number was chosen so
that no text and no known file begins with it. Bytes that begin with it and are no envelope are a plain message, as in
Liftbridge. If the checksum flag is set they cannot be one: what does not fit then was damaged on its way.

Of the protobuf messages six fields are read and eight written. This module does that itself: it is shorter than the
description that a library needs, and it reads untrusted bytes only by slicing.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from logboom.base.errors import LogboomError, MessageTooLargeError, WrongLastOffsetError
from logboom.base.ids import Offset
from logboom.nats.wire.errors import DamagedEnvelopeError

MAGIC: Final = b"\xb9\x0e\x43\xb4"
HEADERS_MAX: Final = 1_024
ANSWERED_BYTES_MAX: Final = 1_024
"""Of an ack inbox and of a correlation id, which the ack repeats. A server ends the connection of whoever publishes on
a subject of more than 4 KiB, or more than its `max_payload`: here that would be this broker."""
_VERSION: Final = 0
_HEADER_BYTES: Final = 8
_CRC_BYTES: Final = 4
_HAS_CRC: Final = 1
_PUBLISH: Final = 0
_ACK: Final = 1
_VARINT_BYTES_MAX: Final = 10
_BYTES: Final = 2
"""The wire type of what has a length."""
_FIXED: Final = {1: 8, 5: 4}
"""Wire types of a fixed size, which no field here has."""


class AckPolicy(IntEnum):
    """When the publisher wants its ack."""

    LEADER = 0
    ALL = 1
    NONE = 2


class AckError(IntEnum):
    """Why a message was not stored."""

    OK = 0
    UNKNOWN = 1
    INCORRECT_OFFSET = 2
    TOO_LARGE = 3


class Envelope(NamedTuple):
    """A message as a Liftbridge client publishes it."""

    key: bytes | None
    value: bytes
    headers: list[tuple[bytes, bytes]]
    """In their order on the wire; names are UTF-8."""
    ack_inbox: bytes
    correlation_id: bytes
    ack_policy: AckPolicy


class _MalformedError(Exception):
    """Bytes that are no protobuf message of this kind."""


def read_envelope(payload: bytes) -> Envelope | None:
    """The envelope that a payload is; None where it only resembles one, or not even that.

    Raises DamagedEnvelopeError where it has a checksum and that, or what it is of, is wrong.
    """
    if not payload.startswith(MAGIC) or len(payload) < _HEADER_BYTES:
        return None
    version, header_bytes, flags, kind = payload[4:_HEADER_BYTES]
    if version != _VERSION or kind != _PUBLISH or not _HEADER_BYTES <= header_bytes <= len(payload):
        return None
    has_crc = flags & _HAS_CRC and header_bytes == _HEADER_BYTES + _CRC_BYTES
    body = payload[header_bytes:]
    if has_crc and crc32c(body) != int.from_bytes(payload[_HEADER_BYTES:header_bytes], "big"):
        raise DamagedEnvelopeError("bad request: the checksum of an envelope is wrong")
    if flags & _HAS_CRC and not has_crc:
        return None
    try:
        return _message(body)
    except _MalformedError as fault:
        if has_crc:
            raise DamagedEnvelopeError(f"bad request: an envelope holds no message: {fault}") from None
        return None


def _message(body: bytes) -> Envelope:
    key, value, inbox, correlation, policy = None, b"", b"", b"", AckPolicy.LEADER
    headers: list[tuple[bytes, bytes]] = []
    at = 0
    while at < len(body):
        number, content, at = _field(body, at)
        match number, content:
            case 2, bytes():
                key = content
            case 3, bytes():
                value = content
            case 9, bytes():
                headers.append(_header(content))
                if len(headers) > HEADERS_MAX:
                    raise _MalformedError(f"it has more than {HEADERS_MAX} headers")
            case 10, bytes():
                inbox = _subject(content)
            case 11, bytes():
                correlation = _text(_bounded(content, "a correlation id"))
            case 12, int():
                if content > AckPolicy.NONE:
                    raise _MalformedError(f"there is no ack policy {content}")
                policy = AckPolicy(content)
            case ((2 | 3 | 9 | 10 | 11 | 12), _):
                raise _MalformedError(f"field {number} is of another type")
    return Envelope(key, value, headers, inbox, correlation, policy)


def _header(entry: bytes) -> tuple[bytes, bytes]:
    """An entry of the map of headers: its key is field 1, its value field 2."""
    name = value = b""
    at = 0
    while at < len(entry):
        number, content, at = _field(entry, at)
        if number == 1 and isinstance(content, bytes):
            name = _text(content)
        elif number == 2 and isinstance(content, bytes):
            value = content
    return name, value


def _text(content: bytes) -> bytes:
    try:
        content.decode()
    except UnicodeDecodeError:
        raise _MalformedError("a text is not UTF-8") from None
    return content


def _subject(content: bytes) -> bytes:
    """A subject that is answered on: with a space or a line break in it, the answer would be a command of the sender's,
    on the connection of this broker and with its rights."""
    if content and content.split() != [content]:
        raise _MalformedError("an ack inbox is no subject")
    return _text(_bounded(content, "an ack inbox"))


def _bounded(content: bytes, what: str) -> bytes:
    if len(content) > ANSWERED_BYTES_MAX:
        raise _MalformedError(f"{what} has more than {ANSWERED_BYTES_MAX} bytes")
    return content


def _field(body: bytes, at: int) -> tuple[int, int | bytes, int]:
    """Number and content of the field at a position, and where the next one is."""
    tag, at = _varint(body, at)
    number, kind = tag >> 3, tag & 7
    if not number:
        raise _MalformedError("there is no field 0")
    if kind == 0:
        content, at = _varint(body, at)
        return number, content, at
    if kind == _BYTES:
        length, at = _varint(body, at)
    elif kind in _FIXED:
        length = _FIXED[kind]
    else:
        raise _MalformedError(f"there is no wire type {kind}")
    end = at + length
    if end > len(body):
        raise _MalformedError("a field reaches past the end")
    return number, body[at:end] if kind == _BYTES else 0, end


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(at, min(at + _VARINT_BYTES_MAX, len(body))):
        byte = body[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, place + 1
        shift += 7
    raise _MalformedError("a number does not end")


# --- acks -------------------------------------------------------------------------------------------------------


class Sealed(NamedTuple):
    """A message that came in an envelope, until its outcome is known."""

    envelope: Envelope
    subject: bytes
    received_ns: int
    """When it came, in nanoseconds since 1970."""

    def ack(self, stream: str, outcome: Offset | LogboomError, now_ns: int) -> bytes:
        """What is sent to the envelope's ack inbox: the offset of the message, or in what way it was refused."""
        error = _error_of(outcome) if isinstance(outcome, LogboomError) else AckError.OK
        body = b"".join(
            (
                _packed(1, stream.encode()),
                _packed(2, self.subject),
                _packed(3, self.subject),
                _number(4, 0 if isinstance(outcome, LogboomError) else outcome),
                _packed(5, self.envelope.ack_inbox),
                _packed(6, self.envelope.correlation_id),
                _number(7, self.envelope.ack_policy),
                _number(8, self.received_ns),
                _number(9, now_ns if error is AckError.OK else 0),
                _number(10, error),
            )
        )
        return MAGIC + bytes((_VERSION, _HEADER_BYTES, 0, _ACK)) + body


def _error_of(error: LogboomError) -> AckError:
    match error:
        case MessageTooLargeError():
            return AckError.TOO_LARGE
        case WrongLastOffsetError():
            return AckError.INCORRECT_OFFSET
    return AckError.UNKNOWN


def _packed(number: int, content: bytes) -> bytes:
    return _unsigned(number << 3 | _BYTES) + _unsigned(len(content)) + content if content else b""


def _number(number: int, value: int) -> bytes:
    return _unsigned(number << 3) + _unsigned(value) if value else b""


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
