"""Encodes log records as in `opentelemetry/proto/logs/v1/logs.proto` and `common/v1/common.proto`. Pure."""

import struct
from typing import Any, Final

from logboom.pipeline.event.record import EventRecord, attributes_of
from logboom.pipeline.sinks.http.protobuf import bytes_field, fixed64_field, text_field, whole_field
from logboom.pipeline.sinks.http.times import microseconds

_NANOS_MAX: Final = (1 << 64) - 1
_INT_MAX: Final = 1 << 63


def log_record(event: EventRecord) -> bytes:
    """Encode a LogRecord. Fields that it has no place for become attributes."""
    parts: list[bytes] = []
    attributes = attributes_of(event)
    for field, time, name in ((1, event.time, "logboom.time"), (11, event.observed_time, "logboom.observed_time")):
        if time is None:
            continue
        nanos = microseconds(time) * 1_000
        if 0 <= nanos <= _NANOS_MAX:
            parts.append(fixed64_field(field, nanos.to_bytes(8, "little")))
        else:
            attributes[name] = time
    if event.severity_number:
        parts.append(whole_field(2, event.severity_number))
    if event.severity_text is not None:
        parts.append(text_field(3, event.severity_text))
    if event.body is not None:
        parts.append(bytes_field(5, any_value(event.body)))
    attributes["logboom.event_id"] = event.event_id
    if event.weight != 1.0:
        attributes["logboom.weight"] = event.weight
    parts += [key_value(6, name, value) for name, value in attributes.items()]
    for field, digits, length in ((9, event.trace_id, 32), (10, event.span_id, 16)):
        if digits is not None and len(digits) == length:
            parts.append(bytes_field(field, bytes.fromhex(digits)))
    return b"".join(parts)


def key_value(field: int, key: str, value: Any) -> bytes:
    """Encode a KeyValue as a field of a message."""
    return bytes_field(field, text_field(1, key) + bytes_field(2, any_value(value)))


def any_value(value: Any) -> bytes:
    """Encode an AnyValue. Null is an empty one, and integers of more than 64 bits are texts."""
    if isinstance(value, str):
        return text_field(1, value)
    if isinstance(value, bool):
        return whole_field(2, int(value))
    if isinstance(value, int):
        return whole_field(3, value) if -_INT_MAX <= value < _INT_MAX else text_field(1, str(value))
    if isinstance(value, float):
        return fixed64_field(4, struct.pack("<d", value))
    if isinstance(value, list):
        return bytes_field(5, b"".join(bytes_field(1, any_value(each)) for each in value))
    if isinstance(value, dict):
        return bytes_field(6, b"".join(key_value(1, key, each) for key, each in value.items()))
    return b""
