"""An HTTP source of Sumo Logic.

"Upload logs to an HTTP Source" in Sumo Logic's documentation: `POST` of lines to the address of the source, which
is its credential (401 for one that is none), with `X-Sumo-*` headers; 200, 413 for more than it takes, 429, 5xx. It
reads any line; the 400 of this one stands for a proxy that does not.
"""

from __future__ import annotations

import json

from tests.pipeline_sinks.server import Contract, Reply, Request

KEYS = "type: sumo_logic, url_env: ADDRESS, category: shop/web, batch: {{max_events: 50}}"


class SumoLogic(Contract):
    def handle(self, request: Request) -> Reply:
        if request.path != f"/receiver/v1/http/{self.secret}":
            return Reply(401, f"no collector at {request.path}".encode())
        assert request.headers["x-sumo-category"] == "shop/web"
        if len(request.body) > 1_000_000:
            return Reply(413, b"")
        events = [json.loads(line) for line in request.body.splitlines()]
        if any(one["body"] == "poison" for one in events):
            return Reply(400, b"malformed line")
        self.events.update(one["event_id"] for one in events)
        return Reply(200)
