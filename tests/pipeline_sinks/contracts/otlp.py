"""A receiver of OTLP over HTTP.

"OTLP/HTTP" of the OpenTelemetry Protocol Specification 1.5: `POST /v1/logs` of an ExportLogsServiceRequest, 200
with an ExportLogsServiceResponse whose partial_success counts what was refused, 400 for what can never be taken,
429 and 503 for later. The messages are those of `opentelemetry/proto/logs/v1/logs.proto`. This one refuses whole
requests.
"""

from __future__ import annotations

from typing import Any

from tests.pipeline_sinks.server import Contract, Reply, Request

from logboom.pipeline.sinks.http.protobuf import bytes_field, fields_of, text_field, whole_field

KEYS = "type: otlp, url: '{url}', token_env: TOKEN, batch: {{max_events: 50}}"
MAX_BYTES = 1_000_000
_OK = Reply(200, b"", {"Content-Type": "application/x-protobuf"})


class Otlp(Contract):
    partial = False

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """Resource and record of each."""

    def handle(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {self.secret}":
            return Reply(401, f"unknown: {request.headers.get('authorization')}".encode())
        assert (request.path, request.headers["content-type"]) == ("/v1/logs", "application/x-protobuf")
        return self.take(request.body)

    def take(self, request: bytes) -> Reply:
        """An ExportLogsServiceRequest, however it came."""
        if len(request) > MAX_BYTES:
            return Reply(413, b"too large")
        records = list(_records(request))
        poisoned = [record for _, record in records if record["body"] == "poison"]
        if poisoned and not self.partial:
            return Reply(400, text_field(2, "a record with poison"), {"Content-Type": "application/x-protobuf"})
        taken = [pair for pair in records if pair[1] not in poisoned]
        self.records += taken
        self.events.update(record["attributes"]["logboom.event_id"] for _, record in taken)
        if not poisoned:
            return _OK
        told = bytes_field(1, whole_field(1, len(poisoned)) + text_field(2, "a record with poison"))
        return Reply(200, told, {"Content-Type": "application/x-protobuf"})


class PartialOtlp(Otlp):
    partial = True


def _records(request: bytes) -> Any:
    for _, resource_logs in fields_of(request):
        assert isinstance(resource_logs, bytes)
        parts = list(fields_of(resource_logs))
        resource = _attributes(next(value for field, value in parts if field == 1), 1)
        for field, scope in parts:
            if field == 2 and isinstance(scope, bytes):
                for inner, record in fields_of(scope):
                    if inner == 2 and isinstance(record, bytes):
                        yield resource, _record(record)


def _record(message: bytes) -> dict[str, Any]:
    plain = {field: value for field, value in fields_of(message) if field != 6}
    assert all(isinstance(plain[field], bytes) and len(plain[field]) == 8 for field in (1, 11) if field in plain)  # type: ignore[arg-type]
    body = plain.get(5)
    return {
        "time": int.from_bytes(plain.get(1, b""), "little"),  # type: ignore[arg-type]
        "severity": plain.get(2),
        "body": None if body is None else _value(body),
        "trace_id": plain.get(9),
        "attributes": _attributes(message, 6),
    }


def _attributes(message: Any, wanted: int) -> dict[str, Any]:
    found = {}
    for field, pair in fields_of(message):
        if field == wanted and isinstance(pair, bytes):
            parts = dict(fields_of(pair))
            key = parts[1]
            assert isinstance(key, bytes)
            found[key.decode()] = _value(parts.get(2, b""))
    return found


def _value(message: Any) -> Any:
    for field, value in fields_of(message):
        if field == 1 and isinstance(value, bytes):
            return value.decode()
        return value if field != 6 else _attributes(value, 1)
    return None
