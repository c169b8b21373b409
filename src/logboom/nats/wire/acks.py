"""Answers to publishers, as JetStream gives them, so that `js.publish()` of any client of NATS understands them.

    {"stream":"orders","seq":42}
    {"stream":"orders","seq":42,"duplicate":true}
    {"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 41"},"stream":"orders","seq":0}

`seq` is the record's offset + 1 in its partition: JetStream's sequences begin at 1. Codes and descriptions are those of
nats-server's errors.json.
"""

import json
from typing import Final

from logboom.base.errors import (
    InvalidRecordError,
    InvalidStreamNameError,
    LogboomError,
    MessageTooLargeError,
    OverloadedError,
    RetriableStorageError,
    StorageError,
    UnknownStreamError,
    WrongLastMessageIdError,
    WrongLastOffsetError,
)
from logboom.nats.wire.errors import MessageRefusedError, WrongStreamError

_OF_SERVERS: Final = b"$"
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_FAILED: Final = 500
_UNAVAILABLE: Final = 503
_SHOWN_BYTES_MAX: Final = 128
"""Of a message id. A publisher may have one that is too long for a server, which ends the connection that says it."""


def ack(stream: str, offset: int, duplicate: bool = False) -> bytes:
    """The message is stored at an offset; with `duplicate` it was there before.

    >>> ack("orders", 41)
    b'{"stream":"orders","seq":42}'
    """
    # The name of a stream has no character that JSON would escape.
    also = ',"duplicate":true' if duplicate else ""
    return f'{{"stream":"{stream}","seq":{offset + 1}{also}}}'.encode()


def answerable(reply: bytes) -> bytes:
    """A reply subject, empty where nothing is sent to it: those that begin with `$` are for servers of NATS. Who may
    not publish on `$JS.API.STREAM.DELETE.orders` could have this broker do it, which perhaps may.

    >>> answerable(b"_INBOX.a"), answerable(b"$JS.API.STREAM.DELETE.orders")
    (b'_INBOX.a', b'')
    """
    return b"" if reply.startswith(_OF_SERVERS) else reply


def error_ack(stream: str, error: LogboomError) -> bytes:
    """The message is not stored, or it is not known whether it is."""
    code, number, description = _described(error)
    told = {"code": code, "err_code": number, "description": description}
    return json.dumps({"error": told, "stream": stream, "seq": 0}, separators=(",", ":")).encode()


def _described(error: LogboomError) -> tuple[int, int, str]:
    match error:
        case WrongLastOffsetError():
            return _BAD_REQUEST, 10071, f"wrong last sequence: {error.end}"
        case WrongLastMessageIdError():
            last = "" if error.last is None else error.last[:_SHOWN_BYTES_MAX].decode("utf-8", "replace")
            return _BAD_REQUEST, 10070, f"wrong last msg ID: {last}"
        case WrongStreamError():
            return error.code, error.err_code, "expected stream does not match"
        case MessageRefusedError():
            return error.code, error.err_code, str(error)
        case MessageTooLargeError():
            return _BAD_REQUEST, 10054, "message size exceeds maximum allowed"
        case UnknownStreamError():
            return _NOT_FOUND, 10059, "stream not found"
        case InvalidRecordError() | InvalidStreamNameError():
            return _BAD_REQUEST, 10003, f"bad request: {error}"
        case OverloadedError():
            return _UNAVAILABLE, 10023, f"insufficient resources: {error}"
        case RetriableStorageError():
            return _FAILED, 10047, f"insufficient storage resources available: {error}"
        case StorageError():
            return _UNAVAILABLE, 10077, str(error)
    return _UNAVAILABLE, 10008, f"JetStream system temporarily unavailable: {error}"
