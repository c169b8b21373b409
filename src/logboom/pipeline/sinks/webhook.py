"""The sink `webhook`: events in the bodies of requests to any address over HTTP.

A status of 2xx means that all events of the request were accepted. Each request has an `Idempotency-Key` made of the
ids of its events (draft-ietf-httpapi-idempotency-key-header), so that a repeated request has the same key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

from logboom.base.units import MIB
from logboom.pipeline.event.record import EventRecord
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.model import secret_of
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.bulk.target import BulkResponse, Encoded, Item
from logboom.pipeline.sinks.http.authorization import AuthorizedModel, AuthorizedSink, authorization_of
from logboom.pipeline.sinks.http.model import RequestLimits, header_name_fault, http_fields
from logboom.pipeline.sinks.http.target import HttpTarget

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient

Encoding = Literal["json_array", "ndjson", "json"]
_CONTENT_TYPES: Final[Mapping[str, str]] = {
    "json_array": "application/json",
    "ndjson": "application/x-ndjson",
    "json": "application/json",
}


class WebhookModel(AuthorizedModel):
    """Requests to any address."""

    type: Literal["webhook"]
    url: str | None = None
    url_env: str | None = None
    """Environment variable that holds the address, if it is itself a secret."""

    url_file: str | None = None
    """The same as a file."""

    method: Literal["POST", "PUT"] = "POST"
    encoding: Encoding = "json_array"
    """A JSON array of events, one event per line, or one event per request."""

    token_header: str | None = None
    """The header that contains only the token, instead of `Authorization: Bearer`."""


class WebhookSink(AuthorizedSink, frozen=True, kw_only=True, tag="webhook"):
    """Requests to any address."""

    method: Literal["POST", "PUT"] = "POST"
    encoding: Encoding = "json_array"
    token_header: str | None = None

    def open_target(self, secrets: Mapping[str, str]) -> WebhookTarget:
        """The address."""
        if self.token_header is None:
            headers = self.authorization(secrets)
        else:
            headers = self.authorization(secrets, header=self.token_header, scheme="")
        return WebhookTarget(self, self.client(secrets, headers))


class WebhookTarget(HttpTarget):
    """One address."""

    may_be_page = True

    def __init__(self, sink: WebhookSink, client: HttpClient) -> None:
        super().__init__(client)
        self._sink = sink

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode the event as it is."""
        return Encoded(value)

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one request."""

        bodies = [item.payload for item in items]
        ids = sha256("\n".join(item.event_id for item in items).encode()).hexdigest()[:32]
        encoding = self._sink.encoding
        body = b"[%b]" % b",".join(bodies) if encoding == "json_array" else b"\n".join(bodies) + b"\n"
        headers = {"content-type": _CONTENT_TYPES[encoding], "idempotency-key": f'"{ids}"'}
        answer = self.client.request(self._sink.method, "", body, headers)
        self.check(answer)
        return BulkResponse()

    def probe(self) -> None:
        """Send a HEAD request; a server that does not support it is reachable all the same."""
        answer = self.client.request("HEAD", "", None, {})
        if answer.status not in (400, 404, 405, 411, 415, 501):
            self.check(answer)


def _compile(model: WebhookModel, common: CommonFields, report: SinkReport) -> WebhookSink:
    url_ref = secret_of(model, "url", report)
    if (model.url is None) == (url_ref is None):
        report.problem("url", "needs exactly one of url, url_env and url_file")
    authorization = authorization_of(model, report)
    if model.token_header is not None:
        fault = (
            "goes with token_env or token_file"
            if authorization["token"] is None
            else header_name_fault(model.token_header)
        )
        if fault is not None:
            report.problem("token_header", fault)
    one_each = model.encoding == "json"
    if one_each and model.batch.max_events not in (None, 1):
        report.problem("batch", "max_events has no meaning with encoding json, which sends each event by itself")
    return WebhookSink(
        **http_fields(
            model,
            common,
            report,
            model.url or "",
            RequestLimits(MIB, 1 if one_each else 1_000),
            compression="none",
            url_ref=url_ref,
        ),
        **authorization,
        method=model.method,
        encoding=model.encoding,
        token_header=model.token_header,
    )


SINK: Final = bulk_sink_type("webhook", WebhookModel, WebhookSink, _compile)
