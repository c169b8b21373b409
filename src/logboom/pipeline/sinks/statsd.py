"""The sink `statsd`: sends the metrics of `aggregate` as lines of statsd over UDP or TCP.

The lines are those of github.com/statsd/statsd (docs/metric_types.md), optionally with the tags of DogStatsD. The
protocol has no answers: data that a server does not receive is lost without an error.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from pydantic import Field

from logboom.base.settings import Address, split_address
from logboom.base.units import KIB
from logboom.pipeline.event.record import EventRecord
from logboom.pipeline.plan.locations import is_host
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.model import BulkModel, BulkSink, sending_of
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.bulk.target import BulkResponse, Encoded, Item, TryAgainError, UnfitError
from logboom.pipeline.sinks.metric_points import Point, cumulative, point_of

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]")
_NOT_IN_TAGS: Final = re.compile(r"[|#,\s\x00-\x1f]")
_COUNTERS: Final = ("count", "sum")
_DATAGRAM_MAX_BYTES: Final = 65_507
"""Payload limit of UDP over IPv4 (RFC 768, RFC 791)."""


class StatsdModel(BulkModel):
    """Lines of statsd."""

    type: Literal["statsd"]
    address: Address
    """`HOST:PORT`; statsd's usual port is 8125."""

    protocol: Literal["udp", "tcp"] = "udp"
    prefix: str = ""
    """Prefix of each metric's name."""

    tags: Literal["datadog", "none"] = "datadog"
    """Labels as tags of DogStatsD (`|#service:cart`), or as parts of the name (`requests.cart`)."""

    packet_bytes: int = Field(default=1_432, ge=64, le=64 * KIB)
    """Size limit of a datagram; a longer line gets its own."""


class StatsdSink(BulkSink, frozen=True, kw_only=True, tag="statsd"):
    """Lines of statsd."""

    address: str
    protocol: Literal["udp", "tcp"] = "udp"
    prefix: str = ""
    tags: Literal["datadog", "none"] = "datadog"
    packet_bytes: int = 1_432

    def open_target(self, secrets: Mapping[str, str]) -> StatsdTarget:
        """The server."""
        return StatsdTarget(self)


class StatsdTarget:
    """A socket to one server."""

    def __init__(self, sink: StatsdSink) -> None:
        self._sink = sink
        self._host, self._port = split_address(sink.address)
        self._timeout_s = sink.sending.timeout_ms / 1_000
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode the lines of one metric."""
        lines = [f"{line}\n".encode(errors="replace") for line in self._lines(point_of(event))]
        longest = max(map(len, lines))
        if self._sink.protocol == "udp" and longest > _DATAGRAM_MAX_BYTES:
            raise UnfitError(f"a line takes {longest} bytes, more than the {_DATAGRAM_MAX_BYTES} of a datagram")
        return Encoded(b"".join(lines))

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send as few datagrams as possible, or one TCP write."""
        payloads = [item.payload for item in items]
        try:
            with self._lock:
                own = self._connected()
                if self._sink.protocol == "tcp":
                    own.sendall(b"".join(payloads))
                else:
                    for packet in _packets(payloads, self._sink.packet_bytes):
                        own.send(packet)
        except OSError as error:
            self.close()
            raise TryAgainError(f"statsd at {self._sink.address}: {error.strerror or error}") from error
        return BulkResponse()

    def probe(self) -> None:
        """Check that the name can be resolved and, for TCP, that the server accepts connections."""
        try:
            with self._lock:
                self._connected()
        except OSError as error:
            raise TryAgainError(f"statsd at {self._sink.address}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the connection."""
        own, self._socket = self._socket, None
        if own is not None:
            with contextlib.suppress(OSError):  # not connected any more
                own.shutdown(socket.SHUT_RDWR)
            own.close()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            kind = socket.SOCK_STREAM if self._sink.protocol == "tcp" else socket.SOCK_DGRAM
            family, _, _, _, address = socket.getaddrinfo(self._host, self._port, type=kind)[0]
            own = socket.socket(family, kind)
            try:
                own.settimeout(self._timeout_s)
                own.connect(address)
            except OSError:
                own.close()
                raise
            self._socket = own
        return self._socket

    def _lines(self, point: Point) -> Iterator[str]:
        name = f"{self._sink.prefix}{point.name}"
        if point.kind in _COUNTERS:
            yield self._line(name, point.value, "c", point.labels)
        elif point.kind not in ("histogram", "quantiles"):
            yield from self._gauge(name, point.value, point.labels)
        else:
            yield self._line(f"{name}.count", point.value, "c", point.labels)
            if point.sum is not None:
                yield self._line(f"{name}.sum", point.sum, "c", point.labels)
            for bound, count in cumulative(point):
                yield self._line(f"{name}.bucket", count, "c", {**point.labels, "le": f"{bound:g}"})
            for quantile, value in point.quantiles.items():
                yield from self._gauge(f"{name}.p{float(quantile) * 100:g}", value, point.labels)

    def _gauge(self, name: str, value: float, labels: Mapping[str, str]) -> Iterator[str]:
        if value < 0:  # a sign means "change by", so the gauge is set to 0 first
            yield self._line(name, 0.0, "g", labels)
        yield self._line(name, value, "g", labels)

    def _line(self, name: str, value: float, kind: str, labels: Mapping[str, str]) -> str:
        if not math.isfinite(value):
            raise UnfitError(f"statsd has no number for {value}")
        number = f"{value:.6f}".rstrip("0").rstrip(".")
        if self._sink.tags == "none":
            name = ".".join([name, *(text.replace(".", "_") for _, text in sorted(labels.items()))])
            return f"{_NOT_IN_NAMES.sub('_', name)}:{number}|{kind}"
        tags = ",".join(f"{_tag(key).replace(':', '_')}:{_tag(text)}" for key, text in sorted(labels.items()))
        return f"{_NOT_IN_NAMES.sub('_', name)}:{number}|{kind}" + (f"|#{tags}" if tags else "")


def _tag(text: str) -> str:
    return _NOT_IN_TAGS.sub("_", text)


def _packets(payloads: Sequence[bytes], limit: int) -> Iterator[bytes]:
    """Whole lines in datagrams of at most this many bytes."""
    packet: list[bytes] = []
    size = 0
    for line in b"".join(payloads).splitlines(keepends=True):
        if packet and size + len(line) > limit:
            yield b"".join(packet)
            packet, size = [], 0
        packet.append(line)
        size += len(line)
    if packet:
        yield b"".join(packet)


def _compile(model: StatsdModel, common: CommonFields, report: SinkReport) -> StatsdSink:
    host, port = split_address(model.address)
    if not is_host(host) or port == 0:
        report.problem("address", f"{model.address!r} is not an address of a server such as 127.0.0.1:8125")
    if model.protocol == "udp" and model.packet_bytes > _DATAGRAM_MAX_BYTES:
        report.problem(
            "packet_bytes", f"should be at most {_DATAGRAM_MAX_BYTES}, which is what a datagram of UDP holds"
        )
    if _NOT_IN_NAMES.search(model.prefix):
        report.problem("prefix", f"{model.prefix!r} should be letters, digits, '.', '_' and '-'")
    return StatsdSink(
        **common,
        sending=sending_of(model, max_bytes=256 * KIB, max_events=2_000, concurrency=1),
        address=model.address,
        protocol=model.protocol,
        prefix=model.prefix,
        tags=model.tags,
        packet_bytes=model.packet_bytes,
    )


SINK: Final = bulk_sink_type("statsd", StatsdModel, StatsdSink, _compile)
