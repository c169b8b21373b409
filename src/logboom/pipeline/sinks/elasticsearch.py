"""The sink `elasticsearch`: documents of an index or a data stream of Elasticsearch or OpenSearch, by the bulk API.

Each document has the event's id as its `_id`, so that an event that is sent twice is stored once: `create` keeps the
first copy (a 409 answer counts as a repeat), `index` replaces it. Each item of an answer has its own status ("Bulk API"
in the Elasticsearch Guide and in OpenSearch's API reference).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

import msgspec

from logboom.base.units import MIB
from logboom.pipeline.event.record import EventRecord, attributes_of
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.model import secret_of
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.bulk.target import BulkResponse, Encoded, GiveUpError, Item, TryAgainError, UnfitError
from logboom.pipeline.sinks.http.answers import described
from logboom.pipeline.sinks.http.authorization import (
    BasicAuth,
    BasicAuthModel,
    basic_auth,
    check_one_credential,
)
from logboom.pipeline.sinks.http.model import GZIP_ALONE, HttpModel, HttpSink, RequestLimits, http_fields
from logboom.pipeline.sinks.http.target import HttpTarget
from logboom.pipeline.sinks.http.templates import Template, check_template, warn_of_no_value
from logboom.pipeline.sinks.read_back import Held, ReadBack, Since, milliseconds_of

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient

_LIMITS: Final = RequestLimits(8 * MIB, 5_000)
_NAME_MAX_BYTES: Final = 255
_NOT_IN_NAMES: Final = re.compile(r'[\\/*?"<>| ,#:\x00-\x1f]')
"""Characters that index names must not contain ("Create index API"). A colon would refer to another cluster."""
_FILTER: Final = "filter_path=errors,items.*.status," + ",".join(
    f"items.*.error.{name}" for name in ("type", "reason", "caused_by.reason")
)
_JSON: Final = {"content-type": "application/json"}
_PAGE_EVENTS: Final = 5_000
_KEPT_FOR: Final = "1m"
"""How long the server keeps a scroll between two pages."""
_BLOCKED: Final = "cluster_block_exception"
"""A write block on the index, set by an operator or because of a full disk (403 before 7.7, then 429). It is
temporary."""
_OF_NO_EVENT: Final = (401, 403, 404)
"""Item errors about the credential, the rights or the index, not the document."""
_FIELDS: Final = {
    "event": ("event_id", "service", "observed_time", "time", "weight"),
    "ecs": ("event.id", "service.name", "event.created", "@timestamp", "weight"),
}
"""By format: the fields with the id, the service, the time it was first seen, the event's time, and its weight."""
_encode = msgspec.json.encode


class ElasticsearchModel(HttpModel):
    """Documents of Elasticsearch or OpenSearch."""

    type: Literal["elasticsearch"]
    url: str
    index: str
    """An index, alias or data stream. May contain fields of the event, such as `{service}` and `{time:%Y.%m.%d}`."""

    op: Literal["create", "index"] = "create"
    """What happens to an event whose document already exists: `create` keeps the document, `index` replaces it. Data
    streams accept only `create`."""

    format: Literal["event", "ecs"] = "event"
    """The event with `@timestamp`, or fields of the Elastic Common Schema."""

    pipeline: str | None = None
    """An ingest pipeline of the server."""

    auth: BasicAuthModel | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None


class ElasticsearchSink(HttpSink, frozen=True, kw_only=True, tag="elasticsearch"):
    """Documents of Elasticsearch or OpenSearch."""

    index: str
    op: Literal["create", "index"] = "create"
    format: Literal["event", "ecs"] = "event"
    pipeline: str | None = None
    auth: BasicAuth | None = None
    api_key: KeyRef | None = None

    @property
    def credentials(self) -> tuple[tuple[str, KeyRef], ...]:
        password = () if self.auth is None else (("auth", self.auth.password),)
        return password if self.api_key is None else (*password, ("api_key", self.api_key))

    def open_target(self, secrets: Mapping[str, str]) -> ElasticsearchTarget:
        """The bulk API of the server."""
        return ElasticsearchTarget(self, self.client(secrets, self._headers(secrets)))

    def _headers(self, secrets: Mapping[str, str]) -> dict[str, str]:
        if self.api_key is not None:
            return {"authorization": f"ApiKey {secrets[self.api_key.id]}"}
        return {} if self.auth is None else {"authorization": self.auth.header(secrets)}


class ElasticsearchTarget(HttpTarget):
    """`_bulk` of one server."""

    def __init__(self, sink: ElasticsearchSink, client: HttpClient) -> None:
        super().__init__(client)
        self._sink = sink
        self._index = Template(sink.index)
        self._path = f"/_bulk?{_FILTER}"
        if sink.pipeline is not None:
            self._path += f"&pipeline={quote(sink.pipeline, safe='')}"

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode two lines: the action and the document."""
        name = self._index.render(event)
        if name is None:
            raise UnfitError(f"the event lacks a field of the index name {self._sink.index!r}")
        action = _encode({self._sink.op: {"_index": index_name(name), "_id": event.event_id}})
        document = _with_timestamp(event, value) if self._sink.format == "event" else ecs_document(event)
        return Encoded(b"%b\n%b\n" % (action, document))

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one bulk request."""
        body = b"".join([item.payload for item in items])
        answer = self.client.post(self._path, body, "application/x-ndjson")
        self.check(answer)
        return answer_of(answer.body, len(items))

    def probe(self) -> None:
        """Query the server's name, which checks the credential and writes nothing."""
        answer = self.check(self.client.request("GET", "/", None, {}))
        try:
            msgspec.json.decode(answer.body, type=dict[str, Any])
        except msgspec.DecodeError:  # the page of a proxy or of another product
            told = described(answer)
            raise GiveUpError(f"{self.place} does not answer as Elasticsearch and OpenSearch do: {told}") from None

    def pages(self, since: Since) -> Iterator[list[dict[str, Any]]]:
        """The documents of all indices that the sink may write to, of events that were first seen since then.

        Uses the "Scroll API", which both products have: paging by search would miss documents that are written
        meanwhile.
        """
        fields = _FIELDS[self._sink.format]
        query = {"range": {fields[2]: {"gte": since.text}}}
        asked: Any = {"size": _PAGE_EVENTS, "sort": ["_doc"], "_source": list(fields), "query": query}
        path = f"/{self._indices()}/_search?scroll={_KEPT_FOR}&ignore_unavailable=true&allow_no_indices=true"
        scroll = None
        try:
            while True:
                told = self._asked(path, asked)
                scroll = told.get("_scroll_id") or scroll
                documents = told.get("hits", {}).get("hits")
                if not documents:
                    return
                yield documents
                path, asked = "/_search/scroll", {"scroll": _KEPT_FOR, "scroll_id": scroll}
        finally:
            if scroll is not None:
                self.client.request("DELETE", "/_search/scroll", _encode({"scroll_id": scroll}), _JSON)

    def _indices(self) -> str:
        names = self._index.pattern(lambda text: _NOT_IN_NAMES.sub("_", text.lower()), "*")
        return quote(names.lstrip("-_+") or "_all", safe="*")

    def _asked(self, path: str, body: Any) -> dict[str, Any]:
        answer = self.check(self.client.request("POST", path, _encode(body), _JSON))
        try:
            told: dict[str, Any] = msgspec.json.decode(answer.body, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise GiveUpError(f"{self.place}: a search has an answer that cannot be read") from error
        return told


def index_name(text: str) -> str:
    """A name that an index may have: in small letters, other characters as `_`, at most 255 bytes.

    >>> index_name("logs-Check out/EU")
    'logs-check_out_eu'
    """
    name = _NOT_IN_NAMES.sub("_", text.lower()).lstrip("-_+")
    return name.encode()[:_NAME_MAX_BYTES].decode(errors="ignore") or "_"


def answer_of(body: bytes, count: int) -> BulkResponse:
    """The results of `count` items from a bulk answer.

    :raises TryAgainError: the answer is not complete.
    :raises GiveUpError: the credential may write none of the items, or the index does not exist.
    """
    try:
        told: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        items = [next(iter(item.values())) for item in told["items"]]
        statuses = [int(item["status"]) for item in items]
    except (msgspec.DecodeError, LookupError, StopIteration, TypeError, ValueError, AttributeError) as error:
        raise TryAgainError("the bulk request has an answer that cannot be read") from error
    if len(statuses) != count:
        raise TryAgainError(f"the answer to a bulk request of {count} has {len(statuses)} items")
    refused: dict[int, str] = {}
    again: dict[int, str] = {}
    repeats, is_overload = 0, False
    for index, (status, item) in enumerate(zip(statuses, items, strict=True)):
        if 200 <= status < 300:
            continue
        kind, reason = _error(item.get("error"))
        if status == 409 and kind == "version_conflict_engine_exception":
            repeats += 1
        elif status == 429 or status >= 500 or kind == _BLOCKED:
            again[index] = f"{status} {kind}: {reason}"
            is_overload = is_overload or status in (429, 503)
        else:
            refused[index] = f"{status} {kind}: {reason}"
    if refused and all(status in _OF_NO_EVENT for status in statuses) and not again:
        raise GiveUpError(f"nothing can be written: {refused[0]}")
    return BulkResponse(refused=refused, again=again, repeats=repeats, is_overload=is_overload)


def _error(error: Any) -> tuple[str, str]:
    if not isinstance(error, dict):
        return "error", str(error or "without a reason")
    cause = error.get("caused_by")
    inner = cause.get("reason") if isinstance(cause, dict) else None
    reason = str(error.get("reason") or "without a reason")
    return str(error.get("type") or "error"), reason if not inner else f"{reason} ({inner})"


def _with_timestamp(event: EventRecord, value: bytes) -> bytes:
    when = event.time or event.observed_time
    return value if when is None else b'{"@timestamp":"%b",%b' % (when.encode(), value.lstrip()[1:])


def ecs_document(event: EventRecord) -> bytes:
    """The event in fields of the Elastic Common Schema. Attributes keep their names."""
    fields: dict[str, Any] = {
        "@timestamp": event.time or event.observed_time,
        "message": event.body,
        "log.level": event.severity_text,
        "event.severity": event.severity_number,
        "event.id": event.event_id,
        "event.created": event.observed_time,
        "service.name": event.service,
        "host.name": event.host,
        "trace.id": event.trace_id,
        "span.id": event.span_id,
        "event.dataset": event.source,
    }
    return _encode({**attributes_of(event), **{name: value for name, value in fields.items() if value is not None}})


def _compile(model: ElasticsearchModel, common: CommonFields, report: SinkReport) -> ElasticsearchSink:
    check_template(report, "index", model.index)
    warn_of_no_value(report, "index", model.index)
    if not model.index.strip():
        report.problem("index", "is empty; name an index, an alias or a data stream")
    if model.pipeline is not None and not model.pipeline.strip():
        report.problem("pipeline", "is empty; name an ingest pipeline, or leave the key out")
    api_key = secret_of(model, "api_key", report)
    check_one_credential(model.auth, api_key, "an api_key", report)
    return ElasticsearchSink(
        **http_fields(model, common, report, model.url, _LIMITS, encodings=GZIP_ALONE),
        index=model.index,
        op=model.op,
        format=model.format,
        pipeline=model.pipeline,
        auth=basic_auth(model.auth, report, "auth"),
        api_key=api_key,
    )


def _events(sink: ElasticsearchSink, secrets: Mapping[str, str], since: Since) -> Iterator[Held]:
    """Yields the events of a server; other documents are skipped."""
    target = sink.open_target(secrets)
    event_id, service, observed, time, weight = _FIELDS[sink.format]
    try:
        for documents in target.pages(since):
            for document in documents:
                found = document.get("_source") or {}
                seen_ms = milliseconds_of(found.get(observed))
                if seen_ms is None or found.get(event_id) is None:
                    continue
                yield Held(
                    str(found[event_id]),
                    str(found.get(service) or ""),
                    seen_ms,
                    weight=found.get(weight) or 1.0,
                    time_ms=milliseconds_of(found.get(time)),
                )
    finally:
        target.close()


SINK: Final = bulk_sink_type(
    "elasticsearch", ElasticsearchModel, ElasticsearchSink, _compile, read_back=ReadBack(_events)
)
