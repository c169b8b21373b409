"""ClickHouse's HTTP interface over a table that deduplicates inserts.

From ClickHouse's documentation: "HTTP Interface" (`X-ClickHouse-User`, `X-ClickHouse-Key`, the code of an error in
`X-ClickHouse-Exception-Code`), "JSONEachRow", and of the settings `insert_deduplication_token` and
`non_replicated_deduplication_window`: a block whose token the table knows is left out, and the insert succeeds. What a
real server does is in `test_clickhouse.py`; the one that Debian has knows no tokens.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from tests.pipeline_sinks.server import Contract, Reply, Request, strict_json

KEYS = (
    "type: clickhouse, url: '{url}', table: logs.events, user: shop, password_env: TOKEN, batch: {{max_events: 50}}, "
    "columns: {{event_id: event_id, body: body, time: time}}"
)
_INSERT = "INSERT INTO `logs`.`events` (`event_id`, `body`, `time`) FORMAT JSONEachRow"
_ROW_MAX_BYTES = 1_000_000


class Clickhouse(Contract):
    def __init__(self) -> None:
        super().__init__()
        self.tokens: set[str] = set()

    def handle(self, request: Request) -> Reply:
        if request.headers.get("x-clickhouse-key") != self.secret or request.headers["x-clickhouse-user"] != "shop":
            return _error(403, 516, "shop: Authentication failed: password is incorrect")
        options = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        query = options["query"]
        if query.startswith("SELECT name FROM system.settings"):
            return Reply(200, b"date_time_input_format\nwait_end_of_query\ninsert_deduplication_token\nasync_insert\n")
        assert query == _INSERT
        assert (options["wait_end_of_query"], options["async_insert"]) == ("1", "0")
        lines = request.body.splitlines()
        if any(len(line) > _ROW_MAX_BYTES for line in lines):
            return _error(500, 117, "Size of JSON object at position 0 is extremely large")
        rows = [strict_json(line) for line in lines]
        if any(row.get("body") == "poison" for row in rows):
            return _error(400, 27, "Cannot parse input: there is poison")
        token = options.get("insert_deduplication_token", "")
        if rows and token not in self.tokens:
            self.tokens.add(token)
            self.events.update(row["event_id"] for row in rows)
        return Reply(200)


def _error(status: int, code: int, text: str) -> Reply:
    return Reply(status, f"Code: {code}. DB::Exception: {text}".encode(), {"X-ClickHouse-Exception-Code": str(code)})
