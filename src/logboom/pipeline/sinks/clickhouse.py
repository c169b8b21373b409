"""The sink `clickhouse`: events as rows of a ClickHouse table, through its HTTP interface in the format JSONEachRow.

Each request has a deduplication token made of the ids of its events. A table that deduplicates (Replicated* engines;
others with `non_replicated_deduplication_window`) stores a request once, even if it is sent again after a lost answer
or a crash. See ClickHouse Docs, "HTTP Interface", "JSONEachRow", `insert_deduplication_token`.

Errors are classified by their code (`src/Common/ErrorCodes.cpp` of ClickHouse), because the HTTP status differs between
versions.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlencode

import msgspec
from pydantic import Field

from logboom.base.units import MIB
from logboom.pipeline.event.fields import COLUMNS, FieldReader, is_field
from logboom.pipeline.event.record import EventRecord
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.model import secret_of
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.bulk.target import (
    BulkResponse,
    Encoded,
    GiveUpError,
    Item,
    RefusedWholeError,
    TryAgainError,
)
from logboom.pipeline.sinks.http.answers import HttpAnswer, check_status, described, retry_after
from logboom.pipeline.sinks.http.model import HttpModel, HttpSink, RequestLimits, check_header_value, http_fields
from logboom.pipeline.sinks.http.target import HttpTarget
from logboom.pipeline.sinks.read_back import Held, ReadBack, Since, has_only_time, hindrance_of_rows

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient

Nested = Literal["text", "json"]
_LIMITS: Final = RequestLimits(16 * MIB, 50_000, concurrency=2)
_DEDUPLICATION: Final = "insert_deduplication_token"
_WANTED: Final[Mapping[str, str]] = {
    "date_time_input_format": "best_effort",  # RFC 3339 with a fraction and Z
    "input_format_skip_unknown_fields": "0",
    "input_format_import_nested_json": "1",
    "async_insert": "0",  # an answer means that the rows are written
    "wait_end_of_query": "1",
    _DEDUPLICATION: "",
}
"""Settings of each insert. Only those that the server knows are sent: an unknown one would fail the request."""
_ROW_CODES: Final = frozenset(
    (
        *(6, 25, 26, 27, 33, 38, 41, 53, 69, 70, 72, 117, 130, 131, 190, 321, 349, 376, 407, 441, 467, 469),
        *(616, 620, 636, 651, 675, 676, 677, 691),
    )
)
"""Codes for values that cannot be read or converted, and for constraints: errors of a row."""
_OVERLOAD_CODES: Final = frozenset((159, 160, 202, 203, 241, 252, 439, 745))
"""Codes for timeouts, too many queries or parts, memory."""
_NO_USE_CODES: Final = frozenset((8, 10, 16, 47, 50, 60, 62, 81, 115, 164, 192, 193, 194, 195, 291, 497, 516))
"""Codes for table, columns, settings, user, password, rights."""
_NO_DATA: Final = 108
_CODE: Final = re.compile(rb"Code: (\d+)")
_NAME: Final = re.compile(r"[A-Za-z_][0-9A-Za-z_]*")
_PAGE_ROWS: Final = 50_000
_ASK: Final = """\
SELECT toString({event_id}) AS id, min(toFloat64({seen})) AS seen_s, count() AS number,
any(toString({service})) AS service
FROM {table} WHERE {seen} >= toDateTime({since_s}) AND toString({event_id}) > {last}
GROUP BY id ORDER BY id LIMIT {limit} FORMAT JSONEachRow"""
_encode = msgspec.json.encode


class ClickhouseModel(HttpModel):
    """Rows of a table of ClickHouse."""

    type: Literal["clickhouse"]
    url: str
    """URL of the HTTP interface: `http://HOST:8123`, `https://HOST:8443`."""

    table: str
    """`TABLE` or `DATABASE.TABLE`."""

    columns: dict[str, str] = Field(default_factory=dict)
    """Column of the table: field of the event or `attributes.NAME`; by default each field has a column of its name."""

    nested: Nested = "text"
    """How `attributes`, and objects and lists in them, are written: as JSON text, or as objects (for columns of type
    JSON or Map)."""

    settings: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Settings of the server for each insert."""

    user: str | None = None
    password_env: str | None = None
    password_file: str | None = None


class ClickhouseSink(HttpSink, frozen=True, kw_only=True, tag="clickhouse"):
    """Rows of a table of ClickHouse."""

    table: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    nested: Nested = "text"
    settings: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    password: KeyRef | None = None

    @property
    def credentials(self) -> tuple[tuple[str, KeyRef], ...]:
        return () if self.password is None else (("password", self.password),)

    def open_target(self, secrets: Mapping[str, str]) -> ClickhouseTarget:
        """The server."""
        headers = {} if self.user is None else {"x-clickhouse-user": self.user}
        if self.password is not None:
            headers["x-clickhouse-key"] = secrets[self.password.id]
        return ClickhouseTarget(self, self.client(secrets, headers))


class ClickhouseTarget(HttpTarget):
    """A table."""

    def __init__(self, sink: ClickhouseSink, client: HttpClient) -> None:
        super().__init__(client)
        self._sink = sink
        self._reader = FieldReader(tuple(field for _, field in sink.columns))
        self._names = tuple(column for column, _ in sink.columns)
        table = ".".join(f"`{name}`" for name in sink.table)
        columns = ", ".join(f"`{name}`" for name in self._names)
        self._query = f"INSERT INTO {table} ({columns}) FORMAT JSONEachRow"
        self._settings: dict[str, str] | None = None
        self._lock = threading.Lock()

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode one row. A field that the event lacks is left out, so that its column gets its default."""
        as_text = self._sink.nested == "text"
        row = {
            name: _value(value, as_text=as_text)
            for name, value in zip(self._names, self._reader.values(event), strict=True)
            if value is not None
        }
        return Encoded(_encode(row) + b"\n")

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one insert."""
        token = sha256("\n".join(item.event_id for item in items).encode()).hexdigest()
        self._insert(b"".join([item.payload for item in items]), token)
        return BulkResponse()

    def probe(self) -> None:
        """Insert no rows, which checks the table, its columns and the right to insert."""
        self._insert(b"", "")

    def rows(self, since: Since) -> Iterator[_Row]:
        """The rows of each event since then, in the order of event ids."""
        columns = {field: f"`{column}`" for column, field in self._sink.columns}
        last = ""
        while True:
            query = _ASK.format(
                event_id=columns["event_id"],
                seen=columns.get("observed_time") or columns["time"],
                service=columns.get("service", "''"),
                table=".".join(f"`{name}`" for name in self._sink.table),
                since_s=since.ms // 1_000,
                last=_text(last),
                limit=_PAGE_ROWS,
            )
            answer = self.client.request("GET", f"/?{urlencode({'query': query})}", None, {})
            check_answer(answer, self.place)
            try:  # not strict, because some versions write 64-bit integers as strings
                found = [msgspec.json.decode(line, type=_Row, strict=False) for line in answer.body.splitlines()]
            except msgspec.DecodeError as error:
                raise GiveUpError(f"{self.place}: a query has an answer that cannot be read") from error
            yield from found
            if len(found) < _PAGE_ROWS:
                return
            last = found[-1].id

    def _insert(self, body: bytes, token: str) -> None:
        settings = self._server_settings()
        if _DEDUPLICATION in settings:
            settings = {**settings, _DEDUPLICATION: token}
        options = {"query": self._query, **settings, **dict(self._sink.settings)}
        answer = self.client.post(f"/?{urlencode(options)}", body, "application/x-ndjson")
        if not body and code_of(answer) == _NO_DATA:
            return
        check_answer(answer, self.place)

    @property
    def place(self) -> str:
        return f"ClickHouse at {self.client.place}"

    def _server_settings(self) -> dict[str, str]:
        """The settings of `_WANTED` that the server knows. Queried once."""
        with self._lock:
            if self._settings is None:
                names = ", ".join(f"'{name}'" for name in _WANTED)
                query = f"SELECT name FROM system.settings WHERE name IN ({names}) FORMAT TSV"  # noqa: S608 - our own names
                answer = self.client.request("GET", f"/?{urlencode({'query': query})}", None, {})
                check_answer(answer, self.place)
                known = answer.body.decode(errors="replace").split()
                self._settings = {name: value for name, value in _WANTED.items() if name in known}
            return self._settings


class _Row(msgspec.Struct):
    """The rows of one event."""

    id: str
    seen_s: float
    number: int
    service: str | None = None


def _text(text: str) -> str:
    """A literal of ClickHouse's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _value(value: Any, *, as_text: bool) -> Any:
    if isinstance(value, bytes):  # the attributes, as JSON
        return value.decode(errors="replace") if as_text else msgspec.Raw(value)
    return _encode(value).decode() if as_text and isinstance(value, dict | list) else value


def code_of(answer: HttpAnswer) -> int | None:
    """The code of an answer's error; None if it has none.

    >>> code_of(HttpAnswer(500, "", {}, b"Code: 27, e.displayText() = DB::Exception: ..."))
    27
    """
    text = answer.headers.get("x-clickhouse-exception-code", "")
    if text.isdigit():
        return int(text)
    found = _CODE.match(answer.body)
    return int(found[1]) if found else None


def check_answer(answer: HttpAnswer, place: str) -> None:
    """Return if the request succeeded; otherwise raise the target's error for it."""
    code = code_of(answer)
    if code is None:
        check_status(answer, place)
        return
    reason = f"{place} answered {described(answer)}"
    if code in _OVERLOAD_CODES:
        raise TryAgainError(reason, pause_s=retry_after(answer), is_overload=True)
    if code in _ROW_CODES:
        raise RefusedWholeError(reason)
    if code in _NO_USE_CODES:
        raise GiveUpError(reason)
    raise TryAgainError(reason, pause_s=retry_after(answer))


def _compile(model: ClickhouseModel, common: CommonFields, report: SinkReport) -> ClickhouseSink:
    table = tuple(model.table.split("."))
    if len(table) > 2 or not all(_NAME.fullmatch(name) for name in table):
        report.problem("table", f"{model.table!r} is not TABLE or DATABASE.TABLE of letters, digits and '_'")
    columns = model.columns or {name: name for name in COLUMNS}
    for column, field in columns.items():
        if not all(_NAME.fullmatch(name) for name in column.split(".")):
            report.problem("columns", f"{column!r} is not a valid name of letters, digits and '_'")
        if not is_field(field):
            report.unknown("columns", "field", field, [*COLUMNS, "attributes.NAME"])
    for name in model.settings:
        if name in (_DEDUPLICATION, "query", "user", "password", "wait_end_of_query"):
            report.problem("settings", f"{name!r} is set by the sink itself")
        elif not _NAME.fullmatch(name):
            report.problem("settings", f"{name!r} is not a valid name of letters, digits and '_'")
    check_header_value(report, "user", model.user)
    if model.user is None and (model.password_env or model.password_file):
        report.problem("user", "is missing: a password goes with it")
    return ClickhouseSink(
        **http_fields(model, common, report, model.url, _LIMITS),
        table=table,
        columns=tuple(columns.items()),
        nested=model.nested,
        settings=tuple((name, _setting(value)) for name, value in model.settings.items()),
        user=model.user,
        password=secret_of(model, "password", report),
    )


def _setting(value: str | float | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _events(sink: ClickhouseSink, secrets: Mapping[str, str], since: Since) -> Iterator[Held]:
    """Yields the events of a table, each with its number of rows."""
    target = sink.open_target(secrets)
    try:
        for row in target.rows(since):
            seen_ms = round(row.seen_s * 1_000)
            held = Held(row.id, row.service or "", seen_ms, time_ms=seen_ms if has_only_time(sink) else None)
            yield from [held] * row.number
    finally:
        target.close()


SINK: Final = bulk_sink_type(
    "clickhouse",
    ClickhouseModel,
    ClickhouseSink,
    _compile,
    read_back=ReadBack(_events, hindrance_of_rows, has_only_time),
)
