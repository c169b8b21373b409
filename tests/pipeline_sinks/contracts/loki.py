"""Loki's push API.

"Ingest logs" in "Loki HTTP API", `pkg/push/push.proto`, and what `pkg/distributor` and `pkg/ingester` do with an
entry: one with the stream, the time and the line of an entry that is there is dropped, one that breaks a limit is
left out and named in a 400 ("Max entry size", `max_line_size` of 256 KB) while the others are taken; 401 for a
tenant or credential that is none, 204 without a body for success.
"""

from __future__ import annotations

import cramjam
from tests.pipeline_sinks.server import Contract, Reply, Request, strict_json

from logboom.pipeline.sinks.http.protobuf import fields_of

KEYS = (
    "type: loki, url: '{url}', token_env: TOKEN, tenant: shop, batch: {{max_events: 50}}, "
    "labels: {{service: '{{service}}', team: shop}}, structured_metadata: {{trace_id: '{{trace_id}}'}}"
)
LINE_MAX = 256_000


class Loki(Contract):
    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, int, bytes], dict[str, str]] = {}
        self.last: dict[str, int] = {}

    def handle(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {self.secret}":
            return Reply(401, f"no such token: {request.headers.get('authorization')}".encode())
        assert request.headers["x-scope-orgid"] == "shop"
        assert (request.path, request.headers["content-type"]) == ("/loki/api/v1/push", "application/x-protobuf")
        fault = ""
        for field, stream in fields_of(bytes(cramjam.snappy.decompress_raw(request.body))):
            assert field == 1
            assert isinstance(stream, bytes)
            parts = list(fields_of(stream))
            labels = next(value for number, value in parts if number == 1)
            assert isinstance(labels, bytes)
            entries = [_entry(value) for number, value in parts if number == 2 and isinstance(value, bytes)]
            assert [nanos for nanos, _, _ in entries] == sorted(nanos for nanos, _, _ in entries)
            for nanos, line, metadata in entries:
                fault = self._take(labels.decode(), nanos, line, metadata) or fault
        return Reply(400, fault.encode()) if fault else Reply(204)

    def _take(self, labels: str, nanos: int, line: bytes, metadata: dict[str, str]) -> str | None:
        event = strict_json(line)
        if "event_id" not in event:  # a document of its own
            event = {"body": line.decode(), "event_id": line.decode()}
        if len(line) > LINE_MAX:
            return f"Max entry size '{LINE_MAX}' bytes exceeded for stream '{labels}'"
        if event.get("body") == "poison":
            return f"entry for stream '{labels}' has timestamp too old"
        if (labels, nanos, line) not in self.entries:
            self.entries[labels, nanos, line] = metadata
            self.events[event["event_id"]] += 1
        return None


def _entry(message: bytes) -> tuple[int, bytes, dict[str, str]]:
    nanos, line, metadata = 0, b"", {}
    for field, value in fields_of(message):
        if field == 1 and isinstance(value, bytes):
            time = dict(fields_of(value))
            seconds = int(time.get(1, 0))
            nanos = (seconds - (1 << 64) if seconds >> 63 else seconds) * 1_000_000_000 + int(time.get(2, 0))
            assert -(1 << 63) <= nanos < 1 << 63, "what Loki counts in"
        elif field == 2 and isinstance(value, bytes):
            line = value
        elif isinstance(value, bytes):
            pair = dict(fields_of(value))
            name, text = pair[1], pair[2]
            assert isinstance(name, bytes)
            assert isinstance(text, bytes)
            metadata[name.decode()] = text.decode()
    return nanos, line, metadata
