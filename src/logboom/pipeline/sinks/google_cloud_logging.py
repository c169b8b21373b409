"""The sink `google_cloud_logging`: log entries of Google Cloud, by `entries.write` of the Cloud Logging API v2.

The service account's key signs a token request (RFC 7523; "Using OAuth 2.0 for Server to Server Applications"). The
token is used until it expires. The `insertId` of an entry is made of the event's id and the log, so that queries show
only one of several entries with the same project, time and id ("LogEntry"). Limits ("Quotas and limits"): 10 MB for a
request, 256 KB for an entry.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

import msgspec
from pydantic import Field

from logboom.pipeline.event.record import EventRecord, attributes_of
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.model import secret_of
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.bulk.target import BulkResponse, Encoded, Item, UnfitError
from logboom.pipeline.sinks.http.answers import HttpAnswer
from logboom.pipeline.sinks.http.google import GoogleModel, GoogleSink, Tokens
from logboom.pipeline.sinks.http.model import GZIP_ALONE, RequestLimits, http_fields
from logboom.pipeline.sinks.http.target import HttpTarget

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient

_LIMITS: Final = RequestLimits(8_000_000, 1_000)
_ENTRY_MAX_BYTES: Final = 256_000
_SCOPE: Final = "https://www.googleapis.com/auth/logging.write"
_PARTIAL: Final = "type.googleapis.com/google.logging.v2.WriteLogEntriesPartialErrors"
_AGAIN_CODES: Final = (4, 8, 10, 13, 14)
"""DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, INTERNAL, UNAVAILABLE of google.rpc.Code."""
_SEVERITIES: Final = ((21, "CRITICAL"), (17, "ERROR"), (13, "WARNING"), (9, "INFO"), (1, "DEBUG"), (0, "DEFAULT"))
_LOG: Final = re.compile(r"[A-Za-z0-9/_.-]{1,511}")
_TYPE: Final = re.compile(r"[A-Za-z0-9_./-]{1,256}")
_PROJECT: Final = re.compile(r"[a-z0-9.:-]{4,63}")
_encode = msgspec.json.encode


class GoogleCloudLoggingModel(GoogleModel):
    """Log entries of Google Cloud."""

    type: Literal["google_cloud_logging"]
    log: str = "logboom"
    """The name of the log in the project."""

    resource: str = "global"
    """The type of the monitored resource."""

    resource_labels: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of every entry."""

    url: str = "https://logging.googleapis.com"


class GoogleCloudLoggingSink(GoogleSink, frozen=True, kw_only=True, tag="google_cloud_logging"):
    """Log entries of Google Cloud."""

    log: str
    resource: str
    resource_labels: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()

    def open_target(self, secrets: Mapping[str, str]) -> GoogleCloudLoggingTarget:
        """The API, with tokens of the service account."""
        return GoogleCloudLoggingTarget(self, self.client(secrets, {}), self.tokens(secrets, _SCOPE))


class GoogleCloudLoggingTarget(HttpTarget):
    """`entries.write` of one project."""

    def __init__(self, sink: GoogleCloudLoggingSink, client: HttpClient, tokens: Tokens) -> None:
        super().__init__(client)
        self._sink = sink
        self._tokens = tokens
        common = {
            "logName": f"projects/{sink.project}/logs/{quote(sink.log, safe='')}",
            "resource": {"type": sink.resource, "labels": dict(sink.resource_labels)},
            "labels": dict(sink.labels),
            "partialSuccess": True,
        }
        # Cloud Logging deduplicates entries of one project across its logs.
        self._log_mark = hashlib.blake2s(sink.log.encode(), digest_size=4).hexdigest()
        self._head = _encode(common)[:-1] + b',"entries":['

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """A LogEntry with the attributes and the message as its payload."""
        payload = attributes_of(event)
        if event.body is not None:
            payload["message"] = event.body
        given = {"service": event.service, "host": event.host, "event_id": event.event_id}
        labels = {name: text for name, text in given.items() if text is not None}
        entry: dict[str, Any] = {
            "insertId": f"{re.sub(r'[^A-Za-z0-9_.-]', '_', event.event_id)}.{self._log_mark}",
            "severity": next(name for number, name in _SEVERITIES if (event.severity_number or 0) >= number),
            "jsonPayload": payload,
            "labels": labels,
        }
        when = event.time or event.observed_time
        if when is not None:
            entry["timestamp"] = when
        if event.trace_id is not None:
            entry["trace"] = f"projects/{self._sink.project}/traces/{event.trace_id}"
        if event.span_id is not None:
            entry["spanId"] = event.span_id
        written = _encode(entry)
        if len(written) > _ENTRY_MAX_BYTES:
            raise UnfitError(f"the entry takes {len(written)} bytes, more than the {_ENTRY_MAX_BYTES} of Cloud Logging")
        return Encoded(written)

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one request."""
        answer = self._write(b",".join([item.payload for item in items]), dry=False)
        partial = _partial(answer, len(items))
        if partial is not None:
            return partial
        if answer.status == 401:
            self._tokens.drop()
        self.check(answer)
        return BulkResponse()

    def probe(self) -> None:
        """Let the server check an entry without writing it (`dryRun`)."""
        self.check(self._write(_encode({"jsonPayload": {"message": "logboom pipeline check"}}), dry=True))

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._tokens.close()

    def _write(self, entries: bytes, *, dry: bool) -> HttpAnswer:
        end = b'],"dryRun":true}' if dry else b"]}"
        token = self._tokens.current()
        headers = {"authorization": f"Bearer {token}"}
        answer = self.client.post("/v2/entries:write", self._head + entries + end, "application/json", headers)
        return answer if answer.status < 300 else answer._replace(body=answer.body.replace(token.encode(), b"***"))


def _partial(answer: HttpAnswer, count: int) -> BulkResponse | None:
    """The errors of single entries in an answer (`WriteLogEntriesPartialErrors`); None if it has none."""
    if answer.status < 400:
        return None
    try:
        details = msgspec.json.decode(answer.body, type=dict[str, Any])["error"]["details"]
        found = next(one["logEntryErrors"] for one in details if one.get("@type") == _PARTIAL)
        errors = {int(index): (int(one.get("code", 2)), str(one.get("message", ""))) for index, one in found.items()}
    except (msgspec.DecodeError, LookupError, StopIteration, TypeError, ValueError, AttributeError):
        return None
    refused: dict[int, str] = {}
    again: dict[int, str] = {}
    for index, (code, message) in errors.items():
        if 0 <= index < count:
            (again if code in _AGAIN_CODES else refused)[index] = f"code {code}: {message}"
    return BulkResponse(refused=refused, again=again, is_overload=bool(again))


def _compile(model: GoogleCloudLoggingModel, common: CommonFields, report: SinkReport) -> GoogleCloudLoggingSink | None:
    if not _PROJECT.fullmatch(model.project):
        report.problem("project", f"{model.project!r} is not an id of a project")
    if not _LOG.fullmatch(model.log):
        report.problem("log", f"{model.log!r} is not an id of a log: letters, digits and /_-. (at most 511)")
    if not _TYPE.fullmatch(model.resource):
        report.problem("resource", f"{model.resource!r} is not a type of a monitored resource, such as global")
    for part, given in (("resource_labels", model.resource_labels), ("labels", model.labels)):
        if "" in given:
            report.problem(part, "have one without a name")
    key = secret_of(model, "key", report, needed=True)
    fields = http_fields(model, common, report, model.url, _LIMITS, encodings=GZIP_ALONE)
    if key is None:
        return None
    return GoogleCloudLoggingSink(
        **fields,
        project=model.project,
        log=model.log,
        resource=model.resource,
        resource_labels=tuple(model.resource_labels.items()),
        labels=tuple(model.labels.items()),
        key=key,
    )


SINK: Final = bulk_sink_type("google_cloud_logging", GoogleCloudLoggingModel, GoogleCloudLoggingSink, _compile)
