"""What is stored of a request to a service, and of its reply. Pure.

Both are records with the reply subject as their key, so that a stream keeps the two in one partition, in order, and a
compacted one keeps the last reply of each. Their last headers are

    logboom-kind       request, or reply
    logboom-took-us    of a reply: microseconds since its request arrived here
    logboom-reply      the reply subject; none if a request wants no answer
    logboom-subject    the subject of the request
"""

from typing import Final

from logboom.nats.wire.errors import HeaderError
from logboom.nats.wire.headers import Fields, read_fields
from logboom.nats.wire.messages import REPLY, SUBJECT
from logboom.records.contents import record_content

KIND: Final = b"logboom-kind"
REQUEST: Final = b"request"
ANSWER: Final = b"reply"
TOOK_US: Final = b"logboom-took-us"
DAMAGED: Final = b"logboom-damaged-headers"
"""Holds a header block that cannot be read: it is not for the one who records to refuse a message."""


def request_content(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> bytes:
    """The record of a request, from its key on. `reply` is empty where nobody waits for an answer."""
    return _content(subject, reply, block, payload, (KIND, REQUEST))


def reply_content(subject: bytes, reply: bytes, block: bytes, payload: bytes, took_us: int) -> bytes:
    """The record of a reply, from its key on. `subject`: of its request."""
    return _content(subject, reply, block, payload, (KIND, ANSWER), (TOOK_US, b"%d" % took_us))


def _content(subject: bytes, reply: bytes, block: bytes, payload: bytes, *also: tuple[bytes, bytes]) -> bytes:
    fields: list[tuple[bytes, bytes | None]] = [*_fields(block), *also]
    if reply:
        fields.append((REPLY, reply))
    fields.append((SUBJECT, subject))
    return record_content(reply or None, payload, fields)


def _fields(block: bytes) -> Fields:
    try:
        return read_fields(block)
    except HeaderError:
        return [(DAMAGED, block)]
