"""Loki's push API.

"Ingest logs" in "Loki HTTP API", `pkg/push/push.proto`, and what `pkg/distributor` and `pkg/ingester` do with an
entry: one with the stream, the time and the line of an entry that is there is dropped, one that breaks a limit is
left out and named in a 400 ("Max entry size", `max_line_size` of 256 KB) while the others are taken; 401 for a
tenant or credential that is none, 204 without a body for success; 260 with a sentence where `block_ingestion_until`
keeps everything out (`block_ingestion_status_code`).

"Query logs within a range of time": lines by stream, of the time from `start` up to `end`, at most `limit` of them in
the order of `direction`; a selector needs one matcher that does not match an empty text.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from urllib.parse import parse_qs, urlsplit

import cramjam
from tests.pipeline_sinks.server import Contract, Reply, Request, strict_json

from logboom.pipeline.sinks.http.protobuf import fields_of

KEYS = (
    "type: loki, url: '{url}', token_env: TOKEN, tenant: shop, batch: {{max_events: 50}}, "
    "labels: {{service: '{{service}}', team: shop}}, structured_metadata: {{trace_id: '{{trace_id}}'}}"
)
LINE_MAX = 256_000
LIMIT_MAX = 5_000
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)(=~|=)"((?:[^"\\]|\\.)*)"(?:, |$)')


class Loki(Contract):
    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, int, bytes], dict[str, str]] = {}
        self.last: dict[str, int] = {}
        self.blocked_for = 0
        """How many pushes are still kept out."""

    def handle(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {self.secret}":
            return Reply(401, f"no such token: {request.headers.get('authorization')}".encode())
        assert request.headers["x-scope-orgid"] == "shop"
        if request.method == "GET":
            return self._found(request.path)
        assert (request.path, request.headers["content-type"]) == ("/loki/api/v1/push", "application/x-protobuf")
        if self.blocked_for > 0:
            self.blocked_for -= 1
            return Reply(260, b"ingestion blocked for user shop until 2026-12-01T00:00:00Z")
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

    def _found(self, path: str) -> Reply:
        assert urlsplit(path).path == "/loki/api/v1/query_range"
        asked = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        matchers = _PAIR.findall(asked["query"].removeprefix("{").removesuffix("}"))
        if not any(not _matches(operator, text, "") for _, operator, text in matchers):
            return Reply(400, b"queries require at least one regexp or equality matcher that is not empty")
        start, end, limit = (int(asked[name]) for name in ("start", "end", "limit"))
        assert limit <= LIMIT_MAX
        assert asked["direction"] == "forward"
        chosen = sorted(
            (nanos, labels, line)
            for labels, nanos, line in self.entries
            if start <= nanos < end
            and all(_matches(operator, text, _labels(labels).get(name, "")) for name, operator, text in matchers)
        )
        streams: dict[str, list[list[str]]] = defaultdict(list)
        for nanos, labels, line in chosen[:limit]:
            streams[labels].append([str(nanos), line.decode()])
        result = [{"stream": _labels(labels), "values": values} for labels, values in streams.items()]
        return Reply(
            200, json.dumps({"status": "success", "data": {"resultType": "streams", "result": result}}).encode()
        )

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


def _labels(text: str) -> dict[str, str]:
    return {name: _unquoted(value) for name, _, value in _PAIR.findall(text.removeprefix("{").removesuffix("}"))}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _matches(operator: str, text: str, value: str) -> bool:
    return value == _unquoted(text) if operator == "=" else re.fullmatch(_unquoted(text), value) is not None


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
