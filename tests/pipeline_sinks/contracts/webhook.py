"""An address that takes a JSON array of events, as many services do: a token, a limit of bytes, 400 for what it cannot
use, without saying which event it means."""

from __future__ import annotations

import json

from tests.pipeline_sinks.server import Contract, Reply, Request, strict_json

KEYS = "type: webhook, url: '{url}/hook', token_env: TOKEN, batch: {{max_events: 50}}"
MAX_BYTES = 100_000


class Webhook(Contract):
    repeats = True

    def handle(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {self.secret}":
            return Reply(401, f"unknown token {request.headers.get('authorization')}".encode())
        if request.method == "HEAD":
            return Reply(200)
        if request.path != "/hook" or request.method != "POST":
            return Reply(404)
        if len(request.body) > MAX_BYTES:
            return Reply(413, b"too large")
        events = strict_json(request.body)
        assert len({json.dumps(one["event_id"]) for one in events}) == len(events)
        if any(one.get("body") == "poison" for one in events):
            return Reply(400, b"there is poison in it")
        self.events.update(one["event_id"] for one in events)
        return Reply(204)
