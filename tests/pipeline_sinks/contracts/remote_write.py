"""A server that takes Prometheus's remote write, as "Prometheus Remote-Write 1.0" demands of senders: snappy's block
format, labels in order and with names that are names, samples of a series in the order of time; 400 for a request that
breaks this, and for a sample that is older than the newest of its series (the message is Prometheus's own)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import cramjam
from tests.pipeline_sinks.server import Contract, Reply, Request

KEYS = "type: prometheus_remote_write, url: '{url}/api/v1/write', token_env: TOKEN, batch: {{max_events: 50}}"
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class RemoteWrite(Contract):
    def __init__(self) -> None:
        super().__init__()
        self.series: dict[tuple[tuple[str, str], ...], dict[int, float]] = {}

    def handle(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {self.secret}":
            return Reply(401, b"no such token")
        assert (request.method, request.path) == ("POST", "/api/v1/write")
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert headers["content-encoding"] == "snappy"
        assert headers["content-type"] == "application/x-protobuf"
        assert headers["x-prometheus-remote-write-version"] == "0.1.0"
        written = list(_series(bytes(cramjam.snappy.decompress_raw(request.body))))
        for labels, time_ms, value in written:
            names = [name for name, _ in labels]
            assert names == sorted(set(names))
            assert all(_LABEL.fullmatch(name) for name in names)
            assert _METRIC.fullmatch(dict(labels)["__name__"])
            assert all(text for _, text in labels)
            known = self.series.get(labels, {})
            if any(time_ms < other for other in known) or known.get(time_ms, value) != value:
                return Reply(400, b"out of order sample")
        for labels, time_ms, value in written:
            self.series.setdefault(labels, {})[time_ms] = value
        return Reply(204)

    def value(self, **labels: str) -> dict[int, float]:
        """The samples of one series by time."""
        return self.series[tuple(sorted({"__name__": labels.pop("name"), **labels}.items()))]


def _series(message: bytes) -> Iterator[tuple[tuple[tuple[str, str], ...], int, float]]:
    for number, one in _fields(message):
        assert number == 1
        assert isinstance(one, bytes)
        labels: list[tuple[str, str]] = []
        samples: list[tuple[int, float]] = []
        for part, data in _fields(one):
            assert isinstance(data, bytes)
            inner = dict(_fields(data))
            if part == 1:
                labels.append((_text(inner[1]), _text(inner[2])))
            else:
                (value,) = struct.unpack("<d", bytes(inner[1]))
                time_ms = inner[2]
                assert isinstance(time_ms, int)
                samples.append((time_ms, value))
        for time_ms, value in samples:
            yield tuple(labels), time_ms, value


def _text(data: bytes | int) -> str:
    assert isinstance(data, bytes)
    return data.decode()


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 == 0:
            whole, at = _varint(message, at)
            yield key >> 3, whole
            continue
        size = 8
        if key & 7 == 2:
            size, at = _varint(message, at)
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at
