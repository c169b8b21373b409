"""Encodes metrics as in `opentelemetry/proto/metrics/v1/metrics.proto`. Pure.

A point covers only its own window: temporality DELTA. Counts of `aggregate` are weighted, so they may not be integers.
A sum can hold that; counts of histograms and summaries are rounded, because the protocol requires integers.
"""

import struct
from typing import Final

from logboom.pipeline.sinks.bulk.target import UnfitError
from logboom.pipeline.sinks.http.protobuf import bytes_field, fixed64_field, text_field, whole_field
from logboom.pipeline.sinks.metric_points import Point
from logboom.pipeline.sinks.otlp.records import key_value

_DELTA: Final = whole_field(2, 1)
_NANOS_PER_MS: Final = 1_000_000
_NANOS_MAX: Final = (1 << 64) - 1


def metric(point: Point) -> bytes:
    """Encode a Metric with one data point.

    :raises UnfitError: its time is out of the range of nanoseconds since 1970.
    """
    name = text_field(1, point.name)
    when = _times(point)
    if point.kind in ("count", "sum"):
        # Counts are monotonic. Sums of values may contain negative ones.
        is_monotonic = whole_field(3, 1) if point.kind == "count" else b""
        return name + bytes_field(7, bytes_field(1, _number(point, when)) + _DELTA + is_monotonic)
    if point.kind == "histogram":
        return name + bytes_field(9, bytes_field(1, _histogram(point, when)) + _DELTA)
    if point.kind == "quantiles":
        return name + bytes_field(11, bytes_field(1, _summary(point, when)))
    return name + bytes_field(5, bytes_field(1, _number(point, when)))


def _times(point: Point) -> bytes:
    times = b""
    for field, milliseconds in ((2, point.start_ms), (3, point.end_ms)):
        if milliseconds is None:
            continue
        nanos = milliseconds * _NANOS_PER_MS
        if not 0 <= nanos <= _NANOS_MAX:
            raise UnfitError("the metric's time is outside of OTLP's range (1970 to 2554)")
        times += fixed64_field(field, nanos.to_bytes(8, "little"))
    return times


def _number(point: Point, when: bytes) -> bytes:
    return when + _double(4, point.value) + _attributes(7, point)


def _histogram(point: Point, when: bytes) -> bytes:
    counts = [round(count) for count in point.buckets]
    parts = [when, _whole(4, sum(counts))]
    if point.sum is not None:
        parts.append(_double(5, point.sum))
    parts.append(bytes_field(6, b"".join(count.to_bytes(8, "little") for count in counts)))
    parts.append(bytes_field(7, struct.pack(f"<{len(point.bounds)}d", *point.bounds)))
    return b"".join((*parts, _attributes(9, point)))


def _summary(point: Point, when: bytes) -> bytes:
    parts = [when, _whole(4, round(point.value)), _double(5, point.sum or 0.0)]
    for quantile, value in point.quantiles.items():
        parts.append(bytes_field(6, _double(1, float(quantile)) + _double(2, value)))
    return b"".join((*parts, _attributes(7, point)))


def _attributes(field: int, point: Point) -> bytes:
    return b"".join(key_value(field, name, value) for name, value in point.labels.items())


def _double(field: int, value: float) -> bytes:
    return fixed64_field(field, struct.pack("<d", value))


def _whole(field: int, number: int) -> bytes:
    return fixed64_field(field, number.to_bytes(8, "little"))
