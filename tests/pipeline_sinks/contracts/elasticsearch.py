"""The bulk API, as "Bulk API" of the Elasticsearch Guide (8.x) and "Bulk" of OpenSearch's API reference have it.

NDJSON of an action line and a document, the last line ended; a status for each item in the order of the request; 409
version_conflict_engine_exception for `create` of an id that is there; 429 es_rejected_execution_exception for an item
of a shard whose queue is full; 400 mapper_parsing_exception for a document that the mapping does not take; 413 above
`http.max_content_length`. An item has 403 cluster_block_exception where a block is on its index ("Index block
settings"; 429 for a full disk since 7.7), and 403 security_exception where the credential may not write that index:
the request itself has 200.

"Search" and "Scroll" (`_search?scroll=1m`, `_search/scroll`): pages of what was there at the first request, an id for
the next one, an empty page at the end.
"""

from __future__ import annotations

import json
from collections import Counter
from fnmatch import fnmatchcase
from typing import Any

from tests.pipeline_sinks.server import Contract, Reply, Request, strict_json

KEYS = (
    "type: elasticsearch, url: '{url}', index: 'logs-{{service}}-{{time:%Y.%m}}', api_key_env: TOKEN, "
    "batch: {{max_events: 50}}"
)
MAX_BYTES = 100_000


class Elasticsearch(Contract):
    repeats = False

    def __init__(self) -> None:
        super().__init__()
        self.documents: dict[str, Any] = {}
        self.indexes: Counter[str] = Counter()
        self.queue_is_full_for: Counter[str] = Counter()
        """By id: how often an item is still rejected."""
        self.blocked_for: Counter[str] = Counter()
        """By id: how often its index is still read-only."""
        self.forbidden: set[str] = set()
        """Of indexes that the credential may not write."""
        self.places: dict[str, str] = {}
        self.scrolls: dict[str, tuple[list[dict[str, Any]], int]] = {}

    def handle(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"ApiKey {self.secret}":
            said = request.headers.get("authorization", "nothing")
            return Reply(401, json.dumps({"error": {"type": "security_exception", "reason": said}}).encode())
        if request.method == "GET":
            return Reply(200, b"{}")
        if "_search" in request.path:
            return Reply(200, json.dumps(self._search(request)).encode())
        if len(request.body) > MAX_BYTES:
            return Reply(413, b"")
        assert request.path.startswith("/_bulk"), request.path
        assert request.headers["content-type"] == "application/x-ndjson"
        assert request.body.endswith(b"\n")
        lines = request.body.splitlines()
        assert len(lines) % 2 == 0
        items = [self._item(strict_json(lines[at]), strict_json(lines[at + 1])) for at in range(0, len(lines), 2)]
        errors = any("error" in next(iter(item.values())) for item in items)
        return Reply(200, json.dumps({"errors": errors, "items": items}).encode())

    def _item(self, action: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
        (op, place), identity = next(iter(action.items())), next(iter(action.values()))["_id"]
        if self.queue_is_full_for[identity] > 0:
            self.queue_is_full_for[identity] -= 1
            return {op: _failed(429, "es_rejected_execution_exception", "rejected execution of primary operation")}
        if self.blocked_for[identity] > 0:
            self.blocked_for[identity] -= 1
            return {op: _failed(403, "cluster_block_exception", "blocked by: [FORBIDDEN/5/index read-only (api)];")}
        if place["_index"] in self.forbidden:
            return {op: _failed(403, "security_exception", "action [indices:data/write/bulk[s]] is unauthorized")}
        if document.get("body") == "poison":
            return {op: _failed(400, "mapper_parsing_exception", "failed to parse field [attributes.n] of type [long]")}
        if identity in self.documents and op == "create":
            return {op: _failed(409, "version_conflict_engine_exception", "document already exists")}
        self.documents[identity] = document
        self.places[identity] = place["_index"]
        self.indexes[place["_index"]] += 1
        self.events[identity] += 1
        return {op: {"status": 201}}

    def _search(self, request: Request) -> dict[str, Any]:
        asked = strict_json(request.body)
        if request.method == "DELETE":
            del self.scrolls[asked["scroll_id"]]
            return {}
        if request.path == "/_search/scroll":
            scroll = str(asked["scroll_id"])
            documents, size = self.scrolls[scroll]
        else:
            index, _, options = request.path.removeprefix("/").partition("/_search?")
            assert options.startswith("scroll=")
            scroll, size = f"scroll-{len(self.requests)}", asked["size"]
            ((field, bounds),) = asked["query"]["range"].items()
            documents = [
                {"_id": identity, "_source": {name: document.get(name) for name in asked["_source"]}}
                for identity, document in self.documents.items()
                if fnmatchcase(self.places[identity], index) and (document.get(field) or "") >= bounds["gte"]
            ]
        self.scrolls[scroll] = (documents[size:], size)
        return {"_scroll_id": scroll, "hits": {"hits": documents[:size]}}


def _failed(status: int, kind: str, reason: str) -> dict[str, Any]:
    return {"status": status, "error": {"type": kind, "reason": reason}}
