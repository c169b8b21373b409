"""One event as an object decoded from its JSON form; its attributes are decoded on demand.

Knows the JSON form of events. Must not know where events come from or go.
"""

from typing import Any, Final

import msgspec


class EventRecord(msgspec.Struct, gc=False):
    """An event as `event.json` writes it; it holds nothing that could form a cycle. Times are RFC 3339 in UTC."""

    event_id: str
    source: str
    stream: str
    partition: int
    offset: int
    attributes: msgspec.Raw = msgspec.Raw(b"{}")
    time: str | None = None
    observed_time: str | None = None
    severity_number: int | None = None
    severity_text: str | None = None
    service: str | None = None
    host: str | None = None
    body: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    weight: float = 1.0


NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading JSON that is not an event raises."""

_ONE: Final = msgspec.json.Decoder(EventRecord)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def read_event(value: bytes) -> EventRecord:
    """The event of a record's value; one of `NOT_JSON` where it is none.

    Its attributes are not decoded: `attributes_of` may still raise one of `NOT_JSON`.
    """
    if not value.isascii():
        value.decode()  # msgspec does not check raw values
    return _ONE.decode(value)


def attributes_of(event: EventRecord) -> dict[str, Any]:
    """The attributes of an event as plain data; read again at each call. One of `NOT_JSON` where they are not objects,
    or have a number that Python cannot hold."""
    return _OBJECT.decode(event.attributes)
