"""Splunk's HTTP Event Collector, with indexer acknowledgment or without.

From Splunk's documentation: "Format events for HTTP Event Collector", "HTTP Event Collector REST API endpoints",
"About HTTP Event Collector Indexer Acknowledgment", and the table of codes in "Troubleshoot HTTP Event Collector".
Objects one behind another; 403 code 4 for an unknown token, 400 code 5 for no data, code 6 with `invalid-event-
number`, code 10 for a missing channel, 413 above the limit. That a request is acknowledged is said once: the number is
forgotten then, and a later question has the answer "no". Nothing of a request with an invalid event is indexed
here, which Splunk does not promise: where it indexes those before it, they come twice.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.pipeline_sinks.server import STRICT, Contract, Reply, Request

KEYS = "type: splunk_hec, url: '{url}', token_env: TOKEN, index: 'shop', batch: {{max_events: 50}}"
ACKS = f"{KEYS}, acks: true, ack_timeout: 30s"
MAX_BYTES = 1_000_000


class SplunkHec(Contract):
    acks = False

    def __init__(self) -> None:
        super().__init__()
        self.envelopes: list[dict[str, Any]] = []
        self.acknowledged: dict[str, dict[int, int]] = {}
        """By channel and number: how often the answer is still "no"; -1 where it was "yes"."""

    def handle(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"Splunk {self.secret}":
            return _reply(403, 4, f"Invalid token {request.headers.get('authorization')}")
        channel = request.headers.get("x-splunk-request-channel", "")
        if request.path.startswith("/services/collector/ack"):
            return self._ack(request, channel)
        assert request.path == "/services/collector/event", request.path
        if self.acks and not channel:
            return _reply(400, 10, "Data channel is missing")
        if len(request.body) > MAX_BYTES:
            return Reply(413, b"Content-Length is too large")
        envelopes = list(_objects(request.body.decode()))
        if not envelopes:
            return _reply(400, 5, "No data")
        for number, envelope in enumerate(envelopes):
            if not envelope.get("event"):
                return _reply(400, 13, "Event field cannot be blank", number)
            if _is_poison(envelope["event"]):
                return _reply(400, 6, "Invalid data format", number)
            assert isinstance(envelope.get("time", 0), float | int)
            assert envelope["index"] == "shop"
        self.envelopes += envelopes
        self.events.update(one["event"]["event_id"] for one in envelopes if isinstance(one["event"], dict))
        if not self.acks:
            return _reply(200, 0, "Success")
        mine = self.acknowledged.setdefault(channel, {})
        mine[len(mine)] = 1
        return Reply(200, json.dumps({"text": "Success", "code": 0, "ackId": len(mine) - 1}).encode())

    def _ack(self, request: Request, channel: str) -> Reply:
        assert request.path.endswith(f"?channel={channel}")
        mine = self.acknowledged.get(channel, {})
        answers = {}
        for number in json.loads(request.body)["acks"]:
            answers[str(number)] = number in mine and mine[number] == 0
            if number in mine:
                mine[number] = max(mine[number] - 1, -1)
                self.told(channel, number, is_indexed=answers[str(number)])
        return Reply(200, json.dumps({"acks": answers}).encode())

    def told(self, channel: str, number: int, *, is_indexed: bool) -> None:
        """What the client has been told of a request."""


class SplunkHecWithAcks(SplunkHec):
    acks = True


class SplunkHecThatForgets(SplunkHecWithAcks):
    """What is not acknowledged is in memory alone: a Splunk that is killed loses it, and counts the requests of every
    channel from 0 again."""

    def __init__(self) -> None:
        super().__init__()
        self.in_memory: dict[tuple[str, int], list[str]] = {}
        """Ids of events by channel and number."""
        self.indexed: Counter[str] = Counter()

    def handle(self, request: Request) -> Reply:
        before = len(self.envelopes)
        reply = super().handle(request)
        if len(self.envelopes) > before:
            channel = request.headers["x-splunk-request-channel"]
            ids = [envelope["event"]["event_id"] for envelope in self.envelopes[before:]]
            self.in_memory[channel, json.loads(reply.body)["ackId"]] = ids
        return reply

    def told(self, channel: str, number: int, *, is_indexed: bool) -> None:
        if is_indexed:
            self.indexed.update(self.in_memory.pop((channel, number), ()))

    def forget(self) -> None:
        """What a kill does."""
        self.in_memory.clear()
        self.acknowledged.clear()


def _is_poison(event: Any) -> bool:
    """`event` is an object or a text."""
    return bool((event.get("body") if isinstance(event, dict) else event) == "poison")


def _reply(status: int, code: int, text: str, number: int | None = None) -> Reply:
    told: dict[str, Any] = {"text": text, "code": code}
    if number is not None:
        told["invalid-event-number"] = number
    return Reply(status, json.dumps(told).encode())


def _objects(text: str) -> Any:
    decoder, position = STRICT, 0
    while position < len(text):
        found, position = decoder.raw_decode(text, position)
        yield found
        while position < len(text) and text[position].isspace():
            position += 1
