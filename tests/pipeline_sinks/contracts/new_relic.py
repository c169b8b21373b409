"""New Relic's Log API.

"Introduction to the Log API" and "Log event data" in New Relic's documentation (docs.newrelic.com/docs/logs/log-api,
read on 2026-11-23): `POST /log/v1` with `Api-Key`, detailed JSON (`[{"common": ..., "logs": [...]}]`), at most 10^6
bytes; 202, 400 for what cannot be read, 403 for a key that is none, 413, 429, 5xx.
"""

from __future__ import annotations

from tests.pipeline_sinks.server import Contract, Reply, Request, strict_json

KEYS = "type: new_relic, url: '{url}', license_key_env: TOKEN, batch: {{max_events: 50}}"


class NewRelic(Contract):
    def handle(self, request: Request) -> Reply:
        if request.headers.get("api-key") != self.secret:
            return Reply(403, f"not allowed: {request.headers.get('api-key')}".encode())
        assert (request.path, request.headers["content-type"]) == ("/log/v1", "application/json")
        if len(request.sent) > 1_000_000 or len(request.body) > 2_000_000:
            return Reply(413, b"")
        (batch,) = strict_json(request.body)
        for log in batch["logs"]:
            assert isinstance(log.get("timestamp", 0), int)
            assert len(log["attributes"]) <= 255
            assert all(len(name) <= 255 for name in log["attributes"])
        if any(log["message"] == "poison" for log in batch["logs"]):
            return Reply(400, b"Error unmarshalling message payload")
        self.events.update(log["attributes"]["logboom.event_id"] for log in batch["logs"])
        return Reply(202, b'{"requestId": "1"}')
