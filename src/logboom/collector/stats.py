"""What a collector says of itself: a snapshot of plain numbers, as one line and as Prometheus metrics."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import start_http_server
from prometheus_client.registry import Collector

from logboom.base.settings import split_address
from logboom.collector.delivery import Delivery
from logboom.collector.files import FileInput
from logboom.collector.intake import BufferedInput


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNumbers:
    """Of one input of files."""

    files: int
    handles: int
    lag_bytes: int
    rotations: int
    truncations: int
    bytes_lost: int
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferNumbers:
    """Of one input with a disk buffer."""

    lines: int
    bytes: int
    waiting_lines: int
    fill_bytes: int
    max_bytes: int
    dropped: int
    damaged: int
    cut: int
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Of the whole collector."""

    seconds: float
    records: int
    bytes: int
    refused: int
    in_flight_records: int
    in_flight_bytes: int
    waiting: bool
    producers: int
    checkpoint_errors: int
    files: dict[str, FileNumbers]
    buffers: dict[str, BufferNumbers]

    def line(self) -> dict[str, Any]:
        """The one-line summary, as fields."""
        fields: dict[str, Any] = {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 1),
            "in_flight": self.in_flight_records,
            "refused": self.refused,
            "dropped": sum(one.dropped for one in self.buffers.values()),
            "damaged": sum(one.damaged for one in self.buffers.values()),
            "lag_bytes": sum(one.lag_bytes for one in self.files.values()),
            "buffered_lines": sum(one.waiting_lines for one in self.buffers.values()),
            "bytes_lost": sum(one.bytes_lost for one in self.files.values()),
        }
        return fields


def take_snapshot(
    delivery: Delivery,
    files: Mapping[str, FileInput],
    buffered_inputs: Mapping[str, BufferedInput],
    *,
    seconds: float,
    checkpoint_errors: int,
) -> Snapshot:
    """The numbers as they are now; `seconds` since the collector started. From any thread."""
    return Snapshot(
        seconds=seconds,
        records=delivery.counters.records,
        bytes=delivery.counters.bytes,
        refused=delivery.counters.refused,
        in_flight_records=delivery.in_flight_records,
        in_flight_bytes=delivery.in_flight_bytes,
        waiting=delivery.waiting,
        producers=delivery.counters.producers,
        checkpoint_errors=checkpoint_errors,
        files={name: _file_numbers(one) for name, one in files.items()},
        buffers={name: _buffer_numbers(one) for name, one in buffered_inputs.items()},
    )


def _file_numbers(files: FileInput) -> FileNumbers:
    return FileNumbers(
        files=files.files_watched,
        handles=files.handles_open,
        lag_bytes=files.lag_bytes,
        rotations=files.counters.rotations,
        truncations=files.counters.truncations,
        bytes_lost=files.counters.bytes_lost,
        errors=files.counters.errors,
    )


def _buffer_numbers(buffered: BufferedInput) -> BufferNumbers:
    return BufferNumbers(
        lines=buffered.lines,
        bytes=buffered.bytes,
        waiting_lines=buffered.buffer.lines_waiting,
        fill_bytes=buffered.buffer.fill_bytes,
        max_bytes=buffered.buffer.max_bytes,
        dropped=buffered.dropped,
        damaged=buffered.buffer.lines_damaged,
        cut=buffered.cut,
        errors=buffered.errors,
    )


_FILE_METRICS = (
    ("lag_bytes", GaugeMetricFamily, "Bytes seen in files and not acknowledged yet."),
    ("files", GaugeMetricFamily, "Files that are followed."),
    ("handles", GaugeMetricFamily, "Open file handles."),
    ("rotations", CounterMetricFamily, "Files that were renamed, replaced or deleted."),
    ("truncations", CounterMetricFamily, "Files that were truncated in place."),
    ("bytes_lost", CounterMetricFamily, "Bytes that were truncated away before they were read."),
    ("errors", CounterMetricFamily, "Failures to open or read."),
)
_BUFFER_METRICS = (
    ("lines", CounterMetricFamily, "Lines taken."),
    ("bytes", CounterMetricFamily, "Bytes of lines accepted."),
    ("waiting_lines", GaugeMetricFamily, "Lines accepted and not acknowledged yet."),
    ("fill_bytes", GaugeMetricFamily, "Bytes of the buffer on disk."),
    ("max_bytes", GaugeMetricFamily, "The largest size of the buffer in bytes."),
    ("dropped", CounterMetricFamily, "Lines dropped because the buffer was full."),
    ("damaged", CounterMetricFamily, "Lines lost because the disk damaged the buffer."),
    ("cut", CounterMetricFamily, "Datagrams cut at max_line_bytes."),
    ("errors", CounterMetricFamily, "Failures of connections or of the buffer's disk."),
)
_OUTPUT_METRICS = (
    ("records", CounterMetricFamily, "Records acknowledged by the log."),
    ("bytes", CounterMetricFamily, "Bytes of lines acknowledged by the log."),
    ("refused", CounterMetricFamily, "Records that the broker refused as invalid or too large; skipped."),
    ("in_flight_records", GaugeMetricFamily, "Records in flight."),
    ("in_flight_bytes", GaugeMetricFamily, "Bytes of lines in flight."),
    ("waiting", GaugeMetricFamily, "1 while the output accepts nothing."),
    ("producers", CounterMetricFamily, "Producers created, including the first one."),
    ("checkpoint_errors", CounterMetricFamily, "Failures to save the positions."),
)


class CollectorMetrics(Collector):
    """A collector's numbers as Prometheus metrics."""

    def __init__(self, take: Callable[[], Snapshot]) -> None:
        self._take = take

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        snapshot = self._take()
        for name, family, text in _OUTPUT_METRICS:
            metric = family(f"logboom_collector_output_{name}", text)
            metric.add_metric([], getattr(snapshot, name))
            yield metric
        yield from _by_input("file", _FILE_METRICS, snapshot.files)
        yield from _by_input("buffer", _BUFFER_METRICS, snapshot.buffers)


def _by_input(prefix: str, metrics: Any, numbers: dict[str, Any]) -> Iterator[Metric]:
    for name, family, text in metrics:
        metric = family(f"logboom_collector_{prefix}_{name}", text, labels=["input"])
        for input_name, one in numbers.items():
            metric.add_metric([input_name], getattr(one, name))
        yield metric


def serve_metrics(take: Callable[[], Snapshot], address: str) -> str:
    """Answer /metrics from a thread, each time with a new snapshot; the address it listens on. OSError if it is
    taken."""
    host, port = split_address(address)
    registry = CollectorRegistry()
    registry.register(CollectorMetrics(take))
    every_interface = "0.0.0.0"  # noqa: S104  # what `:9600` asks for
    server, _thread = start_http_server(port, host or every_interface, registry)
    return f"{server.server_address[0]!s}:{server.server_address[1]}"
