"""The sink `prometheus_remote_write`: sends the metrics of `aggregate` as samples of time series.

The protocol is "Prometheus Remote-Write 1.0" (prometheus.io/docs/specs/prw/remote_write_spec): a `WriteRequest` in
Protocol Buffers, in Snappy's block format. Prometheus, Mimir, Cortex, Thanos, VictoriaMetrics and Grafana Cloud accept
it. Samples of a series must arrive in the order of time, so the sink sends one request at a time. A repeated newest
sample of a series counts once.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import cramjam
from pydantic import Field

from logboom.base.errors import LogboomError
from logboom.base.units import MIB, SECOND_MS
from logboom.pipeline.event.record import EventRecord
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.bulk.target import BulkResponse, Encoded, Item, TryAgainError
from logboom.pipeline.sinks.http.authorization import AuthorizedModel, AuthorizedSink, authorization_of
from logboom.pipeline.sinks.http.model import RequestLimits, http_fields
from logboom.pipeline.sinks.http.protobuf import bytes_field, fixed64_field, text_field, whole_field
from logboom.pipeline.sinks.http.target import HttpTarget
from logboom.pipeline.sinks.metric_points import Point, cumulative, point_of

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_:]")
_NOT_IN_LABELS: Final = re.compile(r"[^a-zA-Z0-9_]")
_HEADERS: Final[Mapping[str, str]] = {
    "content-type": "application/x-protobuf",
    "content-encoding": "snappy",
    "x-prometheus-remote-write-version": "0.1.0",
}
_LIMITS: Final = RequestLimits(max_bytes=MIB, max_events=2_000, concurrency=1)
Series = tuple[str, Mapping[str, str], float]
"""Name, labels and value."""


class RemoteWriteModel(AuthorizedModel):
    """Samples by Prometheus's remote write."""

    type: Literal["prometheus_remote_write"]
    url: str
    """URL for writes: `http://prometheus:9090/api/v1/write`, `https://mimir/api/v1/push`."""

    prefix: str = ""
    """Prefix of each metric's name."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of all series. A label that the metric itself has is kept."""


class RemoteWriteSink(AuthorizedSink, frozen=True, kw_only=True, tag="prometheus_remote_write"):
    """Samples by Prometheus's remote write."""

    prefix: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def open_target(self, secrets: Mapping[str, str]) -> RemoteWriteTarget:
        """The server."""
        return RemoteWriteTarget(self, self.client(secrets, self.authorization(secrets)))


class RemoteWriteTarget(HttpTarget):
    """A server that takes remote writes."""

    def __init__(self, sink: RemoteWriteSink, client: HttpClient) -> None:
        super().__init__(client)
        self._sink = sink

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode the series of one metric, sorted by the end of its window."""
        point = point_of(event)
        labels = {**dict(self._sink.labels), **point.labels}
        series = series_of(point, f"{self._sink.prefix}{point.name}", labels)
        payload = b"".join([bytes_field(1, _series(*one, point.end_ms)) for one in series])
        return Encoded(payload, order=point.end_ms)

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one write for each window, so that no write has two samples of a series: such a write can be repeated,
        while one with more samples would then be out of order. If the time of a request is over before all windows are
        sent, the rest is reported as not sent; otherwise the whole request would be retried, with the windows that were
        accepted."""
        ends_by = time.monotonic() + self._sink.sending.timeout_ms / SECOND_MS
        windows: dict[int, list[int]] = {}
        for index, item in enumerate(items):
            windows.setdefault(item.order, []).append(index)
        left = sorted(windows)
        for number, window in enumerate(left):
            if number > 0 and time.monotonic() > ends_by:
                return BulkResponse(again=_of_windows(windows, left[number:], "waits for those before it"), pause_s=0.0)
            try:
                self._write(b"".join([items[index].payload for index in windows[window]]))
            except LogboomError as error:
                if number == 0:
                    raise
                again = _of_windows(windows, left[number:], str(error))
                overloaded = isinstance(error, TryAgainError) and error.is_overload
                pause_s = error.pause_s if isinstance(error, TryAgainError) else None
                return BulkResponse(again=again, is_overload=overloaded, pause_s=pause_s)
        return BulkResponse()

    def probe(self) -> None:
        """Send a write without series."""
        self._write(b"")

    def _write(self, request: bytes) -> None:
        body = bytes(cramjam.snappy.compress_raw(request))
        self.check(self.client.request("POST", "", body, _HEADERS))


def _of_windows(windows: Mapping[int, list[int]], some: Sequence[int], reason: str) -> dict[int, str]:
    return {index: reason for window in some for index in windows[window]}


def series_of(point: Point, name: str, labels: Mapping[str, str]) -> Iterator[Series]:
    """The series of a metric; those of a histogram or summary have the names that Prometheus's own clients use."""
    if point.kind not in ("histogram", "quantiles"):
        yield name, labels, point.value
        return
    for bound, count in cumulative(point):
        yield f"{name}_bucket", {**labels, "le": "+Inf" if bound == float("inf") else f"{bound:g}"}, count
    for quantile, value in point.quantiles.items():
        yield name, {**labels, "quantile": quantile}, value
    if point.sum is not None:
        yield f"{name}_sum", labels, point.sum
    yield f"{name}_count", labels, point.value


def _series(name: str, labels: Mapping[str, str], value: float, time_ms: int) -> bytes:
    """Encode a `TimeSeries`: sorted labels and one sample."""
    named = {"__name__": _begun(_NOT_IN_NAMES.sub("_", name))}
    for label, text in labels.items():
        key = label_name(label)
        while key in named:
            key += "_"
        named[key] = text
    pairs = [bytes_field(1, text_field(1, key) + text_field(2, text)) for key, text in sorted(named.items())]
    sample = fixed64_field(1, struct.pack("<d", value)) + whole_field(2, time_ms)
    return b"".join(pairs) + bytes_field(2, sample)


def label_name(text: str) -> str:
    """A valid label name for a text.

    >>> label_name("http.status"), label_name("2xx"), label_name("__name__")
    ('http_status', '_2xx', 'name__')
    """
    name = _NOT_IN_LABELS.sub("_", text)
    if name.startswith("__"):  # names that begin with __ are reserved by Prometheus
        name = name.lstrip("_")
    return _begun(name)


def _begun(name: str) -> str:
    return f"_{name}" if not name or name[0].isdigit() else name


def _compile(model: RemoteWriteModel, common: CommonFields, report: SinkReport) -> RemoteWriteSink:
    if model.compression is not None:
        report.problem("compression", "has no meaning here: remote write is always compressed with snappy")
    for name in model.labels:
        if label_name(name) != name:
            report.problem("labels", f"{name!r} is not a valid name of a label; {label_name(name)!r} would be one")
    if model.concurrency not in (None, 1):
        report.problem("concurrency", "has to be 1: samples of a series come in the order of time")
    return RemoteWriteSink(
        **http_fields(model, common, report, model.url, _LIMITS, compression="none"),
        **authorization_of(model, report),
        prefix=model.prefix,
        labels=tuple(model.labels.items()),
    )


SINK: Final = bulk_sink_type("prometheus_remote_write", RemoteWriteModel, RemoteWriteSink, _compile)
