"""The sink `loki`: log lines for streams of Grafana Loki, through its push API.

See "Ingest logs" (`POST /loki/api/v1/push`) of Loki's HTTP API. The body is a Protocol Buffers message
(`logproto.PushRequest`) in Snappy's block format. Loki drops an entry if it has one with the same stream, time and
line.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
from pydantic import Field

from logboom.base.units import MIB
from logboom.pipeline.event.record import NOT_JSON, EventRecord, attributes_of, read_event
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.bulk.target import BulkResponse, Encoded, GiveUpError, Item, TryAgainError, UnfitError
from logboom.pipeline.sinks.http.answers import described
from logboom.pipeline.sinks.http.authorization import AuthorizedModel, AuthorizedSink, authorization_of
from logboom.pipeline.sinks.http.model import RequestLimits, http_fields
from logboom.pipeline.sinks.http.protobuf import bytes_field, text_field, whole_field
from logboom.pipeline.sinks.http.target import HttpTarget
from logboom.pipeline.sinks.http.templates import Template, TemplateError, check_template
from logboom.pipeline.sinks.http.times import event_microseconds
from logboom.pipeline.sinks.read_back import Held, ReadBack, Since, milliseconds_of

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient

_LIMITS: Final = RequestLimits(max_bytes=MIB, max_events=5_000, concurrency=1)
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_LABEL_NAME_MAX, _LABEL_TEXT_MAX_BYTES = 1_024, 2_048
"""Loki's defaults of `max_label_name_length` and `max_label_value_length`."""
_TENANT: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9!_.*'()-]{1,150}")
"""Loki's rule for the id of one tenant. `|` separates several, which only queries may have."""
_LABELS_MAX: Final = 15
"""Loki's default of `max_label_names_per_series`."""
_METADATA_MAX: Final = 128
"""Loki's default of `max_structured_metadata_entries_count`."""
_BLOCKED: Final = 260
"""Loki's default of `block_ingestion_status_code`. It means that nothing of the push was accepted, although HTTP counts
it as success."""
_NANOS_MAX: Final = (1 << 63) - 1
_PATH: Final = "/loki/api/v1/push"
_QUERY_PATH: Final = "/loki/api/v1/query_range"
_PAGE_LINES: Final = 2_000
"""Below Loki's default of `max_entries_limit_per_query`."""
_AHEAD_NS: Final = 86_400_000_000_000
"""Query this much beyond the current time, since events may have times in the future."""


class LokiModel(AuthorizedModel):
    """Streams of Grafana Loki."""

    type: Literal["loki"]
    url: str
    labels: dict[str, str] = Field(min_length=1, max_length=_LABELS_MAX)
    """Label name and text, which may contain fields of the event such as `{service}`. Each combination of values is a
    stream, so use fields with few values."""

    structured_metadata: dict[str, str] = Field(default_factory=dict, max_length=_METADATA_MAX)
    """Name and text of structured metadata, which makes no streams: for fields with many values, such as
    `{trace_id}`."""

    format: Literal["event", "body"] = "event"
    """Whether a line is the whole event or only its body."""

    tenant: str | None = None
    """`X-Scope-OrgID`, for a Loki with several tenants."""


class LokiSink(AuthorizedSink, frozen=True, kw_only=True, tag="loki"):
    """Streams of Grafana Loki."""

    labels: tuple[tuple[str, str], ...]
    structured_metadata: tuple[tuple[str, str], ...] = ()
    format: Literal["event", "body"] = "event"
    tenant: str | None = None

    def open_target(self, secrets: Mapping[str, str]) -> LokiTarget:
        """The push API of the server."""
        tenant = {} if self.tenant is None else {"x-scope-orgid": self.tenant}
        return LokiTarget(self, self.client(secrets, {**tenant, **self.authorization(secrets)}))


class LokiTarget(HttpTarget):
    """One Loki."""

    def __init__(self, sink: LokiSink, client: HttpClient) -> None:
        super().__init__(client)
        self._labels = sorted((name, Template(text)) for name, text in sink.labels)
        self._metadata = [(name, Template(text)) for name, text in sink.structured_metadata]
        self._is_whole = sink.format == "event"
        templates = [template for _, template in (*self._labels, *self._metadata)]
        self._reads_attributes = any(template.reads_attributes for template in templates)

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode an entry of the event's stream.

        Loki's times have nanoseconds, events only microseconds. The digits below come from the offset of the record, so
        that Loki keeps events with equal times and lines apart. A repeated event gets the same time and is dropped.
        """
        micros = event_microseconds(event)
        if micros is None:
            raise UnfitError("the event has no time, which Loki requires")
        attributes = attributes_of(event) if self._reads_attributes else {}
        nanos = micros * 1_000 + event.offset % 1_000
        if not -_NANOS_MAX <= nanos <= _NANOS_MAX:
            raise UnfitError("the event's time is outside of Loki's range (1677 to 2262)")
        labels = [(name, template.render(event, attributes)) for name, template in self._labels]
        group = ", ".join(f"{name}={_quoted(text)}" for name, text in labels if text)
        if not group:
            raise UnfitError("the event has none of the labels; Loki requires at least one")
        seconds, rest = divmod(nanos, 1_000_000_000)
        entry = bytes_field(1, whole_field(1, seconds) + whole_field(2, rest))
        entry += bytes_field(2, value if self._is_whole else (event.body or "").encode())
        for name, template in self._metadata:
            text = template.render(event, attributes)
            if text is not None:
                entry += bytes_field(3, text_field(1, name) + text_field(2, text))
        return Encoded(bytes_field(2, entry), f"{{{group}}}", nanos)

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one push, with the entries of each stream in the order of their times."""
        streams: dict[str, list[Item]] = {}
        for item in items:
            streams.setdefault(item.group, []).append(item)
        parts: list[bytes] = []
        for labels, entries in streams.items():
            entries.sort(key=lambda item: item.order)
            parts.append(bytes_field(1, text_field(1, labels) + b"".join([item.payload for item in entries])))
        self._push(b"".join(parts))
        return BulkResponse()

    def probe(self) -> None:
        """Push no streams, which a Loki that accepts the credential answers with 204, 400 or 422."""
        self._push(b"", probing=True)

    def lines(self, selector: str, since: Since) -> Iterator[tuple[int, bytes]]:
        """Time in nanoseconds and text of the lines that match a selector, from a time on, in order of time.

        See "Query logs within a range of time". A page may end within a nanosecond, so the next page begins with the
        same one.
        """
        start, end = since.ms * 1_000_000, time.time_ns() + _AHEAD_NS
        limit, seen = _PAGE_LINES, set[_Line]()
        while True:
            asked = {"query": selector, "start": start, "end": end, "limit": limit, "direction": "forward"}
            try:
                found = self._queried(urlencode(asked))
            except TryAgainError:
                if limit == 1:
                    raise
                limit = max(1, limit // 8)  # the lines are too long, or the query takes too long
                continue
            new = [line for line in found if line not in seen]
            yield from ((line.nanos, line.text) for line in new)
            if len(found) < limit:
                return
            last = found[-1].nanos
            start = last if new else last + 1
            seen = {line for line in (*seen, *new) if line.nanos == last}

    def _queried(self, query: str) -> list[_Line]:
        answer = self.check(self.client.request("GET", f"{_QUERY_PATH}?{query}", None, {}))
        try:
            streams = msgspec.json.decode(answer.body, type=_Answer).data.result
            lines = [_Line(int(at), text.encode(), str(one.stream)) for one in streams for at, text, *_ in one.values]
        except (msgspec.DecodeError, ValueError) as error:
            raise GiveUpError(f"{self.place}: a query has an answer that cannot be read") from error
        return sorted(lines)

    def _push(self, message: bytes, *, probing: bool = False) -> None:
        import cramjam

        body = bytes(cramjam.snappy.compress_raw(message))
        answer = self.client.post(_PATH, body, "application/x-protobuf")
        if answer.status == _BLOCKED:
            raise GiveUpError(f"{self.place} accepts nothing now, and answered {described(answer)}")
        if not (probing and answer.status in (400, 422)):
            self.check(answer)


class _Line(NamedTuple):
    nanos: int
    text: bytes
    stream: str


class _Stream(msgspec.Struct):
    stream: dict[str, str]
    values: list[list[Any]]


class _Result(msgspec.Struct):
    result: list[_Stream]


class _Answer(msgspec.Struct):
    data: _Result


def selectors(sink: LokiSink) -> list[str]:
    """Selectors that together match each of the sink's streams exactly once. Loki requires a label that is not empty in
    each.

    An event may lack labels that only consist of its fields, so a stream is matched by its first label that is present.
    """
    labels = [(name, Template(text)) for name, text in sink.labels]
    always = [(name, template) for name, template in labels if template.has_always_text]
    if always:
        return [f"{{{', '.join(_matcher(name, template) for name, template in always)}}}"]
    absent = [f'{name}=""' for name, _ in labels]
    return [
        f"{{{', '.join([*absent[:number], _matcher(name, template)])}}}"
        for number, (name, template) in enumerate(labels)
        if template.pattern(str, "x")
    ]


def _matcher(name: str, template: Template) -> str:
    if template.is_constant:
        return f"{name}={_quoted(template.pattern(str, ''))}"
    has_words = template.pattern(str, "") != ""
    return f"{name}=~{_quoted(template.pattern(_literally, '.*') if has_words else '.+')}"


def _literally(text: str) -> str:
    """Escape a text for a regular expression of Go, which does not allow escaped spaces."""
    return re.sub(r"[.^$*+?()[\]{}|\\]", r"\\\g<0>", text)


def _quoted(text: str) -> str:
    """Quote a label value as Prometheus does."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _compile(model: LokiModel, common: CommonFields, report: SinkReport) -> LokiSink:
    for key, given in (("labels", model.labels), ("structured_metadata", model.structured_metadata)):
        for name, text in given.items():
            if not _LABEL.fullmatch(name):
                report.problem(key, f"{name!r} should be letters, digits and '_', and not begin with a digit")
            if len(name) > _LABEL_NAME_MAX:
                report.problem(key, f"{name[:40]!r}... has more than {_LABEL_NAME_MAX:,} characters")
            check_template(report, key, text)
    _check_labels(model.labels, report)
    if model.tenant is not None and not _TENANT.fullmatch(model.tenant):
        report.problem(
            "tenant", f"{model.tenant!r} is not an id of a tenant: letters, digits and !-_.*'(), at most 150"
        )
    if model.compression not in (None, "none"):
        report.problem("compression", "has no meaning here: requests of Loki are compressed with Snappy")
    return LokiSink(
        **http_fields(model, common, report, model.url, _LIMITS, compression="none"),
        **authorization_of(model, report),
        labels=tuple(model.labels.items()),
        structured_metadata=tuple(model.structured_metadata.items()),
        format=model.format,
        tenant=model.tenant,
    )


def _check_labels(labels: Mapping[str, str], report: SinkReport) -> None:
    if not any(labels.values()):
        report.problem("labels", "are all empty, which counts as no label: Loki accepts no stream without a label")
    else:
        _warn_of_optional_labels(labels, report)
    for name, text in labels.items():
        if len(text.encode()) > _LABEL_TEXT_MAX_BYTES:
            report.problem("labels", f"{name!r} has more than {_LABEL_TEXT_MAX_BYTES:,} bytes")


def _warn_of_optional_labels(labels: Mapping[str, str], report: SinkReport) -> None:
    try:
        templates = [Template(text) for text in labels.values()]
    except TemplateError:
        return  # already reported
    if any(template.has_always_text for template in templates):
        return
    field = next((name for template in templates for name in template.optional_fields), "service")
    report.warning(
        "labels",
        "may all be missing in an event, which then becomes a dead letter: Loki accepts no stream without a label; "
        f"give a default for a missing field ('{{{field}|none}}'), or add a label that all events have",
    )


def _events(sink: LokiSink, secrets: Mapping[str, str], since: Since) -> Iterator[Held]:
    """Yields the events of a server; lines of other writers are skipped."""
    target = sink.open_target(secrets)
    try:
        for selector in selectors(sink):
            for nanos, line in target.lines(selector, since):
                try:
                    event = read_event(line)
                except NOT_JSON:
                    continue
                seen_ms, time_ms = milliseconds_of(event.observed_time), nanos // 1_000_000
                yield Held(
                    event.event_id,
                    event.service or "",
                    time_ms if seen_ms is None else seen_ms,
                    weight=event.weight,
                    time_ms=time_ms,
                )
    finally:
        target.close()


def _hindrance(sink: LokiSink) -> str | None:
    return None if sink.format == "event" else "sends only bodies, which have no event_id: use format: event"


SINK: Final = bulk_sink_type(
    "loki",
    LokiModel,
    LokiSink,
    _compile,
    read_back=ReadBack(_events, _hindrance, is_by_time=lambda _: True),
)
