"""Datadog's intake of logs.

"Send logs" in Datadog's API reference, v2 (docs.datadoghq.com/api/latest/logs/send-logs, read on 2026-11-23):
`POST /api/v2/logs` with `DD-API-KEY`, a JSON array of at most 1,000 logs and 5 MB before compression, a log of at most
1 MB; 202 with `{}`, 400 for what cannot be read, 401 and 403 for a key that is none, 408, 413, 429, 5xx.
"""

from __future__ import annotations

import json

from tests.pipeline_sinks.server import Contract, Reply, Request, strict_json

KEYS = "type: datadog_logs, url: '{url}', api_key_env: TOKEN, ddtags: 'env:prod', batch: {{max_events: 50}}"


class DatadogLogs(Contract):
    def handle(self, request: Request) -> Reply:
        if request.headers.get("dd-api-key") != self.secret:
            return Reply(403, json.dumps({"errors": [{"detail": request.headers.get("dd-api-key")}]}).encode())
        assert (request.path, request.headers["content-type"]) == ("/api/v2/logs", "application/json")
        if len(request.body) > 5_000_000:
            return Reply(413, b"")
        logs = strict_json(request.body)
        assert len(logs) <= 1_000
        for log in logs:
            assert log["ddtags"] == "env:prod"
            assert log["service"].startswith("shop-")
            written = json.dumps(log, ensure_ascii=False, separators=(",", ":"))
            assert len(written.encode()) <= 1_000_000
        if any(log.get("message") == "poison" for log in logs):
            return Reply(400, b'{"errors": [{"detail": "Invalid log"}]}')
        self.events.update(log["logboom.event_id"] for log in logs)
        return Reply(202, b"{}")
