"""The sink `splunk_hec`: events for Splunk's HTTP Event Collector.

"Format events for HTTP Event Collector", "About HTTP Event Collector Indexer Acknowledgment" and "Troubleshoot HTTP
Event Collector" (the table of codes) in Splunk's documentation.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from pydantic import Field

from logboom.base.settings import DurationMs
from logboom.base.units import SECOND_MS
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
from logboom.pipeline.sinks.http.answers import HttpAnswer, described
from logboom.pipeline.sinks.http.model import GZIP_ALONE, HttpModel, HttpSink, RequestLimits, http_fields
from logboom.pipeline.sinks.http.target import HttpTarget
from logboom.pipeline.sinks.http.templates import Template, check_template
from logboom.pipeline.sinks.http.times import event_microseconds

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient

_MAX_BYTES: Final = 1_000_000
"""Splunk Cloud's limit for one request."""
_INDEX: Final = re.compile(r"[a-z0-9_][a-z0-9_-]*")
_MAX_EVENTS: Final = 2_000
_ACK_POLL_S: Final = 0.5
_PATH: Final = "/services/collector"
_NO_DATA: Final = 5
_OF_ONE_EVENT: Final = (6, 7, 12, 13, 15)
"""Codes: invalid data format, incorrect index, an event is missing or blank, indexed fields that cannot be handled."""
_encode = msgspec.json.encode


class SplunkHecModel(HttpModel):
    """Splunk's HTTP Event Collector."""

    type: Literal["splunk_hec"]
    url: str
    token_env: str | None = None
    token_file: str | None = None
    index: str | None = None
    """The index; may contain fields of the event, such as `{service}`. Default: the index of the token."""

    source: str | None = "{source}"
    sourcetype: str | None = "_json"
    fields: dict[str, str] = Field(default_factory=dict)
    """Indexed fields: names and texts, which may contain fields of the event, such as `{service}`."""

    format: Literal["event", "body"] = "event"
    """Whether to send the whole event or only its body."""

    acks: bool = False
    """Whether an event counts as delivered only after the indexer has acknowledged it. The token must have that
    enabled."""

    ack_timeout: DurationMs = Field(default=60 * SECOND_MS, ge=100, le=600 * SECOND_MS)
    """How long to wait for an acknowledgment before the request is sent again."""


class SplunkHecSink(HttpSink, frozen=True, kw_only=True, tag="splunk_hec"):
    """Splunk's HTTP Event Collector."""

    token: KeyRef
    index: str | None = None
    source: str | None = None
    sourcetype: str | None = None
    fields: tuple[tuple[str, str], ...] = ()
    format: Literal["event", "body"] = "event"
    acks: bool = False
    ack_timeout_ms: int = 60 * SECOND_MS

    @property
    def credentials(self) -> tuple[tuple[str, KeyRef], ...]:
        return (("token", self.token),)

    def open_target(self, secrets: Mapping[str, str]) -> SplunkHecTarget:
        """The collector."""
        return SplunkHecTarget(self, self.client(secrets, {"authorization": f"Splunk {secrets[self.token.id]}"}))


class SplunkHecTarget(HttpTarget):
    """One collector."""

    def __init__(self, sink: SplunkHecSink, client: HttpClient) -> None:
        super().__init__(client)
        self._sink = sink
        self._own = threading.local()
        self._closed = threading.Event()
        """Wake-up of the waits so far: connections are also closed for requests that take too long, and new waits begin
        then."""
        given = {"index": sink.index, "source": sink.source, "sourcetype": sink.sourcetype, "host": "{host}"}
        self._metadata = {name: Template(text) for name, text in given.items() if text is not None}
        self._fields = {name: Template(text) for name, text in sink.fields}

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode the event in its envelope."""
        envelope: dict[str, Any] = {}
        micros = event_microseconds(event)
        if micros is not None:
            envelope["time"] = msgspec.Raw(b"%d.%06d" % divmod(micros, 1_000_000)) if micros >= 0 else micros / 1e6
        for name, template in self._metadata.items():
            text = template.render(event)
            if text:
                envelope[name] = text
        fields = {name: template.render(event) for name, template in self._fields.items()}
        if fields:
            envelope["fields"] = {name: text for name, text in fields.items() if text is not None}
        # Splunk refuses blank events, and an empty body has less information than the event.
        whole = self._sink.format == "event" or not (event.body or "").strip()
        envelope["event"] = msgspec.Raw(value) if whole else event.body
        return Encoded(_encode(envelope))

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one request, and wait for its acknowledgment if that is enabled."""
        body = b"\n".join([item.payload for item in items])
        answer = self._post("event", body)
        refused = self._refused(answer, len(items))
        if refused is not None:
            return refused
        self.check(answer)
        if self._sink.acks:
            self._await_ack(_told(answer))
        return BulkResponse()

    def probe(self) -> None:
        """Send nothing, which a collector that accepts the token answers with "No data"."""
        answer = self._post("event", b"")
        if answer.status != 400 or _told(answer).get("code") != _NO_DATA:
            self.check(answer)

    def close(self) -> None:
        """Close the connections and end waits for acknowledgments."""
        closed, self._closed = self._closed, threading.Event()
        closed.set()
        super().close()

    @property
    def _channel(self) -> str:
        """The channel of the calling thread. After a crash, Splunk numbers the requests of a channel from 0 again. With
        several requests in progress on one channel, the acknowledgment of a later one would be taken for that of a lost
        one."""
        if not hasattr(self._own, "channel"):
            self._own.channel = str(uuid.uuid4())
        channel: str = self._own.channel
        return channel

    def _post(self, path: str, body: bytes) -> HttpAnswer:
        headers = {"x-splunk-request-channel": self._channel} if self._sink.acks else None
        return self.client.post(f"{_PATH}/{path}", body, "application/json", headers)

    def _refused(self, answer: HttpAnswer, count: int) -> BulkResponse | None:
        """The meaning of a 400 answer for the events; None for other answers."""
        if answer.status != 400:
            return None
        told = _told(answer)
        code, number = told.get("code"), told.get("invalid-event-number")
        reason = f"{self.place} answered {described(answer)}"
        if code not in _OF_ONE_EVENT:
            raise GiveUpError(reason)
        if not isinstance(number, int) or not 0 <= number < count:
            raise RefusedWholeError(reason)
        others = {
            index: "stood in a request with an event that is refused" for index in range(count) if index != number
        }
        return BulkResponse(refused={number: reason}, again=others, pause_s=0.0)

    def _await_ack(self, told: dict[str, Any]) -> None:
        number = told.get("ackId")
        if not isinstance(number, int):
            raise GiveUpError(f"{self.place} gives no acknowledgments: enable indexer acknowledgment for the token")
        ends_by = time.monotonic() + self._sink.ack_timeout_ms / SECOND_MS
        closed = self._closed
        reason = "has not acknowledged a request in its time"
        while not closed.wait(_ACK_POLL_S if time.monotonic() < ends_by else 0):
            try:
                if self._is_acknowledged(number):
                    return
            except TryAgainError as error:  # ask again: giving up would send the events twice
                reason = f"was asked in vain for an acknowledgment: {error}"
            if time.monotonic() >= ends_by:
                raise TryAgainError(f"{self.place} {reason}", pause_s=0.0)
        raise TryAgainError("the connection was ended while an acknowledgment was waited for")

    def _is_acknowledged(self, number: int) -> bool:
        asked = _encode({"acks": [number]})
        answer = self.check(self._post(f"ack?channel={self._channel}", asked))
        acks = _told(answer).get("acks")
        return isinstance(acks, dict) and acks.get(str(number)) is True


def _told(answer: HttpAnswer) -> dict[str, Any]:
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        if answer.status >= 300:
            return {}
        raise TryAgainError("an answer that cannot be read") from error


def _compile(model: SplunkHecModel, common: CommonFields, report: SinkReport) -> SplunkHecSink | None:
    for key in ("index", "source", "sourcetype"):
        text = getattr(model, key)
        if text is not None:
            check_template(report, key, text)
    if model.index is not None and "{" not in model.index and not _INDEX.fullmatch(model.index):
        report.problem("index", f"{model.index!r} is not a valid name of an index: small letters, digits, '_' and '-'")
    if "" in model.fields:
        report.problem("fields", "have one without a name")
    for text in model.fields.values():
        check_template(report, "fields", text)
    token = secret_of(model, "token", report, needed=True)
    limits = RequestLimits(_MAX_BYTES, _MAX_EVENTS, concurrency=8 if model.acks else 4)
    common_fields = http_fields(model, common, report, model.url, limits, encodings=GZIP_ALONE)
    if token is None:
        return None
    if model.acks:
        sending = common_fields["sending"]
        common_fields["sending"] = msgspec.structs.replace(sending, longer_ms=model.ack_timeout)
    return SplunkHecSink(
        **common_fields,
        token=token,
        index=model.index,
        source=model.source,
        sourcetype=model.sourcetype,
        fields=tuple(model.fields.items()),
        format=model.format,
        acks=model.acks,
        ack_timeout_ms=model.ack_timeout,
    )


SINK: Final = bulk_sink_type("splunk_hec", SplunkHecModel, SplunkHecSink, _compile)
