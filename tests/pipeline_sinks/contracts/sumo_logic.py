"""An HTTP source of Sumo Logic.

"Upload logs to an HTTP Source" and "Troubleshooting HTTP Sources" in Sumo Logic's documentation
(help.sumologic.com/docs/send-data/hosted-collectors/http-source, read on 2026-11-23): `POST` of lines, gzip or plain,
to the address of the source, which is its credential (401 for one that is none), with `X-Sumo-*` headers; at most 1 MB
before compression; 200, 408, 429, 503, 504. It reads any line; the 400 of this one stands for a proxy that does not.
"""

from __future__ import annotations

from tests.pipeline_sinks.server import Contract, Reply, Request, strict_json

KEYS = "type: sumo_logic, url_env: ADDRESS, category: shop/web, batch: {{max_events: 50}}"


class SumoLogic(Contract):
    def handle(self, request: Request) -> Reply:
        if request.path != f"/receiver/v1/http/{self.secret}":
            return Reply(401, f"no collector at {request.path}".encode())
        assert request.headers["x-sumo-category"] == "shop/web"
        if len(request.body) > 1_000_000:
            return Reply(413, b"")
        events = [strict_json(line) for line in request.body.splitlines()]
        if any(one.get("body") == "poison" for one in events):
            return Reply(400, b"malformed line")
        self.events.update(one["event_id"] for one in events)
        return Reply(200)
